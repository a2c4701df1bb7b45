#!/usr/bin/env python3
"""Derives published figures again from one another, and fails if one contradicts another in a way that is not known.

A figure contradicts a relation if no value that would be printed as it is (rounded or cut) satisfies it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from lib import published
from lib.published import Line, line, load

SOURCES = "B P C D M U".split()
SUITES = "backup fio memory amplification saving strategies launch formats dataset lslr build".split()
TREES_KIB = {"B1": 3797448, "B2": 3909512}

# The oddities of the sources. Each must be found, or it is an oddity no longer.
KNOWN = {
    "B1 row 1: ratio": "the size gives 37.83 %",
    "B1 row 3: ratio": "the size gives 39.34 %",
    "B1 row 7: ratio": "the size gives 48.87 %",
    "B1 row 6: ratio near B2's": "row 30 of B2 has 57.20 %: one of them is not what it says",
    "B2 row 33: slower than smaller blocks": "a digit of the time is missing",
    "C random read Btrfs: rate": "7923 requests of 4 KiB are 30.95 MiB/s",
    "U1 erofs 4: stat of all": "five times its neighbours",
}

Found = Iterator[tuple[str, bool]]  # a relation, and True if it holds


def span(line: Line, key: str) -> tuple[float, float]:
    """Returns the least and the greatest value that is printed like this, in the unit that is printed."""
    text = line.printed[key]
    unit = 10.0 ** -len(text.partition(".")[2])
    return float(text) - unit / 2, float(text) + unit


def meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """True if two spans have a value in common."""
    return one[0] <= other[1] and other[0] <= one[1]


def backup() -> Found:
    """Derives ratios and rates of B1 and B2 and compares rows that differ in one option."""
    for name, tree in TREES_KIB.items():
        for row in load(name).lines:
            size, wall = span(row, "size_bytes"), span(row, "wall_s")
            place = f"{name} row {row.labels['row']}"
            yield f"{place}: ratio", meet(span(row, "ratio"), (100 * size[0] / tree, 100 * size[1] / tree))
            yield f"{place}: rate", meet(span(row, "rate"), (tree / wall[1], tree / wall[0]))
    for row, other in zip([1, 2, 3, 4, 5, 6, 7], [12, 9, 6, 3, 18, 30, 27], strict=True):
        apart = abs(line("B1", row=row).values["ratio"] - line("B2", row=other).values["ratio"])
        yield f"B1 row {row}: ratio near B2's", apart < 0.03
    rows = {int(row.labels["row"]): row for row in load("B2").lines}
    for small, large in ((one, one + 1) for one in rows if one % 3):
        yield f"B2 row {large}: smaller than smaller blocks", size_of(rows[large]) < size_of(rows[small])
        if rows[small].labels["compressor"] == "lz4hc":
            slower = rows[large].values["wall_s"] > rows[small].values["wall_s"]
            yield f"B2 row {large}: slower than smaller blocks", slower
    for more, less in [*((n + 6, n) for n in range(13, 19)), *((n, n + 6) for n in range(25, 31))]:
        yield f"B2 row {less}: smaller than row {more}", size_of(rows[less]) < size_of(rows[more])


def others() -> Found:
    """Derives rates of C, gains of P, and the orders within M and U."""
    for row in load("C").lines:
        rate = tuple(value * int(row.labels["block"]) / 1024 for value in span(row, "iops"))
        yield f"C {row.labels['line']} {row.labels['system']}: rate", meet(span(row, "rate"), (rate[0], rate[1]))
    for name in ("M1", "M2"):
        for row in load(name).lines:
            v, place = row.values, f"{name} {row.labels['stack']} {row.labels['caches']}"
            yield f"{place}: CPU time within wall time", v["user_s"] + v["system_s"] <= v["wall_s"]
            if name == "M1":
                yield f"{place}: mean within its range", v["least_s"] <= v["wall_s"] <= v["most_s"]
                yield f"{place}: deviation within its range", v["deviation_s"] <= v["most_s"] - v["least_s"]
    for caches in ("dropped", "warm"):
        one, again = (line(name, stack="composefs", caches=caches) for name in ("M1", "M3"))
        yield f"M3 composefs {caches}: as in M1", meet(span(one, "wall_s"), span(again, "wall_s"))
    for name in ("U1-sizes", "U2"):
        for system in ("erofs", "squashfs"):
            sizes = [size_of(row) for row in load(name).lines if row.labels["system"] == system]
            yield f"{name} {system}: larger units, smaller sizes", sizes == sorted(sizes, reverse=True)
    for small in ("not compressed", "4"):
        row, large = (line("U1", system="erofs", block=block, test="stat of all") for block in (small, "128"))
        yield f"U1 erofs {small}: stat of all", row.values["wall_s"] < 3 * large.values["wall_s"]
    inline, handed = (line("P", case=case).values["value"] for case in ("in the reader's thread", "handed over"))
    gain = line("P", quantity="gain of decoding in the reader's thread")
    yield "P: gain of decoding in the reader's thread", meet(span(gain, "value"), (100 * (inline / handed - 1),) * 2)


def size_of(row: Line) -> float:
    """Returns the size of an image in bytes."""
    return row.values["size_bytes"]


def figures() -> dict[int, list[str]]:
    """Returns what the figures of claims say when they are derived again, by number of claim."""
    b1, b2 = ({int(row.labels["row"]): row.values for row in load(name).lines} for name in ("B1", "B2"))
    size, wall = ({n: row[key] for n, row in b2.items()} for key in ("size_bytes", "wall_s"))
    rates = {row.labels["system"]: row.values["rate"] for row in load("D").lines if row.labels["system"] != "squashfs"}
    nothing, metadata = (line("D", system="squashfs", options=f"{o} compressed").values["rate"] for o in ("nothing", "metadata"))
    stacks = {caches: [row.values["wall_s"] for row in load("M1").lines if row.labels["caches"] == caches] for caches in ("dropped", "warm")}
    cold, warm = (stacks[caches] for caches in ("dropped", "warm"))
    bare, stacked = ([line("M2", stack=s, caches=c).values["wall_s"] for c in ("dropped", "warm")] for s in ("erofs", "overlayfs + erofs"))
    lines = {name: [row.values["iops"] for row in load("C").lines if row.labels["line"] == name] for name in ("sequential read", "sequential write", "random read")}
