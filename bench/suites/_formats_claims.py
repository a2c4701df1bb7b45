"""Claims and sentences of the suite `formats`."""

from __future__ import annotations

from collections.abc import Callable

from lib import judge
from lib.results import Results
from lib.suite import Claim, Verdict
from lib.words import Words, number

F = "formats"
KINDS = {"ext4": "ext4", "XFS": "xfs", "Btrfs": "btrfs"}
DEVICE = 10**12  # bytes of the published disk; a sparse file
HUGE = 16 << 40
LINES = {
    "sequential read": ("read", "128k"),
    "sequential write": ("write", "128k"),
    "random read": ("randread", "4k"),
}


def S(name: str, **more: str) -> dict[str, str]:
    """Returns the labels of a row."""
    return {"system": name, **more}


def line_order(results: Results, line: str, *names: str) -> Verdict:
    """Judges the order of three filesystems in a line of fio."""
    rows = [S(name, line=line) for name in names]
    return judge.every(
        judge.order(results, F, "lines", "iops", one, other, more=True)
        for one, other in zip(rows, rows[1:], strict=False)
    )


def line_ratio(results: Results, line: str, one: str, other: str, holds: Callable[[float], bool]) -> Verdict:
    """Judges the quotient of two filesystems in a line of fio."""
    return judge.ratio(results, F, "lines", "iops", S(one, line=line), S(other, line=line), holds)


def differ_little(results: Results, lines: dict[str, float]) -> Verdict:
    """Judges that the fastest is less than so many times the slowest."""
    pairs = [("ext4", "XFS"), ("XFS", "Btrfs"), ("Btrfs", "ext4")]
    return judge.every(
        judge.called(
            f"{line}, {one} to {other}",
            line_ratio(results, line, one, other, lambda quotient, most=most: 1 / most < quotient < most),
        )
        for line, most in lines.items()
        for one, other in pairs
    )


def value(
    results: Results,
    table: str,
    column: str,
    labels: dict[str, str],
    holds: Callable[[float], bool],
    told: str,
    size: float = 1,
) -> Verdict:
    """Judges one figure."""
    return judge.value(results, F, table, column, labels, holds, lambda one: f"{one / size:,.5g} {told}")


def scales(results: Results) -> Verdict:
    """Judges claim 92."""
    gains = {
        name: results.ratio(F, "parallel", "iops", S(name, jobs="16"), S(name, jobs="1")) for name in ("XFS", "ext4")
    }
    xfs, ext4 = gains["XFS"], gains["ext4"]
    if xfs is None or ext4 is None:
        return judge.absent(results, F, "parallel", S("XFS", jobs="16"), S("ext4", jobs="16")) or Verdict("not run")
    kind = "holds" if xfs > 1.02 * ext4 else "no longer" if ext4 > 1.02 * xfs else "not to be told apart"
    return Verdict(kind, f"16 jobs read {number(xfs)} times as much as one on XFS, {number(ext4)} on ext4")


def largest_files(results: Results) -> Verdict:
    """Judges claim 89: ext4 stops below 16 TiB by one block, the others at what Linux can name."""
    top = 2.0**63
    return judge.every(
        [
            value(results, "limits", "value", S("ext4"), lambda one: HUGE - 65536 <= one <= HUGE, "TiB on ext4", 2**40),
            *(
                value(results, "limits", "value", S(name), lambda one: one >= top * 0.999, f"EiB on {name}", 2**60)
                for name in ("XFS", "Btrfs")
            ),
        ]
    )


