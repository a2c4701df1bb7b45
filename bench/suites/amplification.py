"""Bytes and requests that a reader of a part fetches; one byte of a block; sizes of reads when programs start.

In full about 15 minutes."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lib import judge, machine, published, readers
from lib.bench import Bench
from lib.disks import mounted
from lib.process import Failed, quiet
from lib.programs import need
from lib.readers import FILE, Checks, System, erofs, filled, opened, squashfs
from lib.results import Results
from lib.suite import FETCHED, RATE, REQUESTS, Claim, Column, Missing, Plot, Row, Run, Suite, Table, Verdict
from lib.words import Words, number

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


def bytes_(bench: Bench) -> Iterator[Row]:
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
                before = mount.counter.read()
                byte = os.pread(shown, 1, start)
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
STARTS = (
    "python3 -c 'import json, ssl, asyncio'",
    "perl -MPOSIX -e 1",
    "git --version",
    "gcc --version",
    "bash -c :",
    "tar --version",
    "ls --version",
    "find --version",
    "awk --version",
    "gdb --version",
    "vim --version",
    "curl --version",
    "sqlite3 -version",
)


def programs(bench: Bench) -> tuple[Path, list[str]]:
    """Returns a tree with programs, and the commands that start those which it has: a system tree, or some programs of
    this machine with their libraries."""
    tree = bench.tree("rootfs")
    if not (tree / "bin/sh").exists():
        tree = bench.directory("programs")
        for name in ("sh", "bash", "perl", "tar", "ls", "find"):
            path = shutil.which(name)
            libraries = re.findall(r"(/\S+)", quiet("ldd", path)) if path else []
            for file in [*([path] if path else []), *libraries]:
                target = tree / file.removeprefix("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
                if file == path:
                    (tree / "bin").mkdir(exist_ok=True)
                    shutil.copy(file, tree / "bin" / name)
    found = [start for start in STARTS if shutil.which(start.split()[0], path=path_of(tree))]
    if not found:
        raise Missing("the tree has none of the programs")
    return tree, found


def path_of(tree: Path) -> str:
    """Returns the search path of programs in a tree."""
    return ":".join(str(tree / folder) for folder in ("bin", "usr/bin"))


def start(root: Path, commands: Sequence[str]) -> None:
    """Starts programs one after the other in a root. Their results are not wanted: without /proc some complain."""
    for command in commands:
        line = ["chroot", str(root), "/bin/sh", "-c", f"exec {command}"]
        subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60)


def sizes(bench: Bench) -> Iterator[Row]:
    """Yields the sizes of reads, as asked of the filesystem and as they reach the device."""
    tree, commands = programs(bench)
    contestants: list[tuple[str, System, Callable[[System], list[int]]]] = []
    trace = bench.stack.enter_context(tracing(bench.scratch / "tracing"))
    kernel = [erofs("lz4", 4), squashfs("lz4", 128), filled("ext4")]
    contestants.append(
        ("asked of the filesystem", kernel[0], lambda system: asked(bench, system, tree, commands, trace))
    )
    for system in kernel if not bench.quick else kernel[:1]:
        contestants.append(
            ("requests to the device", system, lambda system: requests(bench, system, tree, commands, trace))
        )
    ours = erofs("lz4", 4, "kiln mount")
    for what, key in (("asked of the filesystem", "read_sizes"), ("requests to the device", "fetch_sizes")):
        contestants.append((what, ours, lambda system, key=key: counted(bench, system, tree, commands, key)))
    for what, system, find in contestants:
        yield Row(
            {"reads": what, **system.labels()},
            lambda system=system, find=find: shares(find(system)),
            command="chroot MOUNT sh -c ...: " + ", ".join(command.split()[0] for command in commands),
            published={"to_16": published.row("P", where="table 2", case="share")["value"]} if what[0] == "a" else {},
            ours=system.ours,
        )


def shares(lengths: list[int]) -> Run:
    """Returns the distribution of reads by size."""
    if not lengths:
        raise Failed("no read was seen")
    found = {f"to_{kib}": sum(length <= kib << 10 for length in lengths) / len(lengths) for kib in SIZES}
    return {**found, "count": len(lengths), "largest_bytes": max(lengths)}


@contextmanager
def tracing(place: Path) -> Iterator[Path]:
    """The kernel's trace events, in an instance of our own. Raises Missing."""
    machine.need_root("tracing")
    try:
        with mounted(Path("tracefs"), place, "tracefs", "rw"):
            instance = place / "instances/kiln-bench"
            instance.mkdir()
            try:
                (instance / "buffer_size_kb").write_text("16384")
                yield instance
            finally:
                instance.rmdir()
    except (Failed, OSError) as error:
        raise Missing(f"no trace events in this kernel: {error}") from error


def traced(trace: Path, events: Sequence[str], work: Callable[[], None]) -> list[str]:
    """Does work, and returns the lines of events meanwhile."""
    (trace / "trace").write_text("")
    for event in events:
        (trace / "events" / event / "enable").write_text("1")
    try:
        work()
    finally:
        for event in events:
            (trace / "events" / event / "enable").write_text("0")
    return (trace / "trace").read_text().splitlines()


def asked(bench: Bench, system: System, tree: Path, commands: Sequence[str], trace: Path) -> list[int]:
    """Returns the lengths of reads that the kernel asks of EROFS."""
    with opened(bench, system, tree) as mount:
        machine.drop_caches()
        events = ("erofs/erofs_readahead", "erofs/erofs_read_folio")
        lines = traced(trace, events, lambda: start(mount.root, commands))
    pages = [re.search(r"nrpage = (\d+)", line) for line in lines if "erofs_read" in line]
    return [int(match[1]) * 4096 if match else 4096 for match in pages]


