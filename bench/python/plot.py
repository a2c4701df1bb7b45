#!/usr/bin/env python3
"""Samples a second against the number of workers, as SVG, from a JSON file of `run.py`. Legible on light and on dark
ground.

`plot.py FILE 'I workers' out.svg`
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 232, 48, 52  # margins; the names of the lines stand at the right
# Of the lines, in their order, on light and on dark ground: hues that differ for the colour-blind. Lines beyond these
# are dashed.
COLOURS = [
    ("#bc4c00", "#f0883e"),
    ("#0969da", "#58a6ff"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#bc8cff"),
    ("#bf3989", "#f778ba"),
    ("#57606a", "#8b949e"),
]
TEXT, QUIET, GRID = ("#1f2328", "#f0f6fc"), ("#59636e", "#9198a1"), ("#d1d9e0", "#3d444d")
NAME_STEP = 16  # least distance of two names


@dataclass(frozen=True)
class Line:
    """A contestant: samples a second by number of workers."""

    label: str
    points: list[tuple[int, float]]


def lines_of(document: dict[str, Any], case_name: str) -> list[Line]:
    """The contestants of a case with workers that ran. Raises KeyError if there is no such case."""
    case = next((case for case in document["cases"] if case["name"] == case_name), None)
    if case is None:
        raise KeyError(f"no case {case_name!r}: there are {', '.join(case['name'] for case in document['cases'])}")
    points: dict[str, list[tuple[int, float]]] = {}
    for row in case["rows"]:
        if row.get("workers") is not None and not row["reason"]:
            points.setdefault(row["label"], []).append((row["workers"], row["median"]["samples_per_s"]))
    return [Line(label, sorted(found)) for label, found in points.items()]


def ticks(top: float) -> list[float]:
    """About five round numbers from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def number(value: float) -> str:
    """`12,500`."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}"


def spread(wanted: list[float], lowest: float, highest: float) -> list[float]:
    """Places near the `wanted` ones, `NAME_STEP` apart, in the same order from top to bottom, between two bounds if
    there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    before = lowest - NAME_STEP
    for i in order:
        before = placed[i] = max(wanted[i], before + NAME_STEP)
    after = highest + NAME_STEP
    for i in reversed(order):
        after = placed[i] = min(placed[i], after - NAME_STEP)
    return placed


def style() -> str:
    """Colours by class; the dark ones where the reader asks for dark."""

    def rules(shade: int) -> str:
        parts = [f".t{{fill:{TEXT[shade]}}}.q{{fill:{QUIET[shade]}}}.g{{stroke:{GRID[shade]}}}"]
        parts += [f".l{i}{{stroke:{pair[shade]}}}.f{i}{{fill:{pair[shade]}}}" for i, pair in enumerate(COLOURS)]
        return "".join(parts)

    dark = f"@media(prefers-color-scheme:dark){{{rules(1)}}}"
    return f"<style>text{{font:12px system-ui,sans-serif}}{rules(0)}{dark}</style>"


def text(words: str, x: float, y: float, kind: str = "q", more: str = 'text-anchor="middle"') -> str:
    """Words at a place; `kind` is the class of their colour."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def rule(kind: str, start: tuple[float, float], end: tuple[float, float], width: float) -> str:
    """A straight line."""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke-width="{width}"/>'


@dataclass(frozen=True)
class Scale:
    """Coordinates of numbers of workers and samples per second in the picture."""

    workers: list[int]
    marks: list[float]  # of the vertical axis, from 0

    def x(self, count: int) -> float:
        """Numbers of workers stand at equal distances."""
        last = len(self.workers) - 1
        part = self.workers.index(count) / last if last else 0.5
        return LEFT + (WIDTH - LEFT - RIGHT) * part

    def y(self, rate: float) -> float:
        """From 0 at the bottom."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - rate / self.marks[-1])


def svg(title: str, lines: list[Line]) -> str:
    """The picture. Raises ValueError without lines."""
    if not lines:
        raise ValueError(f"{title}: no contestant ran with workers")
    counts = sorted({count for line in lines for count, _ in line.points})
    scale = Scale(counts, ticks(max(rate for line in lines for _, rate in line.points)))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    parts = [f'{head} aria-label="{escape(title)}">', style(), text(title, LEFT, 24, "t", 'font-weight="600"')]
    parts += axes(scale)
    names = spread([scale.y(line.points[-1][1]) for line in lines], TOP, HEIGHT - BOTTOM)
    for i, (line, name_y) in enumerate(zip(lines, names, strict=True)):
        parts += drawn(line, i, name_y, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def axes(scale: Scale) -> list[str]:
    """Grid and numbers."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for mark in scale.marks:
        parts.append(rule("g", (LEFT, scale.y(mark)), (right, scale.y(mark)), 1))
        parts.append(text(number(mark), LEFT - 8, scale.y(mark) + 4, more='text-anchor="end"'))
    parts += [text(str(count), scale.x(count), bottom + 20) for count in scale.workers]
    return [*parts, text("workers (0: the main process reads)", (LEFT + right) / 2, HEIGHT - 12)]


def drawn(line: Line, i: int, name_y: float, scale: Scale) -> list[str]:
    """A line, its points with what they say, and its name at the right."""
    colour, beyond = i % len(COLOURS), i // len(COLOURS)
    dash = f' stroke-dasharray="{4 + 2 * beyond} 4"' if beyond else ""
    way = " ".join(f"{scale.x(count):.1f},{scale.y(rate):.1f}" for count, rate in line.points)
    parts = [f'<polyline class="l{colour}" points="{way}" fill="none" stroke-width="2"{dash}/>']
    for count, rate in line.points:
        tip = f"<title>{escape(line.label)}, {count} workers: {number(rate)} samples/s</title>"
        place = f'cx="{scale.x(count):.1f}" cy="{scale.y(rate):.1f}" r="3.5"'
        parts.append(f'<circle class="f{colour}" {place}>{tip}</circle>')
    count, rate = line.points[-1]
    right = WIDTH - RIGHT
    parts.append(rule(f"l{colour}", (scale.x(count) + 5, scale.y(rate)), (right + 16, name_y), 0.75))
    return [*parts, text(line.label, right + 20, name_y + 4, "t", "")]


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="JSON", help="written by run.py --out")
    parser.add_argument("case", help="such as 'I workers'")
    parser.add_argument("out", type=Path, metavar="SVG")
    arguments = parser.parse_args()
    document = json.loads(arguments.file.read_text())
    sets = {case["name"]: document["sets"][case["set"]] for case in document["cases"]}
    lines = lines_of(document, arguments.case)
    about = sets[arguments.case]
    what = f"set {about['name']}: {about['files']:,} files, {about['bytes'] / 1e9:.2f} GB"
    title = f"Samples per second, {what}, shuffled, page cache warm"
    arguments.out.write_text(svg(title, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
