"""Bytes and requests that a reader of a part fetches; one byte of a block; sizes of reads when programs start.

In full about 15 minutes."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lib import judge, machine, published, readers
from lib.bench import Bench
from lib.mounts import Mount
from lib.process import Failed, quiet
from lib.programs import need, wake
from lib.readers import FILE, Checks, System, erofs, filled, opened, squashfs
from lib.results import Results
from lib.suite import FETCHED, RATE, REQUESTS, Claim, Column, Plot, Row, Run, Suite, Table, Verdict
from lib.tracing import traced, tracing
from lib.words import Words, number
from suites._programs import bound, startable

PATTERNS = ("sequential", "random", "strided")
ASKED = 16 << 20
TIMES = Column("times", "fetched ÷ asked", "", timed=False)
SYSTEMS = [
    *(erofs("lz4", kib) for kib in (4, 16, 64, 128)),
    *(erofs("lz4", kib, "kiln mount") for kib in (4, 64)),
    erofs("lz4hc,12", 4),
    erofs("lz4", 4, "erofsfuse"),
    *(squashfs("lz4", kib) for kib in (4, 8, 16, 128)),
    squashfs("none", 128),
    squashfs("lz4", 128, "squashfuse_ll"),
    filled("btrfs", "lzo"),
    filled("btrfs", "zstd"),
    filled("ext4"),
]


def rows(bench: Bench, name: str) -> Iterator[Row]:
    """Yields what each system fetches for 16 MiB of a file, by pattern."""
    tree = readers.one_file(bench, name, 512 << 20)
    checks = Checks(bench, tree)
    systems = [SYSTEMS[0], SYSTEMS[4], SYSTEMS[11]] if bench.quick else SYSTEMS
    for pattern in PATTERNS:
        for system in systems:

            def run(system: System = system, pattern: str = pattern) -> Run:
                found = readers.fio(bench, system, tree, pattern, most=ASKED)
                return {**found, "times": found["fetched_bytes"] / found["asked_bytes"]}

            yield Row(
                {"pattern": pattern, **system.labels()},
                run,
                lambda system=system: checks.check(system),
                readers.command_of(system, pattern),
                theirs(name, system, pattern),
                system.ours,
            )


def theirs(name: str, system: System, pattern: str) -> dict[str, float]:
    """Returns the paper's figures: those of squashfs with its default blocks. They are for 16 MB."""
    if name != "text" or system != squashfs("lz4", 128):
        return {}
    value = published.row("P", quantity="device reads of Squashfs-128K for 16 MB", case=pattern)["value"]
    return {"fetched_bytes": value, "times": value / 16e6}


# One byte of a block.

UNITS = [
    *(erofs("lz4", kib) for kib in (4, 16, 64, 128)),
    *(erofs("lz4", kib, "kiln mount") for kib in (4, 64)),
    *(squashfs("lz4", kib) for kib in (4, 16, 64, 128)),
    filled("ext4"),
]
MOST = Column("most_blocks", "most blocks of 4 KiB", "", timed=False)
MEAN = Column("mean_blocks", "blocks of 4 KiB, mean", "", timed=False)
SPREAD = Column("spread", "deviation ÷ mean", "%", timed=False)
BETWEEN, NEAR = 3 << 20, 1 << 20
SETTLE_S = 0.03


def single_bytes(bench: Bench) -> Iterator[Row]:
    """Yields what one byte costs, the first of a block of 128 KiB, over many blocks."""
    for name in ("text", "mixed"):
        tree = readers.one_file(bench, name, 512 << 20)
        for system in UNITS[::4] if bench.quick else UNITS:
            yield Row(
                {"file": name, **system.labels()},
                lambda system=system, tree=tree: one_byte(bench, system, tree),
                command=readers.command_of(system, "random").partition(";")[0] + "; pread of 1 byte",
                ours=system.ours,
            )


