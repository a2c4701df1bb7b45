"""Claims and sentences of the suite `lslr`."""

from __future__ import annotations

from collections.abc import Callable

from lib import judge
from lib.results import Results
from lib.suite import Claim, Verdict
from lib.words import Words, number
from suites import _random
from suites._stacks import M1

L = "lslr"
METADATA = ("all metadata by tar", "stat of the 500", "stat of all")
# Images of the table `apart`, and their makers.
APART = [
    ("mkfs.erofs, ends of files beside inodes", "mkfs.erofs "),
    ("mkfs.erofs, inodes together", "mkfs.erofs -Enoinline_data"),
    ("kiln, ends of files beside inodes", "kiln --preset plain"),
    ("kiln, inodes together", "kiln --preset plain --layout inline-data=off"),
    ("squashfs, nothing compressed", "mksquashfs -noI -noD -noF -noX"),
    ("ext4", "mkfs.ext4 -d"),
]


def S(name: str) -> dict[str, str]:
    """Returns the label of a stack."""
    return {"stack": name}


def quotient(
    results: Results, table: str, column: str, row: str, to: str, holds: Callable[[float], bool], label: str = "stack"
) -> Verdict:
    """Judges the quotient of two rows of a table with one label."""
    when = {"wall_s": " dropped", "warm_s": " warm"}.get(column, "")
    verdict = judge.ratio(results, L, table, column, {label: row}, {label: to}, holds)
    return judge.called(f"{row} against {to}{when}", verdict)


def best(results: Results, column: str, bar: float) -> Verdict:
    """Judges that composefs is so many times faster than the best of the four published stacks."""
    rows = [(results.median(L, "stacks", column, stack=stack.name), stack.name) for stack in M1[:4]]
    known = [(value, name) for value, name in rows if value is not None]
    if not known:
        return judge.absent(results, L, "stacks", S(M1[0].name)) or Verdict("not run")
    name = min(known)[1]
    return quotient(results, "stacks", column, name, "composefs of today", lambda one: one > bar)


def slower_than_squashfs(results: Results) -> Verdict:
    """Judges claim 111."""
    others = [S(stack.name) for stack in M1[1:4]]
    return judge.every(
        judge.called(when, judge.order(results, L, "stacks", column, S("overlayfs + squashfs"), others))
        for column, when in (("wall_s", "dropped"), ("warm_s", "warm"))
    )


def sized(results: Results, table: str, row: str, to: str, holds: Callable[[float], bool]) -> Verdict:
    """Judges a quotient of two sizes."""
    return quotient(results, table, "size_bytes", row, to, holds, "image")


def ordered_sizes(results: Results) -> Verdict:
    """Judges claim 112."""
    names = ("squashfs", "composefs", "ext4", "erofs")
    return judge.every(
        sized(results, "sizes-first", small, large, lambda one: one < 1)
        for small, large in zip(names, names[1:], strict=False)
    )


def grows(results: Results) -> Verdict:
    """Judges claim 120, from 10³ to 10⁶ names, there and not there."""

    def one(system: str, column: str, holds: Callable[[float], bool]) -> Verdict:
        large, few = ({"system": system, "names": str(10**power)} for power in (6, 3))
        verdict = judge.ratio(results, L, "lookups", column, large, few, holds)
        return judge.called(f"{system}, {column[:-2]}", verdict)

    return judge.every(
        one(system, column, holds)
        for system, holds in (("squashfs", lambda times: times > 100), ("erofs", lambda times: times < 5))
        for column in ("there_s", "missing_s")
    )


def all_equal(results: Results) -> Verdict:
    """Judges claim 122: rows that are there were compared byte for byte."""
    labels = [S(stack.name) for stack in (M1[7], M1[4])]
    return judge.absent(results, L, "equal", *labels) or Verdict("holds", "all files equal those of the source")


def compressed_helps(results: Results) -> Verdict:
    """Judges claim 116."""
    less = lambda one: one < 1  # noqa: E731
    zstd = "mksquashfs -comp zstd -Xcompression-level 3"
    pairs = [
        quotient(results, "bare", "wall_s", "squashfs", "squashfs, nothing compressed", less),
        quotient(results, "bare", "wall_s", "kiln, metadata compressed", "kiln", less),
        quotient(results, "layouts", "wall_s", zstd, f"{zstd} -noI", less, "image"),
    ]
    return judge.every(pairs)


def stacked(results: Results, column: str, bar: float) -> Verdict:
    """Judges what overlayfs costs over EROFS."""
    return quotient(results, "bare", column, "overlayfs + erofs", "erofs", lambda one: one > bar)


