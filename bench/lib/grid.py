"""Tables as both forms of the report show them: heads and cells of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lib import published, units
from lib.results import Figure, RowResult, TableResult
from lib.suite import Column

UNSTABLE_SIGN = "≈"
UNSTABLE_WORDS = f"{UNSTABLE_SIGN} marks an unstable figure: its deviation is more than 10 % of its mean."


@dataclass(frozen=True)
class Line:
    """A row of text. A `reason` stands in place of the cells after the labels."""

    labels: list[str]
    cells: list[str] = field(default_factory=list)
    reason: str = ""
    ours: bool = False


@dataclass(frozen=True)
class Grid:
    """A table of text: the first heads are those of the labels, the others stand over numbers."""

    labels: list[str]
    heads: list[str]
    lines: list[Line]


def columns(table: TableResult) -> list[Column]:
    """Returns the columns of a table that any row has figures of; all if no row has any."""
    every = [Column(**column) for column in table.columns]
    return [column for column in every if any(row.values(column.key) for row in table.rows)] or every


def column(table: TableResult, key: str) -> Column:
    """Returns a column by its key. Raises ValueError if the table has none."""
    for one in table.columns:
        if one["key"] == key:
            return Column(**one)
    raise ValueError(f"{table.suite}, {table.key}: no column {key!r}")


def label_names(table: TableResult) -> list[str]:
    """Returns the names of all labels, in the order in which rows have them."""
    names = list(dict.fromkeys(name for row in table.rows for name in row.labels))
    return [name for name in names if name] or [""]


def named(row: RowResult, names: Iterable[str]) -> str:
    """Returns the name of a row by some of its labels."""
    found = [row.labels[name] for name in names if row.labels.get(name)]
    return " · ".join(found or row.labels.values())


def labels_of(row: RowResult, names: Sequence[str]) -> list[str]:
    """Returns a row's labels, one a head. A row that stands for all has its only one in the first place."""
    found = [row.labels.get(name, "") for name in names]
    return found if any(found) else [*row.labels.values(), *names][: len(names)]


def unit_of(table: TableResult, what: Column) -> units.Unit:
    """Returns the unit that all figures of a column are shown in."""
    medians = [row.median(what.key) for row in table.rows]
    return units.fitting((value for value in medians if value is not None), what.unit)


def title(what: Column, fit: units.Unit) -> str:
    """Returns the head of a column: "wall, ms"."""
    return f"{what.title}, {fit.name}" if fit.name else what.title


def cell(figure: Figure | None, what: Column, fit: units.Unit) -> str:
    """Returns a median, with its deviation and the sign of unstable figures if it was timed."""
    if figure is None:
        return "–"
    text = fit.cell(figure.median)
    if not what.timed or figure.n < 2:
        return text
    sign = f"{UNSTABLE_SIGN} " if figure.unstable else ""
    return f"{sign}{text} ± {fit.like(figure.deviation, text)}"


def grid(table: TableResult) -> Grid:
    """Returns a table: medians by row and column."""
    names, shown = label_names(table), [(one, unit_of(table, one)) for one in columns(table)]
    lines = []
    for row in table.rows:
        reason = "" if row.runs else row.reason or "not run"
        cells = [] if reason else [cell(row.figure(one.key), one, fit) for one, fit in shown]
        lines.append(Line(labels_of(row, names), cells, reason, row.ours))
    return Grid(names, [title(one, fit) for one, fit in shown], lines)


def beside(table: TableResult) -> tuple[Grid, str] | None:
    """Returns the published figures beside ours, both relative to one row, and which row that is; None without any.

    The seconds of two machines do not stand side by side: theirs are printed, ours are ratios.
    """
    every = [Column(**one) for one in table.columns]
    keys = [one for one in every if any(one.key in row.published for row in table.rows)]
    if not keys:
        return None
    makers: list[Callable[[RowResult], list[str]]] = []
    heads: list[str] = []
    references: dict[str, list[str]] = {}
    names = label_names(table)
    for one in keys:
        reference = next((row for row in table.rows if row.published.get(one.key) and row.median(one.key)), None)
        reference = reference or next(row for row in table.rows if one.key in row.published)
        fit = units.fitting([row.published[one.key] for row in table.rows if one.key in row.published], one.unit)
        heads += [f"{title(one, fit)}: theirs", "theirs, ×", "ours, ×"]
        makers.append(_maker(one.key, fit, reference))
        references.setdefault(named(reference, names), []).append(one.title)
    rows = [row for row in table.rows if any(one.key in row.published for one in keys)]
    lines = [Line(labels_of(row, names), [text for make in makers for text in make(row)], "", row.ours) for row in rows]
    parts = [f"“{name}” ({', '.join(titles)})" for name, titles in references.items()]
    which = parts[0].rpartition(" (")[0] if len(parts) == 1 else "; ".join(parts)
    return Grid(names, heads, lines), f"× is relative to the row {which}, in theirs and in ours."


