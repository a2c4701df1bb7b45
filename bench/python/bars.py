#!/usr/bin/env python3
"""The bars of the Python package: which quotients kilnfs is to keep, and whether a JSON file of `run.py` keeps them.

`bars.py FILE...` prints each bar with both figures; figures of later files replace those of earlier ones. A bar of
which a figure is missing says which. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

import lib  # noqa: E402
from cases import (  # noqa: E402
    DIRECTORY,
    FLOOR,
    INDEX,
    INDEXED,
    LISTED,
    LMDB,
    LMDB_VIEWS,
    LMDB_ZSTD,
    LMDB_ZSTD_MANY,
    NOTHING,
    OPEN,
    PACKED_MANY,
    RATARMOUNT,
    SCAN,
    SMALL_MANY,
    SQUASHFS,
    STORED_BY_URL,
    STORED_MANY,
    STORED_VIEWS,
    ZIP,
    ZSTD_MANY,
    ZSTD_MAPPED,
)

MIB = 1 << 20


class Absent(Exception):
    """A figure that a bar needs is not there; the message says which and why."""


@dataclass(frozen=True)
class Figures:
    """Contents of files written by `run.py`."""

    cases: dict[str, dict[str, Any]]
    containers: dict[tuple[str, str], dict[str, Any]]  # by set and label
    files: dict[str, int]  # of each set

    def of(self, case: str, label: str, *names: str) -> float:
        """A median of a contestant in a case. Raises Absent."""
        if case not in self.cases:
            raise Absent(f"case {case!r} was not run")
        row = next((row for row in self.cases[case]["rows"] if row["label"] == label), None)
        if row is None or row["reason"]:
            raise Absent(f"{label}: {row['reason'] if row else 'not in the case'}")
        value: Any = row["median"]
        for name in names:
            value = value.get(name)
            if value is None:
                raise Absent(f"{label}: no {' '.join(names)}")
        return float(value)

    def size(self, of_set: str, label: str) -> float:
        """Bytes on the disk of a container. Raises Absent."""
        one = self.containers.get((of_set, label), {})
        if one.get("bytes") is None:
            raise Absent(f"{label}, set {of_set}: {one.get('missing') or one.get('failed') or 'not built'}")
        return float(one["bytes"])


@dataclass(frozen=True)
class Bar:
    """A quotient, or a figure by itself, and its limit."""

    case: str
    ours: str  # in words, as in the table
    peer: str
    figures: Callable[[Figures], tuple[float, float | None]]  # ours, the peer's
    limit: float
    most: bool = False  # the limit is the most that is allowed, else the least
    unit: str = ""
    difference: bool = False  # ours minus the peer's, not the quotient

    def value(self, figures: Figures) -> tuple[float, float | None, float]:
        """Our figure, the peer's, and what is held against the limit. Raises Absent."""
        ours, theirs = self.figures(figures)
        if theirs is None:
            return ours, None, ours
        if self.difference:
            return ours, theirs, ours - theirs
        if theirs == 0:
            raise Absent(f"{self.peer}: zero")
        return ours, theirs, ours / theirs

    def kept(self, value: float) -> bool:
        """Return True if a value is within the bar."""
        return value <= self.limit if self.most else value >= self.limit


def rate(case: str, ours: str, theirs: str, limit: float, words: str = "", peers_case: str = "") -> Bar:
    """A bar of samples a second."""

    def figures(known: Figures) -> tuple[float, float | None]:
        return known.of(case, ours, "samples_per_s"), known.of(peers_case or case, theirs, "samples_per_s")

    return Bar(
        case, ours + words, f"{theirs} ({peers_case})" if peers_case else theirs, figures, limit, unit="samples/s"
    )


def pair(name: str, case: str, ours: str, theirs: str, limit: float) -> Bar:
    """The most of a number of a special case, in units of another row's."""
    return Bar(
        case,
        ours,
        theirs,
        lambda known: (known.of(case, ours, name), known.of(case, theirs, name)),
        limit,
        most=True,
        unit=name.rpartition("_")[2],
    )


def private(method: str, limit_mib: float) -> Bar:
    """The most that a worker has above one without data."""
    case = f"memory of a worker, {method}"

    def figures(known: Figures) -> tuple[float, float | None]:
        return known.of(case, INDEXED, "private_bytes") / MIB, known.of(case, NOTHING, "private_bytes") / MIB

    return Bar(case, INDEXED, NOTHING, figures, limit_mib, most=True, unit="MiB more", difference=True)


def alone(case: str, name: str, scale: float, limit: float, unit: str) -> Bar:
    """The most of a number by itself."""
    return Bar(case, OPEN, "-", lambda known: (known.of(case, OPEN, name) * scale, None), limit, most=True, unit=unit)


def small_files(ours: str) -> list[Bar]:
    """Of set S, for one form of image."""

    def sizes(known: Figures) -> tuple[float, float | None]:
        return known.size("S", ours) / 1e6, known.size("S", LMDB_ZSTD) / 1e6

    rates = [rate(TWO, ours, peer, least) for peer, least in ((DIRECTORY, 2), (LMDB_ZSTD, 1), (LMDB_ZSTD_MANY, 1))]
    return [*rates, Bar("containers of S", ours, LMDB_ZSTD, sizes, 0.65, most=True, unit="MB on disk")]


