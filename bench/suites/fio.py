"""Throughput of one file by fio: sequential, random and strided blocks of 4 KiB, with memory enough and with little.

In full about 55 minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from lib import disks, judge, published, readers
from lib.bench import Bench
from lib.readers import Checks, System, erofs, filled, squashfs
from lib.results import Results
from lib.suite import CPU, FETCHED, MEMORY, RATE, REQUESTS, Claim, Plot, Row, Suite, Table, Verdict
from lib.words import Words, number

PATTERNS = ("sequential", "random", "strided")
COLUMNS = [RATE, CPU, FETCHED, REQUESTS, MEMORY]
# Blocks and clusters of squashfs and EROFS with lz4; what mixed data must be measured with to compare orders.
SAME = [
    erofs("lz4", 4),
    erofs("lz4", 4, "kiln mount"),
    *(squashfs("lz4", kib) for kib in (4, 16, 128)),
    filled("btrfs", "lzo"),
    filled("btrfs", "zstd"),
    filled("ext4"),
    filled("xfs"),
]
TEXT = [
    *SAME,
    *(erofs("lz4", 4, reader) for reader in ("kernel, image by kiln", "kiln library", "erofsfuse")),
    *(erofs("lz4hc,12", 4, reader) for reader in ("kernel", "kiln mount")),
    *(erofs("lz4", kib) for kib in (16, 64, 128)),
    erofs("lz4", 64, "kiln mount"),
    *(squashfs("lz4", kib) for kib in (8, 64)),
    squashfs("none", 128),
    squashfs("lz4", 128, "squashfuse_ll"),
    filled("f2fs"),
]
UNITS = (4, 16, 64, 128)
MIXED = [*SAME, *(make("lz4hc,12" if make is erofs else "lz4hc", kib) for kib in UNITS for make in (erofs, squashfs))]
LITTLE = [
    erofs("lz4", 4),
    erofs("lz4", 4, "kiln mount", ["--cache", "16M"]),
    *(squashfs("lz4", kib) for kib in (4, 16, 128)),
    erofs("lz4", 128),
    filled("btrfs", "lzo"),
    filled("ext4"),
]
# Little memory is to the file what 400 MB are to enwik9.
SHARE = 400e6 / 1e9


def rows(bench: Bench, name: str, systems: Sequence[System], size: int, most: int | None = None) -> Iterator[Row]:
    """Yields a row for each pattern and system."""
    tree = readers.one_file(bench, name, size)
    checks = Checks(bench, tree)
    for pattern in PATTERNS:
        for system in systems:
            yield Row(
                {"pattern": pattern, **system.labels()},
                lambda system=system, pattern=pattern: readers.fio(bench, system, tree, pattern),
                lambda system=system: checks.check(system),
                readers.command_of(system, pattern),
                theirs(name, system, pattern),
                system.ours,
                system.reason,
                most,
            )


def theirs(corpus: str, system: System, pattern: str) -> dict[str, float]:
    """Returns the figures of the EROFS project's own table, which has lz4hc on silesia.tar."""
    if corpus != "mixed" or " lz4hc" not in system.name or pattern == "strided":
        return {}
    kind, _, block, _ = system.name.lower().split()
    return {"rate": published.row("U2", system=kind, block=block)[pattern]}


def text(bench: Bench) -> Iterable[Row]:
    """Returns the rows of the text."""
    if bench.quick:
        return rows(bench, "text", [SAME[0], SAME[1], SAME[4], SAME[7], *TEXT[10:11], TEXT[-1]], 8 << 20)
    return rows(bench, "text", TEXT, 128 << 20)


def mixed(bench: Bench) -> Iterable[Row]:
    """Returns the rows of mixed data."""
    return rows(bench, "mixed", MIXED[-2:] if bench.quick else MIXED, (8 if bench.quick else 128) << 20)