def one_byte(bench: Bench, system: System, tree: Path) -> Run:
    """Reads single bytes without read-ahead, and counts the blocks that each of them fetches. Bytes 1 MiB before and
    behind are read first: they bring the index, which lies in the same block or in the other's."""
    counts = []
    source = tree / FILE
    with opened(bench, system, tree) as mount, source.open("rb") as truth:
        assert mount.counter
        machine.drop_caches()
        shown = os.open(mount.root / FILE, os.O_RDONLY)
        try:
            os.posix_fadvise(shown, 0, 0, os.POSIX_FADV_RANDOM)
            for start in range(BETWEEN, source.stat().st_size - BETWEEN, BETWEEN):
                for near in (start - NEAR, start + NEAR):
                    os.pread(shown, 1, near)
                time.sleep(SETTLE_S if mount.pid else 0)  # a server may read ahead behind its answer
                before = mount.counter.read()
                byte = os.pread(shown, 1, start)
                time.sleep(SETTLE_S if mount.pid else 0)
                counts.append(mount.counter.since(before)["fetched_bytes"] / 4096)
                if byte != os.pread(truth.fileno(), 1, start):
                    raise Failed(f"{system.name}: a wrong byte at {start}")
        finally:
            os.close(shown)
    mean = statistics.fmean(counts)
    return {"most_blocks": max(counts), "mean_blocks": mean, "spread": statistics.pstdev(counts) / (mean or 1)}


# Sizes of reads when programs start.

SIZES = (4, 16, 64, 128)
SHARES = [Column(f"to_{kib}", f"up to {kib} KiB", "%", "", timed=False) for kib in SIZES]
COUNT = Column("count", "reads", "", "", timed=False)
LARGEST = Column("largest_bytes", "largest", "KiB", "", timed=False)


def start(root: Path, commands: Iterable[list[str]]) -> None:
    """Starts programs one after the other in a root. Their exit codes are not wanted: some miss a display."""
    wake("chroot", "sh")
    for command in commands:
        line = ["chroot", str(root), *command]
        subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=120)


def sizes(bench: Bench) -> Iterator[Row]:
    """Yields the sizes of reads, as asked of the filesystem and as they reach the device."""
    tree, programs = startable(bench)
    trace = bench.stack.enter_context(tracing(bench.scratch / "tracing"))
    kernel, ours = [erofs("lz4", 4), squashfs("lz4", 128), filled("ext4")], erofs("lz4", 4, "kiln mount")
    contestants = [("asked of the filesystem", kernel[0]), ("asked of the filesystem", ours)]
    contestants += [("requests to the device", system) for system in [*(kernel[:1] if bench.quick else kernel), ours]]
    for what, system in contestants:
        find = counted if system.ours else asked if what.startswith("asked") else requests
        theirs = published.row("P", where="table 2", case="share")["value"]

        def run(system: System = system, find: Finder = find, what: str = what) -> Run:
            with opened(bench, system, tree) as mount, bound(mount.root):
                machine.drop_caches()
                return shares(find(mount, trace, lambda: start(mount.root, programs.values()), what))

        yield Row(
            {"reads": what, **system.labels()},
            run,
            command=f"chroot MOUNT PROGRAM: {', '.join(programs)}",
            published={"to_16": theirs} if find is asked else {},
            ours=system.ours,
        )


def shares(lengths: list[int]) -> Run:
    """Returns the distribution of reads by size."""
    if not lengths:
        raise Failed("no read was seen")
    found = {f"to_{kib}": sum(length <= kib << 10 for length in lengths) / len(lengths) for kib in SIZES}
    return {**found, "count": len(lengths), "largest_bytes": max(lengths)}


def asked(mount: Mount, trace: Path, work: Callable[[], None], what: str) -> list[int]:
    """Returns the lengths of reads that the kernel asks of EROFS."""
    lines = traced(trace, ("erofs/erofs_readahead", "erofs/erofs_read_folio"), work)
    pages = [re.search(r"nrpage = (\d+)", line) for line in lines if "erofs_read" in line]
    return [int(match[1]) * 4096 if match else 4096 for match in pages]


