"""Cases of `pack.py`: the contestants, and the bars that kiln must meet.

A bar is the largest permitted quotient of kiln's number and the peer's. The bars of CPU time against mkfs.erofs are for trees
with large files; on a source tree nearly every file is smaller than a unit and is compressed once by everybody, so there
(`--source-tree`) the bar is 1, and 1/4 with fragments.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

import lib
from packers import Setting

# Contestants: a label, and what makes it differ from the others.
KILN = "kiln"
UNPACKED = "kiln, nothing packed, no dedupe"
ENCODED = "kiln, the same, encoded extents"
PARTS = "kiln, nothing packed, parts"
ENCODED_PARTS = "kiln, the same, encoded extents, parts"
ALL_PACKED = "kiln, all packed"
MKFS = "mkfs.erofs"
MKFS_48BIT = "mkfs.erofs -E48bit"
MKFS_DEDUPE = "mkfs.erofs -Ededupe"
MKFS_FRAGMENTS = "mkfs.erofs -Eall-fragments"
SQUASHFS = "mksquashfs"

ALONE = ("--fragments", "off", "--dedupe", "off")
KILN_OPTIONS: Dict[str, Tuple[str, ...]] = {
    KILN: (),
    UNPACKED: ALONE,
    ENCODED: (*ALONE, "--layout", "extents=encoded"),
    PARTS: ("--fragments", "off", "--dedupe", "parts"),
    ENCODED_PARTS: ("--fragments", "off", "--dedupe", "parts", "--layout", "extents=encoded"),
    ALL_PACKED: ("--fragments", "all"),
}
MKFS_OPTIONS = {MKFS: "", MKFS_48BIT: "48bit", MKFS_DEDUPE: "dedupe", MKFS_FRAGMENTS: "all-fragments"}

# Peak memory of kiln in any case.
MEMORY_BAR = 400 * 10**6


@dataclass(frozen=True)
class Bar:
    """Maximum of a quantity of `ours` relative to that of `peer`; None to report it only."""

    ours: str
    peer: str
    cpu: Optional[float] = None
    wall: Optional[float] = None
    image: Optional[float] = None
    same_work: bool = True

    def on_source_tree(self) -> "Bar":
        """The bar where files are smaller than units."""
        if self.cpu is None or self.peer not in MKFS_OPTIONS:
            return self
        cpu = 0.25 if self.peer == MKFS_FRAGMENTS else max(self.cpu, 1.0)
        return Bar(self.ours, self.peer, cpu, self.wall, self.image, self.same_work)


# The inputs of a case: the corpus itself, or what `derived.py` makes of it.
CORPUS, DUPLICATES, RELEASES, UPDATED = "corpus", "duplicates", "releases", "updated"


@dataclass(frozen=True)
class Spec:
    """A case: one setting, some contestants, some bars."""

    setting: Setting
    bars: List[Bar]
    slow: bool = False  # goes to --slow-tree
    source: str = CORPUS
    more: List[str] = field(default_factory=list)  # contestants of no bar

    def labels(self) -> List[str]:
        """All contestants, each once, kiln's first."""
        named = [label for bar in self.bars for label in (bar.ours, bar.peer)] + self.more
        return sorted(dict.fromkeys(named), key=lambda label: label not in KILN_OPTIONS)


def zstd_cases() -> Dict[str, Spec]:
    """zstd at all levels and units, against mkfs.erofs."""
    small, large, huge = 1.005, 1.008, 1.012
    bars = {
        (1, "4K"): (1 / 2, small), (3, "4K"): (1 / 2, small), (6, "4K"): (1 / 4, small), (9, "4K"): (1 / 4, small),
        (1, "64K"): (1 / 4, small), (3, "64K"): (1 / 4, small), (6, "64K"): (1 / 4, small), (9, "64K"): (1 / 4, small),
        (15, "64K"): (1 / 5, huge),
        (3, "128K"): (1 / 6, large), (9, "128K"): (1 / 6, large),
        (3, "1M"): (1 / 8, huge), (9, "1M"): (1 / 8, huge),
    }
    cases = {}
    for unit in ("4K", "64K", "128K", "1M"):
        for level in (1, 3, 6, 9, 15):
            cpu, image = bars.get((level, unit), (None, None))
            setting = Setting("zstd", level, lib.parse_size(unit))
            bar = Bar(UNPACKED, MKFS, cpu, None, image)
            cases[f"zstd {level} {unit}"] = Spec(setting, [bar], slow=level > 9)
    return cases