BIG = f"{DEVICE // 10**9} GB"
CLAIMS = [
    Claim(
        79,
        lambda results: judge.every(
            [
                judge.order(results, F, "formatting", "wall_s", S("Btrfs"), S("XFS")),
                judge.order(results, F, "formatting", "wall_s", S("XFS"), S("ext4")),
            ]
        ),
    ),
    Claim(80, lambda results: second_format(results)),
    Claim(
        81,
        lambda results: judge.every(
            [
                line_ratio(results, "sequential read", "XFS", "Btrfs", lambda one: 0.98 <= one <= 1.02),
                line_order(results, "sequential read", "XFS", "ext4"),
                line_order(results, "sequential read", "Btrfs", "ext4"),
            ]
        ),
    ),
    Claim(
        82,
        lambda results: judge.every(
            [
                differ_little(results, {"sequential write": 1.06}),
                line_order(results, "sequential write", "ext4", "XFS"),
                line_order(results, "sequential write", "ext4", "Btrfs"),
            ]
        ),
    ),
    Claim(83, lambda results: line_order(results, "random read", "XFS", "Btrfs", "ext4")),
    Claim(84, lambda results: differ_little(results, dict.fromkeys(LINES, 1.15))),
    Claim(
        85,
        lambda results: judge.every(
            judge.ratio(
                results,
                F,
                "space",
                "usable_bytes",
                S(name, device=BIG),
                S("ext4", device=BIG),
                lambda one: one >= 1.015,
            )
            for name in ("XFS", "Btrfs")
        ),
    ),
    Claim(
        86,
        lambda results: judge.ratio(
            results, F, "space", "inodes", S("XFS", device=BIG), S("ext4", device=BIG), lambda one: 5 <= one <= 20
        ),
    ),
    Claim(
        87,
        lambda results: judge.every(
            [
                value(results, "filling", "left", S("ext4"), lambda one: one > 0.05, "% of ext4 left", 0.01),
                value(results, "filling", "left", S("XFS"), lambda one: one < 0.05, "% of XFS left", 0.01),
            ]
        ),
    ),
    Claim(
        88,
        lambda results: judge.every(
            [
                value(results, "space", "inodes", S("Btrfs", device=BIG), lambda one: one == 0, "inodes"),
                df_differs(results),
            ]
        ),
    ),
    Claim(89, largest_files),
    Claim(
        90,
        lambda results: judge.every(
            [
                value(results, "space", "inode_bytes", S("ext4", device=BIG), lambda one: one == 256, "bytes an inode"),
                value(
                    results, "space", "group_blocks", S("ext4", device=BIG), lambda one: one <= 32768, "blocks a group"
                ),
                value(
                    results,
                    "space",
                    "blocks_an_inode",
                    S("ext4", device=BIG),
                    lambda one: 3.9 < one < 4.1,
                    "blocks an inode",
                ),
            ]
        ),
    ),
    Claim(
        91,
        lambda results: judge.order(results, F, "checks", "wall_s", S("ext4, metadata_csum"), S("ext4, no checksums")),
    ),
    Claim(92, scales),
]


def second_format(results: Results) -> Verdict:
    """Judges claim 80."""
    first, again = (results.median(F, "formatting", key, system="Btrfs") for key in ("wall_s", "again_s"))
    if first is None or not again:
        return judge.absent(results, F, "formatting", S("Btrfs")) or Verdict("not run")
    return Verdict("holds" if first / again > 10 else "no longer", f"{number(first / again)} times")


def df_differs(results: Results) -> Verdict:
    """Judges that df differs from what Btrfs itself says."""
    told, own = (results.median(F, "space", key, system="Btrfs", device=BIG) for key in ("usable_bytes", "free_bytes"))
    if told is None or own is None:
        return judge.absent(results, F, "space", S("Btrfs", device=BIG)) or Verdict("not run")
    return Verdict(
        "holds" if told != own else "no longer", f"df of an empty disk is {abs(told - own) / 1e6:,.3g} MB off"
    )


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    text = Words(results, F)
    image = S("kiln, an image")
    for peer in ("mkfs.erofs, an image", "mksquashfs, an image"):
        text.compare(
            "formatting", "wall_s", image, S(peer), "time", of="an image by kiln", to=peer, where="for a tree in memory"
        )
    for peer in ("ext4, metadata_csum", "XFS", "Btrfs"):
        text.compare(
            "checks",
            "wall_s",
            S("kiln image, kiln check"),
            S(peer),
            "time",
            of="a check of kiln's image",
            to=f"a check of {peer}",
        )
    text.compare(
        "checks",
        "wall_s",
        S("EROFS, not compressed, kiln check"),
        S("EROFS, not compressed, fsck.erofs"),
        "time",
        of="kiln check",
        to="fsck.erofs",
        where="on a plain image",
    )
    for line in LINES:
        rates = {name: results.median(F, "lines", "iops", line=line, system=name) for name in KINDS}
        known = {name: rate for name, rate in rates.items() if rate}
        if len(known) == len(KINDS):
            first, last = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
            text.say(
                f"{line.capitalize()}: {first} is first, with {number(known[first] / known[last])} times {last}'s rate."
            )
    size = results.median(F, "limits", "size_bytes", system="kiln, a sparse file of 16 TiB")
    if size:
        text.say(f"A sparse file of 16 TiB is an image of {size:,.0f} bytes by kiln; the kernel mounts and reads it.")
    return text.sentences()