def requests(mount: Mount, trace: Path, work: Callable[[], None], what: str) -> list[int]:
    """Returns the lengths of requests that reach the device."""
    assert mount.counter
    device = (mount.counter.file.parent / "dev").read_text().strip().replace(":", ",")
    lines = traced(trace, ["block/block_rq_issue"], work)
    found = (re.search(rf"block_rq_issue: {device} R\w* (\d+) ", line) for line in lines)
    return [int(match[1]) for match in found if match]


def counted(mount: Mount, trace: Path, work: Callable[[], None], what: str) -> list[int]:
    """Returns the lengths of reads that kiln's mount has counted: each by the end of its class."""
    work()
    told = json.loads(quiet(need("kiln"), "stats", "--json", mount.root))
    classes = told["read_sizes" if what.startswith("asked") else "fetch_sizes"]
    ends = {end: (1 << 24) if end == "+Inf" else int(end) for end in classes}
    return [ends[end] for end, count in classes.items() for _ in range(count)]


Finder = Callable[[Mount, Path, Callable[[], None], str], list[int]]


def at(pattern: str, system: str, reader: str = "kernel") -> dict[str, str]:
    """Returns the labels of a row of the first tables."""
    return {"pattern": pattern, "system": system, "reader": reader}


EROFS, BIG = "EROFS lz4 4 KiB", "squashfs lz4 128 KiB"
SQUASH = [f"squashfs lz4 {kib} KiB" for kib in (4, 8, 16, 128)]


def times(results: Results, pattern: str, system: str, good: Callable[[float], bool]) -> Verdict:
    """Judges how many times the bytes asked a system fetches."""
    if verdict := judge.absent(results, "amplification", "text", at(pattern, system)):
        return verdict
    found = results.median("amplification", "text", "times", **at(pattern, system)) or 0
    return Verdict("holds" if good(found) else "no longer", f"{number(found)} times")


def less(results: Results, pattern: str, one: str, others: Sequence[str]) -> Verdict:
    """Judges that a system fetches less than others."""
    labels = [at(pattern, other) for other in others]
    found = judge.order(results, "amplification", "text", "fetched_bytes", at(pattern, one), labels)
    return replace(found, ours=f"{pattern}: {found.ours}") if found.ours else found


def against(results: Results, one: dict[str, str], to: dict[str, str], good: Callable[[float], bool]) -> Verdict:
    """Judges the bytes of a row over those of another."""
    return judge.ratio(results, "amplification", "text", "fetched_bytes", one, to, good)


def least(results: Results) -> Verdict:
    """Judges claim 49: EROFS fetches least at random and in strides."""
    few = (against(results, at(one, EROFS), at(one, BIG), lambda found: found < 0.3) for one in PATTERNS[1:])
    return judge.joined(*(less(results, pattern, EROFS, SQUASH[:-1]) for pattern in PATTERNS[1:]), *few)


def growing(results: Results) -> Verdict:
    """Judges claim 52: at random the bytes grow with the unit."""
    units = [at("random", f"EROFS lz4 {kib} KiB") for kib in (4, 16, 64, 128)]
    return judge.steps(results, "amplification", "text", "fetched_bytes", units)


def one_block(results: Results) -> Verdict:
    """Judges claim 51: blocks that the first byte of a block costs."""
    squash, erofs_ = ({"file": "text", "system": name, "reader": "kernel"} for name in (BIG, EROFS))
    if verdict := judge.absent(results, "amplification", "bytes", squash, erofs_):
        return verdict
    worst = [results.median("amplification", "bytes", "most_blocks", **labels) or 0 for labels in (squash, erofs_)]
    good = worst[0] >= 7 and worst[1] <= 2
    ours = f"{number(worst[0])} blocks by squashfs with 128 KiB, {number(worst[1])} by EROFS with 4 KiB"
    return Verdict("holds" if good else "no longer", ours)


