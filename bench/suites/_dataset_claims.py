"""Claims and sentences of the suite `dataset`."""

from __future__ import annotations

from collections.abc import Callable

from lib import judge
from lib.results import Results
from lib.suite import Claim, Verdict
from lib.words import Words, number
from suites import _random

D = "dataset"
FILES_TESTS = ("all data by tar", "500 files", "all files")
PUBLISHED_DEPTHS = (1, 8, 64)


def at(depth: object, system: str) -> dict[str, str]:
    """Returns the labels of a row of the table `depths`."""
    return {"system": system, "depth": str(depth)}


def depths_of(results: Results) -> list[int]:
    """Returns the published depths that were measured; all if none was."""
    table = results.table(D, "depths")
    found = [depth for depth in PUBLISHED_DEPTHS if table and table.find(depth=str(depth))]
    return found or list(PUBLISHED_DEPTHS)


def each(results: Results, better: str, *worse: str) -> Verdict:
    """Judges that a system reads more files a second than others, at each published depth."""
    return judge.every(
        judge.called(
            f"depth {depth}",
            judge.order(results, D, "depths", "rate", at(depth, better), [at(depth, one) for one in worse], more=True),
        )
        for depth in depths_of(results)
    )


def times(results: Results, one: str, other: str, holds: Callable[[float], bool], depth: int = 0) -> Verdict:
    """Judges the quotient of two systems' rates, at each published depth or at one."""
    return judge.every(
        judge.called(
            f"{one} against {other} at depth {each}",
            judge.ratio(results, D, "depths", "rate", at(each, one), at(each, other), holds),
        )
        for each in ([depth] if depth else depths_of(results))
    )


def rate(results: Results, system: str, holds: Callable[[float], bool], depth: int = 64) -> Verdict:
    """Judges a number of files a second."""
    return judge.value(results, D, "depths", "rate", at(depth, system), holds, lambda one: f"{one:,.3g} files/s")


def nothing_beats_tmpfs(results: Results) -> Verdict:
    """Judges claim 93 against every filesystem that was read."""
    table = results.table(D, "depths")
    names = [row.labels["system"] for row in table.all(depth="64") if row.runs] if table else []
    libraries = ("kiln library", "kiln from Python", "LMDB")  # they open no files
    others = [name for name in names if not name.startswith("tmpfs") and name not in libraries]
    return each(results, "tmpfs", *others)


def on_the_disk(results: Results) -> Verdict:
    """Judges claim 104: tree against image, by each program that copies trees."""
    image = {"what": "image, not compressed", "way": "cp"}
    return judge.every(
        judge.called(
            way,
            judge.ratio(
                results, D, "spinning", "wall_s", {"what": "tree", "way": way}, image, lambda one: 10 <= one <= 100
            ),
        )
        for way in ("cp -a", "tar | tar", "rsync -a")
    )


def spins(results: Results) -> Verdict:
    """Judges claim 98."""
    name = "squashfs, nothing compressed"
    grows = judge.ratio(results, D, "profiles", "cpu_file_s", at(64, name), at(1, name), lambda one: one > 2)
    half = lambda one: one > 0.5  # noqa: E731
    return judge.every(
        [grows, judge.value(results, D, "profiles", "spin", at(64, name), half, lambda one: f"{one:.0%} spins")]
    )


def kept(results: Results, files: str, how: str, holds: Callable[[float], bool]) -> Verdict:
    """Judges the size of small files, as a quotient of their lengths."""
    labels = {"files": files, "kept as": how}
    return judge.value(results, D, "space", "ratio", labels, holds, lambda one: f"{how}: {number(one)} times the data")


def with_latency(results: Results) -> Verdict:
    """Says what the table shows of the open question, claim 106."""
    table = results.table(D, "latency")
    found = [row for row in table.all(depth="64", ms="10") if row.median("rate")] if table else []
    told = [f"{row.labels['system']} {row.median('rate'):,.3g} files/s" for row in found]
    if not told:
        return Verdict("not run", why="the full form measures it")
    return Verdict("no longer", f"10 ms a request, depth 64: {', '.join(told)}", "the table of late disks answers")


