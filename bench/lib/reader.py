"""Results as the report needs them: several runs joined, with their suites and claims."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib import claims, found, grid, units
from lib.results import Results, RowResult, TableResult, load
from lib.suite import Suite

# Facts that runs must share to stand in one report. Processors may differ: rows are compared within a table only, which
# one processor has measured.
SAME = ("machine", "kernel", "cpus", "memory_bytes")
OTHERS = ("processor", "cpus", "memory_bytes", "kernel", "machine", "date", "form")
QUICK = "Quick form: small trees and few runs. These figures show that all runs, not who wins."
NAMES = {"memory_bytes": "memory", "cpus": "processors used", "machine": "architecture", "date": "measured on"}


@dataclass(frozen=True)
class Part:
    """A suite and its tables that have run."""

    suite: Suite
    tables: list[TableResult]
    words: list[str]

    @property
    def about(self) -> str:
        """Questions of the suite, and the machine and the days that answered them."""
        dates = sorted({str(table.facts.get("date", "")) for table in self.tables})
        days = " and ".join(dict.fromkeys([dates[0], dates[-1]]))
        processor = " and ".join(self.processors)
        kernels = " and ".join(sorted({str(table.facts.get("kernel", "unknown")) for table in self.tables}))
        return f"{self.suite.about} Measured on {processor}, Linux {kernels}, {days}."

    @property
    def processors(self) -> list[str]:
        """Processors that have measured its tables."""
        return sorted({str(table.facts.get("processor", "unknown")) for table in self.tables})


@dataclass(frozen=True)
class Report:
    """All that both forms of the report show."""

    parts: list[Part]
    claims: list[claims.Judged]
    facts: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    results: Results

    @property
    def quick(self) -> bool:
        """True if a table is of the quick form."""
        return any(table.facts.get("form") == "quick" for part in self.parts for table in part.tables)

    @property
    def title(self) -> str:
        """Heading of all pages."""
        return "kiln beside its peers"


def read(files: Sequence[Path]) -> Report:
    """Reads results of one or several runs. Raises ValueError if they do not fit together."""
    by_file = [(file, load([file])) for file in files]
    tables = [table for _, tables in by_file for table in tables]
    if not tables:
        raise ValueError("no results: run bench/run")
    seen: dict[str, tuple[Any, Path]] = {}
    for file, found_tables in by_file:
        for table in found_tables:
            for name in SAME:
                fact = _comparable(name, table.facts.get(name))
                before, where = seen.setdefault(name, (fact, file))
                if fact != before:
                    raise ValueError(
                        f"{file}: {table.suite}, {table.key}: {name} is {fact!r}, but {before!r} in {where}: "
                        "results of one report come from equal machines"
                    )
    # The last run of a table counts: by day, then by place.
    results = Results(sorted(tables, key=lambda table: table.facts.get("date", "")))
    suites = {name: found.load(name) for name in found.names()}
    parts = []
    for name in dict.fromkeys([*suites, *(table.suite for table in tables)]):
        if mine := results.of(name):
            suite = suites.get(name) or Suite(name, name, "This suite is no longer there.", [], lambda _: [])
            order = {table.key: place for place, table in enumerate(suite.tables)}
            mine.sort(key=lambda table, order=order: order.get(table.key, len(order)))  # type: ignore[misc]
            part = Part(suite, mine, list(suite.words(results)))
            if len(part.processors) > 1:
                for table in mine:
                    table.note = f"{table.note} Measured on {table.facts.get('processor', 'unknown')}.".strip()
            parts.append(part)
    kept = list(results.tables.values())
    return Report(parts, claims.judged(suites.values(), results), _facts(kept), _versions(kept), results)


def _facts(tables: Sequence[TableResult]) -> list[tuple[str, str]]:
    found_facts: dict[str, list[str]] = {}
    for name in OTHERS:
        for table in tables:
            if (value := table.facts.get(name)) is not None:
                found_facts.setdefault(name, []).append(_fact(name, value))
    return [(NAMES.get(name, name), ", ".join(sorted(set(values)))) for name, values in found_facts.items()]


def _comparable(name: str, value: Any) -> Any:
    """Returns what must be equal: the release of a kernel without its build, which takes some pages more or less."""
    if name == "kernel":
        return str(value).partition("-")[0]
    return _fact(name, value) if name == "memory_bytes" and value is not None else value


def _fact(name: str, value: Any) -> str:
    return units.show(value, "GiB") if name == "memory_bytes" else str(value)


def _versions(tables: Iterable[TableResult]) -> list[tuple[str, str]]:
    versions: dict[str, dict[str, None]] = {}
    for table in tables:
        for name, version in table.facts.get("versions", {}).items():
            versions.setdefault(name, {})[str(version)] = None
    return [(name, "; ".join(several)) for name, several in versions.items()]


def count_words(part: Part) -> str:
    """Returns the size of a suite in words: "3 tables, 40 rows, 2 of them with a reason instead of figures"."""
    rows = [row for table in part.tables for row in table.rows]
    without = sum(not row.runs for row in rows)
    more = f", {without} of them with a reason instead of figures" if without else ""
    return f"{_many(len(part.tables), 'table')}, {_many(len(rows), 'row')}{more}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def slug(table: TableResult) -> str:
    """Returns a table's name in links and names of files."""
    return re.sub(r"[^a-z0-9]+", "-", f"{table.suite}-{table.key}".lower()).strip("-")


def best_of_each(
    table: TableResult, series: str, x: str, y: str, always: Callable[[RowResult], bool], most: int = 4
) -> TableResult:
    """Returns the rows that none of the same program dominates, at most some of each, and those that always count: a
    short form of a table."""
    rows = []
    for name in dict.fromkeys(row.labels.get(series, "") for row in table.rows):
        same = [row for row in table.rows if row.labels.get(series, "") == name and row.runs]
        worse = grid.dominated(table, x, y, same)
        best = sorted((row for row in same if id(row) not in worse), key=lambda row: row.median(x) or 0.0)
        step = max(1.0, (len(best) - 1) / (most - 1))
        chosen = [best[round(step * number)] for number in range(min(most, len(best)))]
        chosen += [row for row in same if always(row) and all(row is not one for one in chosen)]
        rows += sorted(chosen, key=lambda row: row.median(x) or 0.0)
    return TableResult(**{**vars(table), "rows": rows})