def little(bench: Bench) -> Iterator[Row]:
    """Yields reads at random in little memory."""
    systems, size = (LITTLE[1:2], 8 << 20) if bench.quick else (LITTLE, 256 << 20)
    tree = readers.one_file(bench, "text", size)
    # The programs themselves need some, too.
    group = bench.stack.enter_context(disks.memory_group(max(int(size * SHARE), 64 << 20)))
    checks = Checks(bench, tree)
    for system in systems:
        yield Row(
            system.labels(),
            lambda system=system: readers.fio(bench, system, tree, "random", group=group),
            lambda system=system: checks.check(system),
            readers.command_of(system, "random"),
            ours=system.ours,
        )


Pair = tuple[dict[str, str], dict[str, str]]
EROFS, KILN = "EROFS lz4 4 KiB", "kiln mount"


def at(pattern: str, system: str, reader: str = "kernel") -> dict[str, str]:
    """Returns the labels of a row."""
    return {"pattern": pattern, "system": system, "reader": reader}


def squash(pattern: str, kib: int) -> dict[str, str]:
    """Returns the labels of squashfs with lz4."""
    return at(pattern, f"squashfs lz4 {kib} KiB")


def faster(results: Results, pattern: str, one: str, others: Iterable[str], table: str = "text") -> Verdict:
    """Judges that a system of the kernel is faster than others."""
    labels = [at(pattern, other) for other in others]
    found = judge.order(results, "fio", table, "rate", at(pattern, one), labels, more=True)
    return named(pattern, found)


def named(what: str, verdict: Verdict) -> Verdict:
    """Returns a verdict whose figures say what they are of."""
    return replace(verdict, ours=f"{what}: {verdict.ours}") if verdict.ours else verdict


def slowest(results: Results) -> Verdict:
    """Judges claim 22: Btrfs is behind EROFS and squashfs with large blocks in all patterns."""
    others = ("Btrfs lzo", "Btrfs zstd")
    leaders = (EROFS, "squashfs lz4 128 KiB")
    return judge.joined(*(faster(results, pattern, one, others) for pattern in PATTERNS for one in leaders))


def shifting(results: Results) -> Verdict:
    """Judges claim 24: Btrfs against squashfs with 16 KiB, by pattern."""
    pairs = [(at(pattern, "Btrfs lzo"), squash(pattern, 16)) for pattern in PATTERNS]
    if verdict := judge.absent(results, "fio", "text", *(labels for pair in pairs for labels in pair)):
        return verdict
    found = [results.ratio("fio", "text", "rate", *pair) or 0 for pair in pairs]
    good = found[0] > 1 and found[1] < found[0] and found[2] < 1
    ours = ", ".join(f"{pattern} {number(ratio)}" for pattern, ratio in zip(PATTERNS, found, strict=True))
    return Verdict("holds" if good else "no longer", f"{ours} times squashfs with 16 KiB")


def second(results: Results) -> Verdict:
    """Judges claim 29: at random squashfs with 128 KiB leads, then EROFS; with little memory they turn."""
    big = "squashfs lz4 128 KiB"
    rest = [f"squashfs lz4 {kib} KiB" for kib in (4, 8, 16)] + ["Btrfs lzo", "Btrfs zstd"]
    enough = [faster(results, "random", big, [EROFS]), faster(results, "random", EROFS, rest)]
    one, other = ({"system": name, "reader": "kernel"} for name in (EROFS, big))
    return judge.joined(*enough, judge.order(results, "fio", "little", "rate", one, other, more=True))


def strides(results: Results) -> Verdict:
    """Judges claim 30: EROFS leads in strides by less than half."""
    names = [f"squashfs lz4 {kib} KiB" for kib in (4, 8, 16, 128)]
    leads = faster(results, "strided", EROFS, names)
    close = [
        judge.ratio(results, "fio", "text", "rate", at("strided", EROFS), at("strided", name), lambda x: x < 1.5)
        for name in names
    ]
    nearest = [verdict for verdict in close if verdict.kind == "holds"]
    return judge.joined(leads, *(nearest[:1] or close[:1]))


