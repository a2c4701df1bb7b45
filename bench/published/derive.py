"""Figures of claims, derived again from the tables that were published."""

from __future__ import annotations

from collections.abc import Iterator

from lib.published import line, load

FAST = [*range(1, 7), *range(16, 19)]  # rows of B2
BOTH = ("erofs", "squashfs")
OTHERS = ("overlayfs + ext4", "overlayfs + erofs", "overlayfs + direct")
WHEN = ("dropped", "warm")


def b1(row: int, key: str = "wall_s") -> float:
    """Returns a figure of table B1."""
    return line("B1", row=row).values[key]


def b2(row: int, key: str = "wall_s") -> float:
    """Returns a figure of table B2."""
    return line("B2", row=row).values[key]


def change(one: int, other: int, key: str = "size_bytes") -> float:
    """Returns by how many per cent row `other` of B2 differs from row `one`."""
    return percent(b2(other, key), b2(one, key))


def percent(value: float, base: float) -> float:
    """Returns by how many per cent a value differs from another."""
    return 100 * (value / base - 1)


def wall(table: str, **labels: str) -> float:
    """Returns the seconds of a row."""
    return line(table, **labels).values["wall_s"]


def listed(values: list[float], form: str = ".1f") -> str:
    """Returns percentages as claims have them in a row."""
    return ", ".join(f"{value:{form}}" for value in values).replace("-", "−") + " %"


def spread(values: list[float], form: str = "+.1f") -> str:
    """Returns the least and the greatest value as claims have them."""
    return f"{min(values):{form}} to {max(values):{form}}".replace("-", "−")


def builds() -> Iterator[tuple[int, str]]:
    """Yields the figures of claims about tables B1 to B3."""
    yield 1, f"{b1(7) / b1(6):.1f} times"
    yield 2, f"{b1(7) / b1(5):.1f} times"
    yield 2, f"has {b2(27) / b2(15):.1f}."
    yield 3, f"{b2(27) / b2(15):.1f} times"
    yield 6, f"{change(15, 21):.1f} of {change(15, 27):.1f} points"
    yield 7, f"size {spread([change(n + 6, n) for n in range(13, 19)])} %"
    yield 7, f"time {spread([change(n + 6, n, 'wall_s') for n in range(13, 19)], '+.0f')} %"
    yield 9, listed([change(n, n + 2) for n in (1, 4, 7)])
    yield 10, listed([change(n, n + 1) for n in (2, 5, 8)])
    yield 10, f"only {-change(2, 3):.1f} %"
    yield 11, listed([change(n, n + 1) for n in (11, 17, 14)])
    yield 12, f"{-change(13, 15):.1f} %, the most of all; EROFS by {-change(25, 27):.1f} %"
    yield 13, f"{b2(15) / b2(13):.1f} times faster than 1 MiB (squashfs), {b2(27) / b2(25):.1f} times"
    yield 14, f"{spread([b2(n) for n in FAST], '.2f')} s"
    yield 15, f"{spread([change(n, n + 12) for n in range(19, 25)], '.1f')} %"
    yield 16, f"{spread([change(n, n + 18) for n in (14, 15, 17, 18)])} %"
    yield 17, f"{spread([-change(n, n + 6) for n in range(25, 31)], '.1f')} %"
    yield 18, listed([percent(wall("B3", system="erofs"), wall("B3", system="squashfs"))])
    yield 125, f"{100 * b2(9) / b2(12):.0f} % of the time"


def reads() -> Iterator[tuple[int, str]]:
    """Yields the figures of claims about tables C, D, P and U."""
    sizes, rates = (
        [[line("U2", system=s, block=b).values[key] for s in BOTH] for b in ("4", "16", "64", "128")]
        for key in ("size_bytes", "sequential")
    )
    yield 36, f"{rates[0][0] / rates[0][1]:.1f} times"
    yield 38, f"{-percent(*sizes[0]):.1f} %"
    yield 39, listed([-percent(*pair) for pair in sizes])
    paper = {(row.labels["where"], row.labels["case"]): row.values["value"] for row in load("P").lines}
    sequential, random, strided = (paper["§ 2.2", case] / 16e6 for case in ("sequential", "random", "strided"))
    yield from [(46, f"{100 * sequential:.0f} %"), (47, f"{random:.1f} times"), (48, f"{strided:.1f} times")]
    vmap, kept, rolling = (value for (where, _), value in paper.items() if where == "ways to decode")
    yield from [(60, f"{percent(kept, vmap):+.1f} %"), (61, f"{percent(rolling, vmap):+.1f} %")]
    inline = percent(paper["optimizations", "in the reader's thread"], paper["optimizations", "handed over"])
    yield 62, f"{inline:+.1f} %"
    btrfs = line("C-format", system="Btrfs").values
    yield 80, f"{btrfs['first_s'] / btrfs['again_s']:.1f} times"
    lines = [[row.values["iops"] for row in load("C").lines[first : first + 3]] for first in (0, 3, 6)]
    yield 84, listed([percent(max(iops), min(iops)) for iops in lines])
    files = [row.values["rate"] for row in load("D").lines]
    yield 94, listed([percent(files[2], files[1])])
    yield from [(95, f"{files[2] / files[3]:.1f} times"), (96, f"{files[3] * 2**15 * 8 / 1e9:.1f} Gbit/s")]
    yield 99, f"{files[4] / files[5]:.1f} times"
    for tests in ("500 files", "all files"):
        times = [[wall("U1", system=s, block=b, test=tests) for s in BOTH] for b in ("128", "4", "not compressed")]
        yield 108, f"{tests} {spread([squashfs / erofs for erofs, squashfs in times], '.1f')} times"


def lists() -> Iterator[tuple[int, str]]:
    """Yields the figures of claims about tables M1 and M2."""
    cold, warm = ({row.labels["stack"]: row.values["wall_s"] for row in load("M1").lines if row.labels["caches"] == c}
                  for c in WHEN)  # fmt: skip
    best = "overlayfs + squashfs"
    yield 109, f"{cold[best] / cold['composefs']:.2f} times"
    yield 110, f"{percent(warm[best], warm['composefs']):.1f} %"
    for word, times in (("cold", cold), ("warm", warm)):
        yield 111, f"{word} {spread([percent(times[other], times[best]) for other in OTHERS], '+.0f')} %"
    over = [wall("M2", stack="overlayfs + erofs", caches=c) / wall("M2", stack="erofs", caches=c) for c in WHEN]
    yield 117, f"{over[0]:.1f} times cold, {over[1]:.1f} times warm"
    sizes = [line("M2-sizes", image=image).values["size_bytes"] for image in ("erofs, -T0", "erofs")]
    yield 123, listed([percent(*sizes)], ".0f")