def _maker(key: str, fit: units.Unit, reference: RowResult) -> Callable[[RowResult], list[str]]:
    """Returns the function that makes the three cells of a published column."""
    base, our_base = reference.published[key], reference.median(key)

    def make(row: RowResult) -> list[str]:
        theirs, ours = row.published.get(key), row.median(key)
        return [
            "–" if theirs is None else fit.cell(theirs),
            "–" if theirs is None or not base else units.times(theirs / base),
            "–" if ours is None or not our_base else units.times(ours / our_base),
        ]

    return make


def spread(table: TableResult) -> Grid | None:
    """Returns runs, mean, deviation and range of every figure that was timed more than once; None without any."""
    names, lines = label_names(table), []
    shown = [(one, unit_of(table, one)) for one in columns(table) if one.timed]
    for row in table.rows:
        for one, fit in shown:
            figure = row.figure(one.key)
            if figure and figure.n > 1:
                numbers = [figure.median, figure.mean, figure.deviation, figure.least, figure.most]
                cells = [str(figure.n), *(fit.cell(number) for number in numbers)]
                lines.append(Line([*labels_of(row, names), title(one, fit)], cells, "", row.ours))
    heads = ["runs", "median", "mean", "deviation", "least", "most"]
    return Grid([*names, "quantity"], heads, lines) if lines else None


def caption(table: TableResult) -> list[str]:
    """Returns sentences under a table: its set-up, its runs, and the signs in it."""
    counts = [len(row.runs) for row in table.rows if row.runs]
    every = [row.figure(one.key) for one in columns(table) if one.timed for row in table.rows]
    said = [table.note.strip()] if table.note else []
    for name, (count, size) in table.facts.get("trees", {}).items():
        said.append(f"The tree {name} has {count:,} entries and {units.show(size, 'MB')} of files.")
    if counts and max(counts) > 1:
        runs = f"{counts[0]}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        deviation = ", ± their deviation" if any(every) else ""
        said.append(f"Medians of {runs} runs in turns{deviation}.")
    elif counts:
        said.append("One run of each row.")
    if table.modelled:
        said.append("Modelled: a program serves the file with the times of such a device.")
    if table.facts.get("form") == "quick":
        said.append("Quick form: small trees, few runs.")
    said += [UNSTABLE_WORDS] * any(figure and figure.unstable for figure in every)
    return [*said, f"Repeat: `bench/run {table.suite} --only '^{table.key}$'`."]


def sources(table: TableResult) -> list[str]:
    """Returns who published the tables that a table repeats."""
    found = []
    for name in table.published.replace(",", " ").split():
        try:
            found.append(f"Published table {name}: {published.source(name).rstrip('.')}.")
        except LookupError:
            found.append(f"Published table {name}.")
    return found


def commands(table: TableResult) -> list[tuple[str, str]]:
    """Returns names of rows and their command lines, where they are known."""
    names = label_names(table)
    return [(named(row, names), row.command) for row in table.rows if row.command]


def dominated(table: TableResult, x: str, y: str, rows: Iterable[RowResult] | None = None) -> set[int]:
    """Returns the ids of the rows to which another is at least equal in both columns, and better in one."""
    signs = [-1 if column(table, key).best == "more" else 1 for key in (x, y)]
    points = {}
    for row in table.rows if rows is None else rows:
        values = row.median(x), row.median(y)
        if values[0] is not None and values[1] is not None:
            points[id(row)] = (signs[0] * values[0], signs[1] * values[1])
    every = list(points.values())
    return {one for one, (a, b) in points.items() if any(c <= a and d <= b and (c, d) != (a, b) for c, d in every)}