def alike(results: Results) -> Verdict:
    """Judges claim 34: Kendall's tau between the orders of text and of mixed data, over all patterns."""
    found = [results.table("fio", key) for key in ("text", "mixed")]
    if not all(found):
        return Verdict("not run")
    one, other = found
    assert one and other
    agree = pairs = 0
    for pattern in PATTERNS:
        both = [(row.median("rate"), other.median("rate", **row.labels)) for row in one.all(pattern=pattern)]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        for place, (a, b) in enumerate(known):
            for c, d in known[place + 1 :]:
                pairs += 1
                agree += 1 if (a - c) * (b - d) > 0 else -1
    if not pairs:
        return Verdict("not run", why="no system was measured with both files")
    return Verdict("holds" if agree / pairs >= 0.8 else "no longer", f"tau is {agree / pairs:.2f} of {pairs} pairs")


def spread(results: Results) -> Verdict:
    """Judges claim 35: the deviation of the rate."""
    table = results.table("fio", "text")
    figures = [figure for row in table.rows if (figure := row.figure("rate")) and figure.n > 1] if table else []
    if not figures:
        return Verdict("not run", why="" if not table else "one round has no deviation")
    shares = [figure.deviation / figure.mean for figure in figures]
    calm = sum(share <= 0.051 for share in shares)
    ours = f"{calm} of {len(shares)} rows at most 5.1 %, the widest {max(shares) * 100:.1f} %"
    return Verdict("holds" if calm == len(shares) else "no longer", ours)


def hc(pattern: str, kind: str, kib: int) -> dict[str, str]:
    """Returns the labels of the rows of the EROFS project's own table."""
    return at(pattern, f"EROFS lz4hc,12 {kib} KiB" if kind == "EROFS" else f"squashfs lz4hc {kib} KiB")


def compared(results: Results, table: str, pairs: Iterable[Pair], good: Callable[[float], bool]) -> Verdict:
    """Judges quotients of throughput."""
    verdicts = ((pair[0], judge.ratio(results, "fio", table, "rate", *pair, good)) for pair in pairs)
    return judge.joined(*(named(f"{row['system']}, {row['pattern']}", verdict) for row, verdict in verdicts))


def stepwise(results: Results, patterns: Sequence[str], more: bool) -> Verdict:
    """Judges that squashfs gains, or loses, with each step of its block size."""
    rows = ([squash(pattern, kib) for kib in (4, 8, 16, 128)] for pattern in patterns)
    found = (judge.steps(results, "fio", "text", "rate", one, more=more) for one in rows)
    return judge.joined(*map(named, patterns, found))