def requests(bench: Bench, system: System, tree: Path, commands: Sequence[str], trace: Path) -> list[int]:
    """Returns the lengths of requests that reach the device."""
    with opened(bench, system, tree) as mount:
        machine.drop_caches()
        assert mount.counter
        number_ = (mount.counter.file.parent / "dev").read_text().strip().replace(":", ",")
        lines = traced(trace, ["block/block_rq_issue"], lambda: start(mount.root, commands))
    found = (re.search(rf"block_rq_issue: {number_} R\w* (\d+) ", line) for line in lines)
    return [int(match[1]) for match in found if match]


def counted(bench: Bench, system: System, tree: Path, commands: Sequence[str], key: str) -> list[int]:
    """Returns the lengths of reads that kiln's mount has counted: each by the end of its class."""
    with opened(bench, system, tree) as mount:
        machine.drop_caches()
        start(mount.root, commands)
        classes = json.loads(quiet(need("kiln"), "stats", "--json", mount.root))[key]
    ends = {end: (1 << 24) if end == "+Inf" else int(end) for end in classes}
    return [ends[end] for end, count in classes.items() for _ in range(count)]


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


def least(results: Results) -> Verdict:
    """Judges claim 49: EROFS fetches least at random and in strides."""
    verdicts = []
    for pattern in PATTERNS[1:]:
        mine = at(pattern, EROFS)
        verdicts.append(
            judge.order(
                results, "amplification", "text", "fetched_bytes", mine, [at(pattern, name) for name in SQUASH[:-1]]
            )
        )
        verdicts.append(
            judge.ratio(
                results, "amplification", "text", "fetched_bytes", mine, at(pattern, BIG), lambda found: found < 0.3
            )
        )
    return judge.joined(*verdicts)


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
    Claim(
        48,
        lambda results: judge.ratio(
            results, "amplification", "text", "fetched_bytes", at("strided", BIG), at("random", BIG), lambda x: x > 1
        ),
    ),
    Claim(49, least),
    Claim(
        50,
        lambda results: judge.joined(
            *(
                judge.order(
                    results,
                    "amplification",
                    "text",
                    "fetched_bytes",
                    at("sequential", name),
                    at("sequential", EROFS),
                )
                for name in SQUASH[1:]
            )
        ),
    ),
    Claim(51, one_block),
    Claim(
        52,
        lambda results: judge.steps(
            results,
            "amplification",
            "text",
            "fetched_bytes",
            [at("random", f"EROFS lz4 {kib} KiB") for kib in (4, 16, 64, 128)],
        ),
    ),
    Claim(53, small),
    Claim(54, even),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "amplification")
    for pattern in PATTERNS:
        for mine, of in ((EROFS, "4 KiB"), ("EROFS lz4 64 KiB", "64 KiB")):
            for name, to, reader in (
                (mine, "the kernel on EROFS of the same unit", "kernel"),
                (BIG, "squashfs with 128 KiB", "kernel"),
                ("ext4", "ext4", "kernel"),
            ):
                said.compare(
                    "text",
                    "fetched_bytes",
                    at(pattern, mine, "kiln mount"),
                    at(pattern, name, reader),
                    "bytes",
                    of=f"kiln's mount with clusters of {of}",
                    to=to,
                    where=f"for {pattern} blocks of 4 KiB",
                )
    return said.sentences()


COLUMNS = [FETCHED, TIMES, REQUESTS, RATE]
NOTE = (
    "16 MiB of the file's first 512 MiB, in calls of 4 KiB by fio, from a fresh mount with dropped caches. Counted is what "
    "the loop device reads, metadata included. The published figures are for 16 MB of a file of 954 MiB."
)
SUITE = Suite(
    "amplification",
    "Amplification: bytes and requests for a part of a file",
    "How much does a reader fetch from the device for the bytes that a program asks for? Fixed blocks of input cost a "
    "whole block for one byte; units of output cost one unit or two. The last table shows how large reads are when "
    "programs start, as the filesystem is asked and as the device is.",
    [
        Table(
            "text",
            "Text: bytes from the device for 16 MiB",
            COLUMNS,
            lambda bench: rows(bench, "text"),
            Plot("bars", "times", log_y=True),
            rounds=3,
            published="P",
            note=NOTE,
        ),
        Table(
            "mixed",
            "Mixed data: bytes from the device for 16 MiB",
            COLUMNS,
            lambda bench: rows(bench, "mixed"),
            Plot("bars", "times", log_y=True),
            rounds=3,
            note="As the first table; a short file has fewer strides.",
        ),
        Table(
            "bytes",
            "One byte: blocks of 4 KiB that the first byte of 128 KiB costs",
            [MOST, MEAN, SPREAD],
            bytes_,
            Plot("bars", "most_blocks"),
            rounds=1,
            note="One byte in every 3 MiB, without read-ahead; the index was read before.",
        ),
        Table(
            "sizes",
            "Sizes of reads when programs start",
            [*SHARES, COUNT, LARGEST],
            sizes,
            Plot("bars", "to_16", series="reads"),
            rounds=3,
            published="P",
            note="13 programs of a system tree, each started once in a root of its own from a cold mount; the kernel's trace "
            "events tell the sizes. The published share is of 100 apps on a phone in use. kiln's mount counts by classes.",
        ),
    ],
    words,
    CLAIMS,
)
