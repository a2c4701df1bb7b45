"""Results of runs, as they are kept: JSON lines, and the figures that are made of them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# A timed figure whose deviation is a larger part of its mean is marked.
UNSTABLE = 0.1


class Unreadable(ValueError):
    """A file of results that cannot be read. The message names it and its line."""


@dataclass(frozen=True)
class Figure:
    """A quantity over all runs of a row."""

    n: int
    median: float
    mean: float
    deviation: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Figure:
        """Summarizes at least one value."""
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        middle = statistics.median(values)
        return cls(len(values), middle, statistics.fmean(values), deviation, min(values), max(values))

    @property
    def unstable(self) -> bool:
        """True if the deviation is too large a part of the mean to tell neighbours apart."""
        return self.n > 1 and self.mean > 0 and self.deviation / self.mean > UNSTABLE


@dataclass(frozen=True)
class RowResult:
    """A row as it was measured."""

    labels: Mapping[str, str]
    runs: list[Mapping[str, float]]
    reason: str = ""
    command: str = ""
    published: Mapping[str, float] = field(default_factory=dict)
    ours: bool = False

    def values(self, key: str) -> list[float]:
        """Returns the values of a column, one for each run that has it."""
        return [run[key] for run in self.runs if key in run]

    def figure(self, key: str) -> Figure | None:
        """Returns the figure of a column; None if no run has it."""
        values = self.values(key)
        return Figure.of(values) if values else None

    def median(self, key: str) -> float | None:
        """Returns the median of a column; None if no run has it."""
        figure = self.figure(key)
        return figure.median if figure else None

    def has(self, **labels: str) -> bool:
        """True if the row has all these labels; a `_` in a name stands for a space."""
        return all(self.labels.get(name.replace("_", " ")) == value for name, value in labels.items())

    def document(self) -> dict[str, Any]:
        """Returns the row as a JSON object."""
        about: dict[str, Any] = {"labels": dict(self.labels)}
        about |= {"ours": True} if self.ours else {}
        about |= {"command": self.command} if self.command else {}
        about |= {"published": dict(self.published)} if self.published else {}
        return {**about, "reason": self.reason} if self.reason else {**about, "runs": [dict(run) for run in self.runs]}


@dataclass
class TableResult:
    """A table as it was measured. `facts` are of the machine, the programs and the form."""

    suite: str
    key: str
    title: str
    columns: list[dict[str, Any]]
    plot: dict[str, Any]
    facts: dict[str, Any]
    note: str = ""
    published: str = ""
    modelled: bool = False
    rows: list[RowResult] = field(default_factory=list)

    def find(self, **labels: str) -> RowResult | None:
        """Returns the first row that has all labels."""
        return next(self.all(**labels), None)

    def all(self, **labels: str) -> Iterator[RowResult]:
        """Yields the rows that have all labels."""
        return (row for row in self.rows if row.has(**labels))

    def median(self, column: str, **labels: str) -> float | None:
        """Returns the median of a column of the first row with these labels; None if it has none."""
        row = self.find(**labels)
        return row.median(column) if row else None


class Results:
    """The tables of one or several runs."""

    def __init__(self, tables: Iterable[TableResult] = ()) -> None:
        self.tables: dict[tuple[str, str], TableResult] = {(table.suite, table.key): table for table in tables}

    def table(self, suite: str, key: str) -> TableResult | None:
        """Returns a table that was run."""
        return self.tables.get((suite, key))

    def of(self, suite: str) -> list[TableResult]:
        """Returns the tables of a suite, in the order in which they ran."""
        return [table for table in self.tables.values() if table.suite == suite]

    def median(self, suite: str, key: str, column: str, **labels: str) -> float | None:
        """Returns a median, or None if the table, the row or the figure is not there."""
        table = self.table(suite, key)
        return table.median(column, **labels) if table else None

    def ratio(self, suite: str, key: str, column: str, row: Mapping[str, str], to: Mapping[str, str]) -> float | None:
        """Returns the quotient of two rows' medians; None if one is not there."""
        above = self.median(suite, key, column, **row)
        below = self.median(suite, key, column, **to)
        return above / below if above is not None and below else None


def append(file: Path, table: TableResult) -> None:
    """Appends a complete table to a file of JSON lines, in one write: an interrupt leaves no part of a table."""
    head = {name: value for name, value in vars(table).items() if name != "rows"}
    lines = [{"kind": "table", **head}, *({"kind": "row", **row.document()} for row in table.rows)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with file.open("a") as out:
        out.write(text)


def joined(earlier: TableResult, later: TableResult) -> TableResult:
    """Returns a table that was measured again, with the runs of both times. A row that fails now has failed."""
    rows = []
    for row in later.rows:
        before = next((one for one in earlier.rows if one.labels == row.labels and not one.reason), None)
        runs = row.runs if row.reason or before is None else [*before.runs, *row.runs]
        rows.append(replace(row, runs=runs))
    took = earlier.facts.get("took_s", 0) + later.facts.get("took_s", 0)
    return replace(later, rows=rows, facts={**later.facts, "took_s": round(took, 1)})


def put(file: Path, table: TableResult) -> None:
    """Writes a table in the place of one with the same key."""
    others = [one for one in load([file]) if one.key != table.key] if file.exists() else []
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    for one in [*others, table]:
        append(new, one)
    new.replace(file)


def load(files: Iterable[Path]) -> list[TableResult]:
    """Reads tables. Raises Unreadable if a line is not a result."""
    tables: list[TableResult] = []
    for file in files:
        start = len(tables)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            try:
                record = json.loads(line)
                if record.pop("kind") == "table":
                    tables.append(TableResult(**record))
                elif len(tables) == start:
                    raise ValueError("a row before any table")
                else:
                    tables[-1].rows.append(RowResult(**{"runs": [], **record}))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise Unreadable(f"{file}: line {number}: {error}") from error
    return tables


def percentile(values: list[float], share: float) -> float:
    """Returns the least value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