def even(results: Results) -> Verdict:
    """Judges claim 54: the spread of a read's bytes, over text and mixed data, at 128 KiB."""
    names = ("EROFS lz4 128 KiB", BIG)
    found = []
    for name in names:
        labels = [{"file": file, "system": name, "reader": "kernel"} for file in ("text", "mixed")]
        if verdict := judge.absent(results, "amplification", "bytes", *labels):
            return verdict
        found.append(max(results.median("amplification", "bytes", "spread", **one) or 0 for one in labels))
    ours = f"deviation ÷ mean {found[0]:.2f} by EROFS, {found[1]:.2f} by squashfs"
    return Verdict("holds" if found[0] < found[1] else "no longer", ours)


def small(results: Results) -> Verdict:
    """Judges claim 53: the share of small reads that the filesystem is asked for."""
    labels = {"reads": "asked of the filesystem", "reader": "kernel"}
    if verdict := judge.absent(results, "amplification", "sizes", labels):
        return verdict
    share = results.median("amplification", "sizes", "to_16", **labels) or 0
    why = "programs that start here, not 100 apps that are used for three hours"
    return Verdict("holds" if 0.2 <= share <= 0.4 else "no longer", f"{share * 100:.1f} %", why)


CLAIMS = [
    Claim(46, lambda results: times(results, "sequential", BIG, lambda found: found < 0.6)),
    Claim(47, lambda results: times(results, "random", BIG, lambda found: found > 5)),
    Claim(48, lambda results: against(results, at("strided", BIG), at("random", BIG), lambda found: found > 1)),
    Claim(49, least),
    Claim(50, lambda results: judge.joined(*(less(results, "sequential", one, [EROFS]) for one in SQUASH[1:]))),
    Claim(51, one_block),
    Claim(52, growing),
    Claim(53, small),
    Claim(54, even),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "amplification")
    for pattern in PATTERNS:
        for unit in ("4 KiB", "64 KiB"):
            mine, where = f"EROFS lz4 {unit}", f"for {pattern} blocks of 4 KiB"
            peers = ((mine, "the kernel's EROFS"), (BIG, "squashfs with 128 KiB"), ("ext4", "ext4"))
            for name, to in peers:
                said.compare("text", "fetched_bytes", at(pattern, mine, "kiln mount"), at(pattern, name), "bytes",
                             of=f"kiln's mount with clusters of {unit}", to=to, where=where)  # fmt: skip
    return said.sentences()


COLUMNS = [FETCHED, TIMES, REQUESTS, RATE]
SUITE = Suite(
    "amplification",
    "Amplification: bytes and requests for a part of a file",
    "How much does a reader fetch from the device for the bytes that a program asks for? Fixed blocks of input cost a "
    "whole block for one byte; units of output cost one unit or two. The last table shows how large reads are when "
    "programs start, as the filesystem is asked and as the device is.",
    [
        Table("text", "Text: bytes from the device for 16 MiB", COLUMNS, lambda bench: rows(bench, "text"),
              Plot("bars", "times", log_y=True), rounds=3, published="P",
              note="16 MiB of the file's first 512 MiB, in calls of 4 KiB by fio, from a fresh mount with dropped "
              "caches. Counted is what the loop device reads, metadata included. The published figures are for 16 MB "
              "of a file of 954 MiB."),
        Table("mixed", "Mixed data: bytes from the device for 16 MiB", COLUMNS, lambda bench: rows(bench, "mixed"),
              Plot("bars", "times", log_y=True), rounds=3, note="As the first table; a short file has fewer strides."),
        Table("bytes", "One byte: blocks of 4 KiB that the first byte of 128 KiB costs", [MOST, MEAN, SPREAD],
              single_bytes, Plot("bars", "most_blocks"), rounds=1,
              note="One byte in every 3 MiB, without read-ahead; the index was read before."),
        Table("sizes", "Sizes of reads when programs start", [*SHARES, COUNT, LARGEST], sizes,
              Plot("bars", "to_16", series="reads"), rounds=3, published="P",
              note="Programs of a system tree, each started once in a root of its own from a cold mount; trace events "
              "of the kernel tell the sizes. The published share is of 100 apps on a phone in use. kiln's mount counts "
              "by classes."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