def other_cases() -> Dict[str, Spec]:
    """The other algorithms, against mkfs.erofs."""
    listed = [
        ("lz4", None, 64, 1.0, 1.0, 1.002), ("lz4hc", 9, 64, 1.0, 1.0, 1.002), ("lz4hc", 12, 64, 1.0, 1.0, 1.002),
        ("deflate", 6, 64, 1 / 1.7, None, 1.003), ("deflate", 9, 64, 1 / 2.3, None, 1.003),
        ("libdeflate", 6, 64, 1 / 2.7, None, 1.003),
        ("lzma", 1, 128, 1.05, None, 1.002), ("lzma", 6, 128, 1.05, None, 1.002),
    ]
    cases = {"store": Spec(Setting(None, None, 128 * lib.KIB), [Bar(UNPACKED, MKFS), Bar(KILN, SQUASHFS)])}
    for algorithm, level, unit, cpu, wall, image in listed:
        setting = Setting(algorithm, level, unit * lib.KIB)
        slow = algorithm == "lzma" or algorithm == "lz4hc" and level == 12
        cases[setting.method.replace(",", " ")] = Spec(setting, [Bar(UNPACKED, MKFS, cpu, wall, image)], slow)
    return cases


def feature_cases() -> Dict[str, Spec]:
    """Encoded extents, deduplication, packing."""
    def zstd(level: int, unit: int = 128) -> Setting:
        return Setting("zstd", level, unit * lib.KIB)

    encoded = [Bar(ENCODED_PARTS, ENCODED, image=0.70), Bar(PARTS, UNPACKED)]
    updated = [Bar(ENCODED_PARTS, ENCODED, image=0.50), Bar(PARTS, UNPACKED)]
    return {
        "encoded": Spec(zstd(3), [Bar(ENCODED, MKFS_48BIT, 1.0, None, 1.0)]),
        "dedupe": Spec(zstd(3), [Bar(PARTS, MKFS_DEDUPE, 1 / 4, None, 1.0)]),
        "all-fragments": Spec(zstd(3), [Bar(ALL_PACKED, MKFS_FRAGMENTS, 1 / 3, None, 1.0)], more=[KILN]),
        "parts zstd 3": Spec(zstd(3), [Bar(PARTS, UNPACKED, 1.15, None, 1.001, same_work=False)]),
        "parts zstd 12": Spec(zstd(12), [Bar(PARTS, UNPACKED, 1.02, None, 1.001, same_work=False)], slow=True),
        "parts of duplicates": Spec(zstd(3), [Bar(PARTS, UNPACKED, 1.0, same_work=False)], source=DUPLICATES),
        "two releases": Spec(zstd(3), encoded, source=RELEASES),
        "updated copy": Spec(zstd(3), updated, source=UPDATED),
    }


def squashfs_cases() -> Dict[str, Spec]:
    """Both with their defaults."""
    cases = {}
    for unit in (128 * lib.KIB, lib.MIB):
        for algorithm, level in (("zstd", 3), ("zstd", 15), ("lz4", None), ("lz4hc", 12)):
            setting = Setting(algorithm, level, unit)
            name = f"squashfs {setting.method.replace(',', ' ')} {lib.unit_name(unit)}"
            cases[name] = Spec(setting, [Bar(KILN, SQUASHFS, 1.0, 1.0, 1.0)], slow=level in (12, 15))
    return cases


CASES: Dict[str, Spec] = {**other_cases(), **zstd_cases(), **feature_cases(), **squashfs_cases()}