BTRFS = ("Btrfs lzo", "Btrfs zstd")
COMPRESSED = [*BTRFS, *(f"squashfs lz4 {kib} KiB" for kib in (4, 8, 16, 128))]
LEVEL = [(at(pattern, EROFS), at(pattern, "ext4")) for pattern in PATTERNS]
CLOSE = [(squash("random", kib), squash("sequential", kib)) for kib in (4, 8, 16, 128)]
WHOLE = [(hc("random", "EROFS", kib), hc("random", "squashfs", kib)) for kib in UNITS[1:]]
ORDER = [(hc("sequential", "EROFS", 4), hc("sequential", "squashfs", 4))]
CLAIMS = [
    Claim(22, slowest),
    Claim(23, lambda results: judge.joined(*(faster(results, pattern, "ext4", BTRFS) for pattern in PATTERNS))),
    Claim(24, shifting),
    Claim(25, lambda results: stepwise(results, PATTERNS[:2], True)),
    Claim(26, lambda results: stepwise(results, PATTERNS[2:], False)),
    Claim(27, lambda results: compared(results, "text", CLOSE, lambda found: 0.67 <= found <= 1.5)),
    Claim(28, lambda results: faster(results, "sequential", EROFS, COMPRESSED)),
    Claim(29, second),
    Claim(30, strides),
    Claim(31, lambda results: compared(results, "text", LEVEL, lambda found: found >= 0.95)),
    Claim(32, lambda results: faster(results, "sequential", EROFS, ["ext4"])),
    Claim(33, lambda results: judge.ratio(results, "fio", "text", "fetched_bytes", *LEVEL[0], lambda x: x < 0.7)),
    Claim(34, alike),
    Claim(35, spread),
    Claim(36, lambda results: compared(results, "mixed", ORDER, lambda found: found > 10)),
    Claim(37, lambda results: compared(results, "mixed", WHOLE, lambda found: found >= 1)),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "fio")
    for pattern in PATTERNS:
        mine, where = at(pattern, EROFS, KILN), f"with {pattern} blocks"
        kernel = at(pattern, EROFS)
        behind = (results.ratio("fio", "text", "rate", mine, kernel) or 0) < 1
        why = "each request crosses between kernel and server" if behind else ""
        said.compare("text", "rate", mine, kernel, "throughput", of="kiln's mount with clusters of 4 KiB",
                     to="the kernel's EROFS", where=where, why=why, more=True)  # fmt: skip
        peers = [("erofsfuse", at(pattern, EROFS, "erofsfuse")), ("squashfs with 128 KiB", squash(pattern, 128))]
        peers += [("ext4", at(pattern, "ext4")), ("Btrfs with lzo", at(pattern, "Btrfs lzo"))]
        for to, peer in peers:
            said.compare("text", "rate", mine, peer, "throughput", of="kiln's mount", to=to, where=where, more=True)
        library = at(pattern, EROFS, "kiln library")
        said.compare("text", "rate", library, kernel, "throughput", of="kiln's library", to="the kernel's EROFS",
                     where=where, more=True)  # fmt: skip
    mine = {"system": EROFS, "reader": KILN}
    for name in (EROFS, "squashfs lz4 128 KiB", "ext4"):
        said.compare(
            "little", "rate", mine, {"system": name, "reader": "kernel"}, "throughput", of="kiln's mount",
            to=f"{name} by the kernel", where="at random with little memory", more=True,
        )  # fmt: skip
    return said.sentences()


NOTE = (
    "fio by bench/fio/*.fio: one thread, buffered calls of 4 KiB, fio's own hints to the kernel. A fresh mount and "
    "dropped caches before each run. Random reads cover the whole file, each block once. The library reads with calls "
    "of 128 KiB sequentially, and random blocks may come twice. EROFS is made by mkfs.erofs for the kernel and "
    "erofsfuse, by kiln for its own readers. Memory is the server's peak."
)
SUITE = Suite(
    "fio",
    "fio: one file, sequentially, at random and in strides",
    "How fast is one large file read, a block of 4 KiB at a time, from EROFS, squashfs, Btrfs, ext4 and XFS? The "
    "published figures are from a board and a phone and exist only as plots; here their orders are tried again, with "
    "kiln's mount and library beside them. The text stands for enwik9, the mixed file for silesia.tar.",
    [
        Table("text", "Text, 128 MiB: throughput of blocks of 4 KiB", COLUMNS, text,
              Plot("bars", "rate", log_y=True), rounds=10, note=NOTE, published="P"),
        Table("mixed", "Mixed data, 128 MiB: throughput of blocks of 4 KiB", COLUMNS, mixed,
              Plot("bars", "rate", log_y=True), rounds=5, published="U2",
              note="As the first table. lz4hc is level 12 on both sides, as published."),
        Table("little", "Text, 256 MiB, at random in little memory", COLUMNS, little,
              Plot("bars", "rate", log_y=True), rounds=3,
              note="fio, server and page cache share memory that is to the file what 400 MB are to enwik9: 107 MB. "
              "kiln's mount has --cache 16M."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