CLAIMS = [
    Claim(93, nothing_beats_tmpfs),
    Claim(94, lambda results: times(results, "EROFS", "ext4", lambda one: 0.9 <= one <= 1.1)),
    Claim(
        95, lambda results: judge.every(times(results, one, "fuse-zip", lambda q: q > 2) for one in ("EROFS", "ext4"))
    ),
    Claim(96, lambda results: rate(results, "fuse-zip", lambda one: one * 32 / 1024 > 119)),
    Claim(
        97, lambda results: each(results, "fuse-zip", "squashfs, nothing compressed", "squashfs, metadata compressed")
    ),
    Claim(98, spins),
    Claim(
        99,
        lambda results: times(
            results, "squashfs, nothing compressed", "squashfs, metadata compressed", lambda one: one > 10, 64
        ),
    ),
    Claim(100, lambda results: rate(results, "squashfs, metadata compressed", lambda one: one < 200)),
    Claim(101, lambda results: rate(results, "archivemount", lambda one: one < 10)),
    Claim(
        102,
        lambda results: judge.every(
            [
                judge.ratio(
                    results,
                    D,
                    "builds",
                    "wall_s",
                    {"image": "ext4 by mkfs.ext4 -d"},
                    {"image": "ext4"},
                    lambda one: one > 1,
                ),
                times(results, "ext4 by mkfs.ext4 -d", "ext4", lambda one: one < 0.5),
            ]
        ),
    ),
    Claim(103, lambda results: kept(results, "sources", "ext4: the smallest that holds them", lambda one: one > 1.02)),
    Claim(104, on_the_disk),
    Claim(
        105,
        lambda results: judge.every(
            [
                kept(results, "sources", "ext4: du", lambda one: one > 1.05),
                kept(results, "sources", "EROFS, not compressed", lambda one: one < 1.02),
            ]
        ),
    ),
    Claim(106, with_latency),
    Claim(
        107,
        lambda results: judge.every(
            judge.ratio(
                results,
                D,
                "cores",
                "rate",
                {"system": one, "cores": "2"},
                {"system": one, "cores": "1"},
                lambda q: q > 1.5,
            )
            for one in ("tmpfs", "EROFS")
        ),
    ),
    Claim(108, lambda results: _random.times_faster(results, D, {"500 files": 4, "all files": 8})),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    text = Words(results, D)
    why = "each read crosses two processes and the kernel"
    for ours, theirs, of, to, reason_ in (
        ("EROFS by kiln", "EROFS", "the kernel with kiln's image", "the kernel with mkfs.erofs's", ""),
        ("EROFS by kiln", "ext4", "the kernel with kiln's image", "ext4", ""),
        (
            "EROFS by kiln",
            "squashfs, nothing compressed",
            "the kernel with kiln's image",
            "squashfs with nothing compressed",
            "squashfs finds an inode through a table and reads files as fragments of blocks of 128 KiB",
        ),
        ("kiln mount", "EROFS by kiln", "kiln's mount", "the kernel's", why),
        ("kiln mount", "fuse-zip", "kiln's mount", "fuse-zip", ""),
        ("kiln library", "tmpfs", "kiln's library", "the bare tmpfs", "it opens no files"),
        ("kiln from Python", "LMDB", "kiln from Python", "LMDB", ""),
        ("kiln from Python", "tmpfs", "kiln from Python", "the bare tmpfs", ""),
    ):
        for depth in (1, 64):
            text.compare(
                "depths",
                "rate",
                at(depth, ours),
                at(depth, theirs),
                "files a second",
                of=of,
                to=to,
                where=f"at depth {depth}",
                why=reason_,
                more=True,
            )
    for system in ("tmpfs", "EROFS"):
        share = results.ratio(D, "depths", "rate", at(64, f"{system}, shared queue"), at(64, system))
        if share:
            text.say(
                f"With one queue for all readers, as in the published test, {system} has {number(share)} of its rate."
            )
    for ms in (1, 10):
        text.compare(
            "latency",
            "rate",
            {**at(64, "kiln mount"), "ms": str(ms)},
            {**at(64, "fuse-zip"), "ms": str(ms)},
            "files a second",
            of="kiln's mount",
            to="fuse-zip",
            where=f"at {ms} ms a request",
            more=True,
        )
    tree, image = {"what": "tree", "way": "cp -a"}, {"what": "image, not compressed", "way": "cp"}
    for key, where in (("copies", "on this machine's disk"), ("spinning", "on the model of a spinning disk")):
        text.compare(key, "wall_s", image, tree, "time", of="a copy of the image", to="a copy of its tree", where=where)
    text.compare(
        "space",
        "size_bytes",
        {"files": "sources", "kept as": "kiln, not compressed"},
        {"files": "sources", "kept as": "ext4: du"},
        "space",
        of="kiln's plain image",
        to="ext4",
    )
    _random.say(text, *FILES_TESTS)
    return text.sentences()
