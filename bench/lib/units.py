"""Numbers as readers see them: three digits, one unit a column, thousands separated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Units of seconds, from the largest; the first that a column's median reaches is its unit.
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


@dataclass(frozen=True)
class Unit:
    """A unit and its size in SI base units."""

    name: str
    size: float
    # Counts of anything are whole numbers, if they are.
    whole: bool = False

    def cell(self, value: float) -> str:
        """Returns a number without its unit."""
        value /= self.size
        return f"{value:,.0f}" if self.whole and value == round(value) else digits(value)

    def tick(self, value: float) -> str:
        """Returns a round number of an axis, as short as it is."""
        value = round(value / self.size, 9)
        return f"{value:,.0f}" if value == round(value) else f"{value:g}"

    def like(self, value: float, pattern: str) -> str:
        """Returns a number with as many decimals as another one has: a deviation beside its median."""
        return f"{value / self.size:,.{len(pattern.partition('.')[2])}f}"

    def shown(self, value: float) -> str:
        """Returns a number with its unit."""
        return f"{self.cell(value)} {self.name}".strip() if self.name[:1] != "/" else f"{self.cell(value)}{self.name}"


def digits(value: float) -> str:
    """Returns at least three significant digits, without an exponent down to a millionth."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    # Rounded first: 9.999 is 10.0, not 10.00.
    exponent = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:,.{max(0, 2 - exponent)}f}" if exponent >= -6 else f"{value:.2e}"


def unit(name: str) -> Unit:
    """Returns a unit by its name: "MiB/s", "%", "us", "/s". What is unknown counts as itself."""
    base, slash, rest = name.partition("/")
    for second, size in _SECONDS:
        if base == second and not slash:
            return Unit(name, size)
    if base == "%":
        return Unit(name, 0.01)
    if base[:1] in _PREFIXES and base[1:] in ("B", "iB", "bit"):
        power = "KMGT".index(base[0].upper()) + 1
        size = 1024.0**power if base[1:] == "iB" else _PREFIXES[base[0]]
        return Unit(name, size / 8 if base.endswith("bit") else size)
    return Unit(name, 1.0, whole=not slash)


def fitting(values: Iterable[float], name: str) -> Unit:
    """Returns the unit of a column: seconds become smaller ones if the median is small."""
    found = [abs(value) for value in values if value]
    if name != "s" or not found:
        return unit(name)
    middle = statistics.median(found)
    return next((Unit(*pair) for pair in _SECONDS if middle >= pair[1]), Unit(*_SECONDS[-1]))


def show(value: float, name: str) -> str:
    """Returns one number with the unit that fits it, for sentences: "1.23 ms", "37.8 %"."""
    return fitting([value], name).shown(value)


def times(ratio: float) -> str:
    """Returns a ratio: "×1.23"."""
    return f"×{digits(ratio)}"
