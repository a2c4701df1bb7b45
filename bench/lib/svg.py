"""Parts of plots as SVG: legible on light and dark ground, by the colour-blind, and at a width of 400 pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 480  # of the coordinates; text of 13 is then 10 pixels high on a phone
SHOWN_WIDTH = 600  # of a picture on a wide page
FONT = 13
STEP = 16  # from one line of text to the next
# Colours on light and on dark ground. The first is kiln's alone; all differ in lightness or hue for the colour-blind.
COLOURS = (
    ("#c44e00", "#ff9147"),
    ("#0b5cad", "#5aa9f5"),
    ("#00846b", "#38cfa9"),
    ("#a33a80", "#ef93cb"),
    ("#4ea1d8", "#b5dcf8"),
    ("#7a6000", "#dcba3f"),
    ("#5b6570", "#9aa5b1"),
)
# By class: text, quiet text, rules, plain bars.
OTHERS = {
    "t": ("#1f2328", "#f0f6fc"),
    "q": ("#59636e", "#9198a1"),
    "g": ("#d8dee4", "#3d444d"),
    "p": ("#8c959f", "#656c76"),
}


def style(scheme: str = "both") -> str:
    """Returns the rules of all plots. `scheme`: "light", "dark", or "both", as the reader's system asks."""

    def rules(shade: int) -> str:
        named = OTHERS | {f"c{number}": pair for number, pair in enumerate(COLOURS)}
        return "".join(f".plot .{name}{{color:{pair[shade]}}}" for name, pair in named.items())

    shared = f".plot text{{font:{FONT}px system-ui,sans-serif;fill:currentColor}}.plot .b{{font-weight:600}}"
    if scheme != "both":
        return shared + rules(int(scheme == "dark"))
    return f"{shared}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}"


def wide(words: str, *, bold: bool = False) -> float:
    """Width of words, as much as they take in a wide font."""
    sizes = (4.9 if c in "iljtfr.,:;|'() " else 12.5 if c in "mwMW%@" else 9.2 if c.isupper() else 8.3 for c in words)
    return sum(sizes) * (1.12 if bold else 1)


def fitted(words: str, width: float, *, bold: bool = False) -> str:
    """Returns words, cut where they would not fit."""
    if wide(words, bold=bold) <= width:
        return words
    while words and wide(words + "…", bold=bold) > width:
        words = words[:-1]
    return words.rstrip(" ·,") + "…"


@dataclass
class Canvas:
    """Parts of a picture, and where they end."""

    parts: list[str] = field(default_factory=list)
    bottom: float = 0.0

    def text(self, words: str, x: float, y: float, kind: str = "t", anchor: str = "start") -> None:
        """Writes words; `kind` is the class of their colour."""
        place = f'x="{x:.1f}" y="{y:.1f}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
        self.parts.append(f'<text class="{kind}" {place}>{escape(words)}</text>')
        self.bottom = max(self.bottom, y + 4)

    def line(self, kind: str, places: Sequence[tuple[float, float]], width: float = 1, dash: str = "") -> None:
        """Draws a line through places."""
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        more = f' stroke-dasharray="{dash}"' if dash else ""
        shape = f'points="{way}" fill="none" stroke="currentColor" stroke-width="{width}"{more}'
        self.parts.append(f'<polyline class="{kind}" {shape}/>')
        self.bottom = max(self.bottom, *(y for _, y in places))

    def bar(self, kind: str, x: float, y: float, width: float, height: float, tip: str) -> None:
        """Draws a bar with words that a pointer shows."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        shown = f"<title>{escape(tip)}</title>"
        self.parts.append(f'<rect class="{kind}" {place} rx="2" fill="currentColor">{shown}</rect>')
        self.bottom = max(self.bottom, y + height)

    def point(self, kind: str, x: float, y: float, tip: str, *, hollow: bool = False, size: float = 4) -> None:
        """Draws a point with words that a pointer shows."""
        fill = 'fill="none" stroke="currentColor" stroke-width="1.5"' if hollow else 'fill="currentColor"'
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{size}"'
        self.parts.append(f'<circle class="{kind}" {place} {fill}><title>{escape(tip)}</title></circle>')


@dataclass(frozen=True)
class Axis:
    """Places of values between two ends. `low` and `high` are in units of `size`, in which ticks are round."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    size: float = 1.0

    @classmethod
    def over(
        cls, values: Iterable[float], ends: tuple[float, float], log: bool, size: float, *, zero: bool = True
    ) -> Axis:
        """Returns an axis that holds all values; a logarithmic one holds those above zero."""
        found = sorted(value / size for value in values if not log or value > 0)
        if not found:
            return cls(0, 1, *ends)
        low, high = found[0], found[-1]
        if log:
            low, high = _round_log(low, up=False), _round_log(high, up=True)
            return cls(low, high if high > low else low * 10, *ends, True, size)
        if zero or low == high:
            low, high = min(0.0, low), max(0.0, high) or 1.0
        else:
            low, high = max(0.0, low - (high - low) * 0.08), high + (high - low) * 0.08
        step = _step(high - low)
        return cls(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, *ends, size=size)

    def at(self, value: float) -> float:
        """Returns the place of a value; what lies beyond an end is drawn there."""
        value /= self.size
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, part))

    def ticks(self) -> list[float]:
        """Returns values that are round in the unit, at most seven or eight."""
        return [tick * self.size for tick in self._ticks()]

    def _ticks(self) -> list[float]:
        if not self.log:
            step = _step(self.high - self.low)
            return [self.low + step * number for number in range(round((self.high - self.low) / step) + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        inside = [value for value in every if self.low * 0.999 <= value <= self.high * 1.001]
        if len(inside) <= 7:
            return inside
        skip = math.ceil((last - first) / 6)
        return [10.0**p for p in range(first, last + 1, skip) if self.low * 0.999 <= 10.0**p <= self.high * 1.001]


def _step(length: float) -> float:
    power = 10.0 ** math.floor(math.log10(length / 5))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= length / 5 * 0.999)


def _round_log(value: float, *, up: bool) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * factor for factor in (1, 2, 5, 10)]
    return next(s for s in steps if s >= value * 0.999) if up else [s for s in steps if s <= value * 1.001][-1]


def spread(wanted: Sequence[float], low: float, high: float, step: float = STEP) -> list[float]:
    """Returns places near the wanted ones, a step apart, in the same order, between two bounds if there is room."""
    order = sorted(range(len(wanted)), key=lambda number: wanted[number])
    placed, before, after = [0.0] * len(wanted), low - step, high + step
    for number in order:
        before = placed[number] = max(wanted[number], before + step)
    for number in reversed(order):
        after = placed[number] = min(placed[number], after - step)
    return placed