CLAIMS = [
    Claim(109, lambda results: best(results, "wall_s", 3)),
    Claim(110, lambda results: best(results, "warm_s", 1.05)),
    Claim(111, slower_than_squashfs),
    Claim(112, ordered_sizes),
    Claim(
        113,
        lambda results: judge.every(
            sized(results, "sizes-second", image, "composefs", lambda one: one < 1.2)
            for image in ("erofs, holes kept", "kiln")
        ),
    ),
    Claim(
        114, lambda results: quotient(results, "bare", "wall_s", "erofs, stored holes", "erofs", lambda one: one > 1.05)
    ),
    Claim(
        115,
        lambda results: quotient(results, "apart", "wall_s", APART[0][0], APART[1][0], lambda one: one > 1.1, "image"),
    ),
    Claim(116, compressed_helps),
    Claim(117, lambda results: judge.every([stacked(results, "wall_s", 1.5), stacked(results, "warm_s", 1.2)])),
    Claim(118, lambda results: quotient(results, "bare", "wall_s", "erofs", "erofs by file", lambda one: one > 1.05)),
    Claim(
        119,
        lambda results: judge.every(
            [
                judge.order(results, L, "bare", "wall_s", S("erofs"), S("composefs of today")),
                judge.order(results, L, "bare", "warm_s", S("composefs of today"), S("erofs")),
            ]
        ),
    ),
    Claim(120, grows),
    Claim(
        121,
        lambda results: quotient(results, "bare", "slab_bytes", "overlayfs + erofs", "erofs", lambda one: one > 1.5),
    ),
    Claim(122, all_equal),
    Claim(
        123,
        lambda results: sized(
            results, "sizes-second", "erofs, holes kept, -T0", "erofs, holes kept", lambda one: one < 0.9
        ),
    ),
    Claim(124, lambda results: _random.times_faster(results, L, {"stat of all": 10})),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    text = Words(results, L)
    for column, what in (("wall_s", "time with caches dropped"), ("warm_s", "time of a warm listing")):
        for ours, theirs, of, to, why in (
            ("kiln", "erofs", "the kernel with kiln's image", "the kernel with mkfs.erofs's, holes kept", ""),
            (
                "kiln",
                "squashfs",
                "the kernel with kiln's image",
                "squashfs",
                "inodes of EROFS lie at their numbers, plain",
            ),
            ("kiln, metadata compressed", "kiln", "compressed metadata", "plain metadata", ""),
            ("kiln mount", "kiln", "kiln's mount", "the kernel's", "each answer of a server crosses the kernel twice"),
            ("kiln by file", "kiln", "an image by file", "an image by loop device", ""),
            ("overlayfs + kiln", "kiln", "overlayfs over kiln's image", "the image alone", "each entry has two inodes"),
        ):
            text.compare("bare", column, S(ours), S(theirs), what, of=of, to=to, why=why)
        text.compare(
            "stacks",
            column,
            S("overlayfs + kiln"),
            S("composefs of today"),
            what,
            of="a stack over kiln's image",
            to="composefs of today",
        )
        text.compare(
            "stacks",
            column,
            S("overlayfs + kiln, data-only layer"),
            S("overlayfs + kiln"),
            what,
            of="a data-only layer",
            to="objects that are looked up with the names",
            why="overlayfs looks an object up when its file is opened",
        )
        for peer in ("squashfs", "ext4", "erofs"):
            text.compare("million", column, S("kiln"), S(peer), what, of="kiln's image of a generated tree", to=peer)
    text.compare(
        "lookups",
        "there_s",
        {"system": "kiln", "names": "1000000"},
        {"system": "squashfs", "names": "1000000"},
        "time of a look-up",
        of="kiln's image",
        to="squashfs",
        where="among a million names",
        why="EROFS halves sorted blocks, squashfs reads on from an index",
    )
    for peer in ("erofs, holes kept", "composefs", "squashfs"):
        text.compare(
            "sizes-second",
            "size_bytes",
            {"image": "kiln"},
            {"image": peer},
            "size",
            of="kiln's image of metadata",
            to=f"that of {peer}",
        )
    for program in ("mkfs.erofs", "kiln"):
        near, far = ({"image": f"{program}, {how}"} for how in ("inodes together", "ends of files beside inodes"))
        text.compare(
            "apart",
            "wall_s",
            near,
            far,
            "time",
            of=f"{program} with inodes together",
            to="ends of files beside inodes",
            where="for a listing at 1 ms a request",
        )
    _random.say(text, *METADATA)
    held = results.ratio(L, "bare", "slab_bytes", S("overlayfs + kiln"), S("kiln"))
    if held:
        text.say(f"A stack holds {number(held)} times the memory for inodes and dentries that the bare image holds.")
    return text.sentences()