TOUCHED, SUMMED = "I warm shuffled, touch nothing", "I warm shuffled, sum"
TWO, COLD = "S warm shuffled, sum, two threads", "I cold local shuffle"
SLOW = "I slow 1 ms, local shuffle"

BARS = [
    rate(TOUCHED, STORED_MANY, FLOOR, 0.85),
    rate(SUMMED, STORED_VIEWS, LMDB_VIEWS, 1.0),
    rate(SUMMED, STORED_MANY, LMDB, 0.6),
    rate(SUMMED, STORED_MANY, DIRECTORY, 1.3),
    rate(SUMMED, STORED_MANY, ZIP, 3),
    rate(SUMMED, STORED_MANY, SQUASHFS, 10),
    rate(SUMMED, STORED_MANY, RATARMOUNT, 10),
    # The bars of S belong together: one form of image is to keep them all.
    *small_files(ZSTD_MANY),
    *small_files(ZSTD_MAPPED),
    *small_files(PACKED_MANY),
    *small_files(SMALL_MANY),
    rate(COLD, STORED_MANY, STORED_MANY, 0.9, peers_case="I cold sequential"),
    Bar(
        COLD,
        STORED_MANY,
        "bytes served",
        lambda known: (known.of(COLD, STORED_MANY, "fetched_bytes"), known.of(COLD, STORED_MANY, "bytes")),
        1.05,
        most=True,
        unit="bytes",
    ),
    *(
        rate(case, label, label, 10, peers_case="I slow 1 ms, shuffled")
        for case in (SLOW, f"{SLOW}, windows of 24 MiB")
        for label in (STORED_MANY, STORED_BY_URL)
    ),
    private("fork", 8),
    private("forkserver", 24),
    pair("wall_s", "index of all files", INDEX, SCAN, 0.1),
    pair("private_bytes", "index of all files", INDEX, SCAN, 0.15),
    alone("open", "open_s", 1000, 1, "ms"),
    alone("open", "reads", 1, 3, "reads"),
]
# Printed beside the bars: what a list of paths costs a worker.
BESIDE = [
    pair("private_bytes", f"memory of a worker, {method}", INDEXED, LISTED, float("inf"))
    for method in ("fork", "forkserver")
]


def read_figures(documents: list[dict[str, Any]]) -> Figures:
    """The figures of files, later ones instead of earlier ones."""
    figures = Figures({}, {}, {})
    for document in documents:
        figures.cases.update({case["name"]: case for case in (*document["cases"], *document["special"])})
        figures.containers.update({(one["set"], one["label"]): one for one in document["contestants"]})
        figures.files.update({name: one["files"] for name, one in document["sets"].items()})
    return figures


def verdicts(figures: Figures) -> list[dict[str, Any]]:
    """Each bar with its figures; `kept` is None where one is missing, and `reason` says why."""
    found = []
    for bar in (*BARS, *BESIDE):
        one: dict[str, Any] = {
            "case": bar.case,
            "ours": bar.ours,
            "peer": bar.peer,
            "limit": bar.limit,
            "most": bar.most,
            "unit": bar.unit,
        }
        try:
            ours, theirs, value = bar.value(figures)
            kept = None if bar.limit == float("inf") else bar.kept(value)
            one |= {"our_figure": ours, "peers_figure": theirs, "value": value, "kept": kept, "reason": None}
        except Absent as reason:
            one |= {"kept": None, "reason": str(reason)}
        found.append(one)
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Markdown."""
    rows = []
    for one in found:
        limit = "-" if one["limit"] == float("inf") else f"{'≤' if one['most'] else '≥'} {one['limit']:g}"
        if one["reason"]:
            rows.append(
                [
                    one["case"],
                    one["ours"],
                    one["peer"],
                    "-",
                    "-",
                    one["unit"],
                    "-",
                    limit,
                    f"not measured: {one['reason']}",
                ]
            )
            continue
        theirs = "-" if one["peers_figure"] is None else f"{one['peers_figure']:.5g}"
        kept = {None: "-", True: "yes", False: "NO"}[one["kept"]]
        rows.append(
            [
                one["case"],
                one["ours"],
                one["peer"],
                f"{one['our_figure']:.5g}",
                theirs,
                one["unit"],
                f"{one['value']:.3g}",
                limit,
                kept,
            ]
        )
    return lib.markdown_table(["case", "kilnfs", "against", "ours", "theirs", "of", "value", "bar", "kept"], rows)


def main() -> int:
    """Exit code 1 if a bar is missed, 2 if none could be measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON", help="written by run.py --out")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write the verdicts here")
    arguments = parser.parse_args()
    documents = [json.loads(path.read_text()) for path in arguments.files]
    figures = read_figures(documents)
    found = verdicts(figures)
    sets = ", ".join(f"{name}: {files} files" for name, files in figures.files.items())
    print(f"Sets: {sets}.", table(found), sep="\n\n")
    lib.write_json(arguments.out, {"schema": 1, "kind": "python bars", "verdicts": found})
    return 2 if all(one["kept"] is None for one in found) else int(any(one["kept"] is False for one in found))


if __name__ == "__main__":
    sys.exit(main())
