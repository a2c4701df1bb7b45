#!/usr/bin/env python3
"""Derives published figures again from one another, and fails if one contradicts another in a way that is not known.

A figure contradicts a relation if no value that would be printed like it, rounded or cut, satisfies the relation.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from lib.published import FOLDER, Line, line, load, names
from published.derive import b1, b2, builds, change, lists, reads, wall

SUITES = "backup fio memory amplification saving strategies launch formats dataset lslr build".split()
FIGURE = r"\d+(?:[.,]\d+)+"  # not short whole numbers: they are everywhere
TREES_KIB = {"B1": 3797448, "B2": 3909512}

# The oddities of the sources. Each must be found: what is not found is no oddity.
KNOWN = {
    "B1 row 1: ratio": "the size gives 37.83 %",
    "B1 row 3: ratio": "the size gives 39.34 %",
    "B1 row 7: ratio": "the size gives 48.87 %",
    "B1 row 6: ratio near that of B2": "row 30 of B2 has 57.20 %: one of the two is not what it says",
    "B2 row 33: slower than smaller blocks": "a digit of the time is missing",
    "C random read Btrfs: rate": "7923 requests of 4 KiB are 30.95 MiB/s",
    "U1 erofs 4: stat of all": "five times its neighbours",
    "claim 10: each over 2 %": "level 1 gains 1.5 %",
    "claim 12: under 5 %": "squashfs lz4hc gains 18.5 %",
}

Relations = Iterator[tuple[str, bool]]  # a relation, and True if it holds


def span(row: Line, key: str, times: float = 1) -> tuple[float, float]:
    """Returns the least and the greatest value that is printed like this, in the printed unit."""
    text = row.printed[key]
    last = 10.0 ** -len(text.partition(".")[2])
    return (float(text) - last / 2) * times, (float(text) + last) * times


def meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """True if two spans have a value in common."""
    return one[0] <= other[1] and other[0] <= one[1]


def backup() -> Relations:
    """Derives ratios and rates of B1 and B2, and compares rows that differ in one option."""
    for name, tree in TREES_KIB.items():
        for row in load(name).lines:
            place, wall_s = f"{name} row {row.labels['row']}", span(row, "wall_s")
            yield f"{place}: ratio", meet(span(row, "ratio"), span(row, "size_bytes", 100 / tree))
            yield f"{place}: rate", meet(span(row, "rate"), (tree / wall_s[1], tree / wall_s[0]))
    for one, other in zip(range(1, 8), [12, 9, 6, 3, 18, 30, 27], strict=True):
        yield f"B1 row {one}: ratio near that of B2", abs(b1(one, "ratio") - b2(other, "ratio")) < 0.03
    for n in (n for n in range(2, 37) if n % 3 != 1):
        yield f"B2 row {n}: smaller than smaller blocks", change(n - 1, n) < 0
        if line("B2", row=n).labels["compressor"] == "lz4hc":
            yield f"B2 row {n}: slower than smaller blocks", b2(n) > b2(n - 1)
    for more, less in [*((n + 6, n) for n in range(13, 19)), *((n, n + 6) for n in range(25, 31))]:
        yield f"B2 row {less}: smaller than row {more}", change(more, less) < 0
    yield "claim 10: each over 2 %", all(change(n, n + 1) < -2 for n in (2, 5, 8))
    yield "claim 12: under 5 %", all(change(n, n + 2) > -5 for n in (13, 25))


def others() -> Relations:
    """Derives rates of C, and looks at the orders within M and U."""
    for row in load("C").lines:
        rate = span(row, "iops", int(row.labels["block"]) / 1024)
        yield f"C {row.labels['line']} {row.labels['system']}: rate", meet(span(row, "rate"), rate)
    for row in load("M1").lines + load("M2").lines:
        v, place = row.values, f"M {row.labels['stack']} {row.labels['caches']}"
        yield f"{place}: CPU time within wall time", v["user_s"] + v["system_s"] <= v["wall_s"]
        if "least_s" in v:
            yield f"{place}: mean within its range", v["least_s"] <= v["wall_s"] <= v["most_s"]
    for name in ("U1-sizes", "U2"):
        for system in ("erofs", "squashfs"):
            sizes = [row.values["size_bytes"] for row in load(name).lines if row.labels["system"] == system]
            yield f"{name} {system}: smaller with larger units", sizes == sorted(sizes, reverse=True)
    stat = {row["block"]: wall("U1", system="erofs", block=row["block"], test="stat of all") for row in blocks()}
    for block in ("not compressed", "4"):
        yield f"U1 erofs {block}: stat of all", stat[block] < 3 * stat["128"]


def blocks() -> list[dict[str, str]]:
    """Returns the labels of the images of EROFS in table U1."""
    return [row.labels for row in load("U1").lines if row.labels["system"] == "erofs"]


def claims() -> Relations:
    """Compares the figures of claims with those that are derived again, and with those that are printed."""
    told = tomllib.loads((FOLDER / "claims.toml").read_text(encoding="utf-8"))["claim"]
    yield "claims.toml: numbers 1 to 126", [claim["number"] for claim in told] == list(range(1, 127))
    known = {cell.lstrip("-") for name in names() for row in load(name).lines for cell in row.printed.values()}
    said = {claim["number"]: f"{claim['theirs']} {claim.get('against', '')}" for claim in told}
    for number, text in [*builds(), *reads(), *lists()]:
        yield f"claim {number}: says {text!r}", text in said[number]
        known |= set(re.findall(FIGURE, text))
    for claim in told:
        number = claim["number"]
        yield f"claim {number}: suite", claim["suite"] in SUITES
        yield f"claim {number}: source", any(name.startswith(claim["source"]) for name in names())
        for figure in re.findall(FIGURE, said[number]):
            yield f"claim {number}: {figure} is printed", figure.replace(",", "") in known


def main() -> int:
    """Prints contradictions; returns 1 if one is not known, or if a known one is not there."""
    relations = [*backup(), *others(), *claims()]
    failed = {relation for relation, holds in relations if not holds}
    for relation in sorted(failed & set(KNOWN)):
        print(f"known: {relation}: {KNOWN[relation]}")
    for relation in sorted(failed - set(KNOWN)):
        print(f"CONTRADICTION: {relation}")
    for relation in sorted(set(KNOWN) - failed):
        print(f"NO ODDITY: {relation}: {KNOWN[relation]}")
    print(f"{len(relations)} relations, {len(failed)} do not hold")
    return int(failed != set(KNOWN))


if __name__ == "__main__":
    sys.exit(main())
