"""Published figures: the tables of `published/*.tsv`, in which each figure is typed once, as it was printed.

A file begins with comments, `# key: text`, which `#   text` continues; `# source:` must be there. Then comes a header.
A column `system` is a label; `wall_s:ms` holds figures in milliseconds and is read as `wall_s` in seconds; the figures
of `value:=unit` have their units in the column `unit`. A figure `-` was not printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "published"
UNITS = {  # factors to SI base units, bytes and shares
    "": 1.0, "/s": 1.0, "x": 1.0, "%": 0.01, "s": 1.0, "ms": 1e-3, "us": 1e-6, "B": 1.0, "bytes": 1.0, "KB": 1e3,
    "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "EiB": 2.0**60,
    "MB/s": 1e6, "KiB/s": 2.0**10, "MiB/s": 2.0**20,
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    labels: dict[str, str]
    values: dict[str, float]
    printed: dict[str, str]  # figures as they were typed


@dataclass(frozen=True)
class Published:
    """A table and what its comments say of it."""

    about: dict[str, str]
    labels: list[str]
    lines: list[Line]


def row(table: str, **labels: object) -> dict[str, float]:
    """Returns the figures of the one row with these labels, by key of column. Raises LookupError."""
    return dict(line(table, **labels).values)


def line(table: str, **labels: object) -> Line:
    """Returns the one row with these labels; a `_` in a name stands for a space. Raises LookupError."""
    published, wanted = load(table), {name.replace("_", " "): str(value) for name, value in labels.items()}
    if unknown := set(wanted) - set(published.labels):
        raise LookupError(f"published/{table}.tsv: no label {unknown.pop()!r}; its labels are {published.labels}")
    found = [line for line in published.lines if wanted.items() <= line.labels.items()]
    if len(found) != 1:
        raise LookupError(f"published/{table}.tsv: {len(found)} rows have {labels}, not one")
    return found[0]


def table(table: str) -> list[dict[str, str | float]]:
    """Returns all rows of a table, labels and figures by name of column."""
    return [{**line.labels, **line.values} for line in load(table).lines]


def source(table: str) -> str:
    """Returns who published a table, when and where."""
    return load(table).about["source"]


def names() -> list[str]:
    """Returns the names of all tables."""
    return sorted(file.stem for file in FOLDER.glob("*.tsv"))


@cache
def load(name: str) -> Published:
    """Reads a table. Raises LookupError if there is none, and ValueError with file and line if it is not right."""
    if not (file := FOLDER / f"{name}.tsv").is_file():
        raise LookupError(f"published/{name}.tsv is not there; there are {', '.join(names())}")
    published = Published({}, [], [])
    header: list[tuple[str, str, str]] = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            if text.startswith("#"):
                _comment(text[1:], published.about)
            elif header:
                published.lines.append(_line(text.split("\t"), header, published.lines))
            else:
                header = [cell.partition(":") for cell in text.split("\t")]
                published.labels.extend(key for key, colon, _ in header if not colon)
        except ValueError as error:
            raise ValueError(f"published/{name}.tsv: line {number}: {error}") from error
    if "source" not in published.about or not published.lines:
        raise ValueError(f"published/{name}.tsv: no source or no rows")
    return published


def _comment(text: str, about: dict[str, str]) -> None:
    key, colon, words = text.strip().partition(": ")
    if text.startswith("   ") and about:
        about[list(about)[-1]] += f" {text.strip()}"
    elif not colon or key in about:
        raise ValueError("not `# key: text` with a new key")
    else:
        about[key] = words


def _line(cells: list[str], header: list[tuple[str, str, str]], before: list[Line]) -> Line:
    if len(cells) != len(header):
        raise ValueError(f"{len(cells)} cells, the header has {len(header)}")
    named = list(zip(header, cells, strict=True))
    labels = {key: cell for (key, colon, _), cell in named if not colon}
    printed = {key: cell for (key, colon, _), cell in named if colon}
    if any(line.labels == labels for line in before):
        raise ValueError(f"another row has the labels {labels}")
    values = {}
    for (key, colon, unit), cell in named:
        unit = labels.get(unit[1:], unit) if unit.startswith("=") else unit
        if colon and cell != "-":
            try:
                values[key] = float(cell) * UNITS[unit]
            except (KeyError, ValueError):
                raise ValueError(f"{key}: {cell!r} is no number, or {unit!r} no unit") from None
    return Line(labels, values, printed)
