"""Bytes on the disk, and memory that is in use when a file has been read.

In full about 30 minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from lib import disks, images, judge, machine, published, readers
from lib.bench import Bench
from lib.process import measure
from lib.programs import find, need, typed
from lib.readers import System, erofs, filled, opened, squashfs
from lib.results import Results
from lib.suite import RATIO, SIZE, Claim, Column, Plot, Row, Run, Suite, Table, Verdict
from lib.words import Words, percent
from suites._servers import READERS, SERVER_COLUMNS, servers

UNITS = (4, 8, 16, 64, 128, 1024)
METHODS = ("lz4", "lz4hc")


def sizes(bench: Bench) -> Iterator[Row]:
    """Yields the bytes on the disk of two files, by unit and method, then those of filesystems that are filled."""
    for name in ("text", "mixed"):
        tree = readers.one_file(bench, name, 256 << 20)
        for method in METHODS[:1] if bench.quick else METHODS:
            for kib in (4, 128) if bench.quick else UNITS:
                # Level 12 of LZ4HC is the only one of squashfs.
                level = "lz4hc,12" if method == "lz4hc" else method
                for system in (erofs(level, kib, "kiln mount"), erofs(level, kib), squashfs(method, kib)):
                    row = {"file": name, "method": method, "unit": f"{kib} KiB", "program": system.program}
                    made = typed(images.command(system.program, system.options, tree, Path("image")))
                    theirs = project(name, method, kib, system.program)
                    yield Row(row, partial(stored, bench, system, tree), None, made, theirs, system.ours)
        for system in [filled("btrfs", "lzo"), filled("btrfs", "zstd"), filled("ext4"), filled("xfs")]:
            method = system.name.partition(" ")[2] or "none"
            row = {"file": name, "method": method, "unit": "", "program": system.name.partition(" ")[0]}
            yield Row(row, partial(stored, bench, system, tree))


def project(name: str, method: str, kib: int, program: str) -> dict[str, float]:
    """Returns the EROFS project's sizes of silesia.tar, for which the mixed file stands."""
    system = {"mkfs.erofs": "erofs", "mksquashfs": "squashfs"}.get(program)
    if name != "mixed" or method != "lz4hc" or kib not in (4, 16, 64, 128) or not system:
        return {}
    return {"size_bytes": published.row("U2", system=system, block=kib)["size_bytes"]}


def stored(bench: Bench, system: System, tree: Path) -> Run:
    """Returns the size of an image; of a filesystem, what the file takes of its space."""
    length = (tree / readers.FILE).stat().st_size
    if system.program in images.PROGRAMS:
        size = readers.image(bench, system, tree).stat().st_size
    else:
        size = taken(bench, system, tree) - taken(bench, system, bench.directory("empty"))
    return {"size_bytes": size, "ratio": size / length}


def taken(bench: Bench, system: System, tree: Path) -> int:
    """Returns the space that is in use on a mounted filesystem."""
    with opened(bench, system, tree) as mounted:
        found = os.statvfs(mounted.root)
        return (found.f_blocks - found.f_bfree) * found.f_frsize


def root(bench: Bench) -> Iterator[Row]:
    """Yields what a system tree takes with LZ4 and 4 KiB, as the paper's phones have it."""
    tree = bench.tree("rootfs")
    length = disks.entries(tree)[1]
    ways = [("kiln", images.kiln(method, 4)) for method in METHODS]
    ways += [("mkfs.erofs", images.erofs(method, 4)) for method in METHODS]
    ways += [("mkfs.erofs", images.erofs("lz4hc", 4, "-Efragments,dedupe")), ("mksquashfs", images.squash("lz4", 4))]
    for program, options in ways:

        def run(program: str = program, options: str = options) -> Run:
            size = bench.image(program, options, tree).stat().st_size
            return {"size_bytes": size, "ratio": size / length, "saved": 1 - size / length}

        command = typed(images.command(program, options, tree, Path("image")))
        yield Row({"program": program, "options": options}, run, command=command, ours=program == "kiln")


# Memory once a file has been read.

USED = Column("used_bytes", "memory in use after", "MB")
PEAK = Column("peak_bytes", "at most", "MB")
PER = Column("per_byte", "after ÷ file", "")
CACHE = Column("cache_bytes", "page cache", "MB")
PROGRAMS = Column("anon_bytes", "programs' own", "MB")
PARTS = 8
SYSTEMS = [
    erofs("lz4", 4),
    erofs("lz4", 4, "kiln mount"),
    erofs("lz4", 4, "kiln library"),
    erofs("lz4", 4, "erofsfuse"),
    erofs("lz4", 64, "kiln mount"),
    *(squashfs("lz4", kib) for kib in (4, 8, 16, 128)),
    squashfs("lz4", 128, "squashfuse_ll"),
    filled("btrfs", "lzo"),
    filled("ext4"),
    filled("xfs"),
]


def charged(group: Path) -> dict[str, float]:
    """Returns what a control group has in memory, and has had at most: page cache, slab and programs."""
    v1 = (group / "memory.usage_in_bytes").exists()
    usage, peak = ("memory.usage_in_bytes", "memory.max_usage_in_bytes") if v1 else ("memory.current", "memory.peak")
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return {
        "used_bytes": int((group / usage).read_text()),
        "peak_bytes": int((group / peak).read_text()),
        "cache_bytes": int(stat["cache" if v1 else "file"]),
        "anon_bytes": int(stat["rss" if v1 else "anon"]),
    }


def parts(bench: Bench) -> Path:
    """Returns a directory with the text in eight files."""
    source, tree = bench.file("text"), bench.directory("parts")
    length = source.stat().st_size // PARTS
    with source.open("rb") as file:
        for number in range(PARTS):
            (tree / f"part-{number}").write_bytes(file.read(length))
    return tree


def after(bench: Bench) -> Iterator[Row]:
    """Yields the memory in use when all has been read once, by one reader and by eight at the same time."""
    tree = parts(bench)
    checks = readers.Checks(bench, tree)
    systems = [SYSTEMS[0], SYSTEMS[1], SYSTEMS[8], SYSTEMS[11]] if bench.quick else SYSTEMS
    for count in (1, PARTS):
        for system in systems:
            theirs = {"used_bytes": published.row("P", quantity="memory used by squashfs after 1 GB")["value"]}
            yield Row(
                {"readers": str(count), **system.labels()},
                partial(read_all, bench, system, tree, count),
                partial(checks.check, system),
                readers.command_of(system, "sequential").partition(";")[0] + "; cat",
                theirs if count == 1 and system == squashfs("lz4", 128) else {},
                system.ours,
            )


def read_all(bench: Bench, system: System, tree: Path, count: int) -> Run:
    """Reads all files from a fresh mount, and returns what that has brought into memory."""
    names = sorted(path.name for path in tree.iterdir())
    readers.image(bench, system, tree)
    machine.drop_caches()
    for name in ("kiln", "erofsfuse", "squashfuse_ll"):  # programs are no part of what is measured
        measure(["sh", "-c", f"{find(name) or ':'} --version; cat /dev/null"], accept=range(256))
    enough = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with disks.memory_group(enough) as group, opened(bench, system, tree, group) as mounted:
        if system.server:
            lines = [f"cat {name} >/dev/null" for name in names]
            place: Path | None = mounted.root
        else:
            lines, place = [f"{need('kiln')} cat {mounted.root} {name} >/dev/null" for name in names], None
        script = " & ".join([*lines, "wait"]) if count > 1 else " && ".join(lines)
        measure(disks.within(group, ["sh", "-c", script]), cwd=place)
        found = charged(group)
    return {**found, "per_byte": found["used_bytes"] / sum(path.stat().st_size for path in tree.iterdir())}


def size_of(file: str, method: str, kib: int, program: str = "mkfs.erofs") -> dict[str, str]:
    """Returns the labels of an image."""
    return {"file": file, "method": method, "unit": f"{kib} KiB", "program": program}


def pairs(results: Results, units: Sequence[int], good: tuple[float, float]) -> Verdict:
    """Judges sizes of EROFS over squashfs, for both files and methods, at some units."""
    verdicts = []
    for file in ("text", "mixed"):
        for method in METHODS:
            for kib in units:
                rows = size_of(file, method, kib), size_of(file, method, kib, "mksquashfs")
                if verdict := judge.absent(results, "memory", "size", *rows):
                    return verdict
                found = results.ratio("memory", "size", "size_bytes", *rows) or 0
                kind = "holds" if good[0] <= found <= good[1] else "no longer"
                verdicts.append(Verdict(kind, f"{file} {method} {kib} KiB {percent(found)}"))
    return judge.joined(*verdicts)


def shrinking(results: Results) -> Verdict:
    """Judges claim 40: images shrink with each step of the unit."""
    verdicts = []
    for file in ("text", "mixed"):
        for program in ("mkfs.erofs", "mksquashfs"):
            rows = [size_of(file, "lz4hc", kib, program) for kib in UNITS]
            if verdict := judge.absent(results, "memory", "size", *rows):
                return verdict
            found = [results.median("memory", "size", "size_bytes", **row) or 0 for row in rows]
            falls = all(after < before for before, after in zip(found, found[1:], strict=False))
            ours = f"{file} by {program} {percent(found[-1] / found[0])} from 4 KiB to 1 MiB"
            verdicts.append(Verdict("holds" if falls else "no longer", ours))
    return judge.joined(*verdicts)


def read_by(system: str, count: int = 1, reader: str = "kernel") -> dict[str, str]:
    """Returns the labels of a row of memory in use."""
    return {"readers": str(count), "system": system, "reader": reader}


def over(results: Results, system: str, count: int = 1, column: str = "used_bytes") -> float | None:
    """Returns the memory of a system over that of ext4."""
    return results.ratio("memory", "memory", column, read_by(system, count), read_by("ext4", count))


def costs(results: Results, systems: Sequence[str], least: float, most: float) -> Verdict:
    """Judges the memory of systems over that of ext4."""
    rows = [read_by(system) for system in systems]
    if verdict := judge.absent(results, "memory", "memory", read_by("ext4"), *rows):
        return verdict
    found = {system: over(results, system) or 0 for system in systems}
    good = all(least < ratio < most for ratio in found.values())
    ours = ", ".join(f"{system} {percent(ratio)}" for system, ratio in found.items())
    return Verdict("holds" if good else "no longer", ours)


def total(results: Results) -> Verdict:
    """Judges claim 43: memory after a file by its length."""
    labels = read_by("squashfs lz4 128 KiB")
    if verdict := judge.absent(results, "memory", "memory", labels):
        return verdict
    found = results.median("memory", "memory", "per_byte", **labels) or 0
    return Verdict("holds" if 1.2 <= found <= 1.5 else "no longer", f"{found:.2f} times the file")


def gap(results: Results) -> Verdict:
    """Judges claim 44: the peak over ext4's grows with the readers."""
    found = [over(results, "squashfs lz4 128 KiB", count, "peak_bytes") for count in (1, PARTS)]
    if found[0] is None or found[1] is None:
        return judge.absent(results, "memory", "memory", read_by("ext4", PARTS)) or Verdict("not run")
    ours = f"{percent(found[0])} with one reader, {percent(found[1])} with eight"
    return Verdict("holds" if found[1] > found[0] else "no longer", ours)


def third(results: Results) -> Verdict:
    """Judges claim 45: what a system tree saves."""
    labels = {"program": "mkfs.erofs", "options": images.erofs("lz4hc", 4)}
    if verdict := judge.absent(results, "memory", "root", labels):
        return verdict
    found = results.median("memory", "root", "saved", **labels) or 0
    return Verdict("holds" if 0.3 <= found <= 0.5 else "no longer", f"{found * 100:.1f} % with lz4hc")


SQUASH = [f"squashfs lz4 {kib} KiB" for kib in (4, 8, 16, 128)]
CLAIMS = [
    Claim(38, lambda results: pairs(results, (4,), (0.85, 0.95))),
    Claim(39, lambda results: pairs(results, (4, 16, 64, 128), (0, 0.999999))),
    Claim(40, shrinking),
    Claim(41, lambda results: costs(results, SQUASH, 1.3, 9)),
    Claim(42, lambda results: costs(results, ["EROFS lz4 4 KiB"], 0, 1.1)),
    Claim(43, total),
    Claim(44, gap),
    Claim(45, third),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "memory")
    for file in ("text", "mixed"):
        for method in METHODS:
            for kib in (4, 128):
                for peer in ("mkfs.erofs", "mksquashfs"):
                    mine, other = size_of(file, method, kib, "kiln"), size_of(file, method, kib, peer)
                    where = f"for the {file} file with {method} and {kib} KiB"
                    said.compare("size", "size_bytes", mine, other, "bytes", of="kiln's image", to=peer, where=where)
    for name in ("EROFS lz4 4 KiB", "ext4", "squashfs lz4 128 KiB"):
        for count in (1, PARTS):
            mine = read_by("EROFS lz4 4 KiB", count, "kiln mount")
            where = "with one reader" if count == 1 else "with eight readers"
            why = "the image that the server reads is in the page cache, too" if name == "ext4" else ""
            said.compare("memory", "used_bytes", mine, read_by(name, count), "memory", of="kiln's mount",
                         to=f"{name} by the kernel", where=where,
                         why=why)  # fmt: skip
    for image in ("zstd,3 64 KiB", "lzma,6 1024 KiB"):
        for load in ("one file", f"{READERS} readers"):
            row = {"load": load, "image": image}
            mine, other = {**row, "server": "kiln mount --cache 1M"}, {**row, "server": "erofsfuse"}
            said.compare("servers", "memory_bytes", mine, other, "peak memory", of="kiln's mount with 1 MiB of cache",
                         to="erofsfuse", where=f"after {load}, {image}")  # fmt: skip
    return said.sentences()


SUITE = Suite(
    "memory",
    "Ratio and memory: bytes on the disk, and memory that reading takes",
    "How small is a file by each filesystem, and how much memory is in use when it has been read once? Fixed output "
    "compresses better at an equal unit, as the published tables say. Page cache, buffers and servers count alike.",
    [
        Table("size", "Bytes on the disk, by unit and method", [SIZE, RATIO], sizes,
              Plot("bars", "ratio", series="program", only={"method": "lz4"}), rounds=1, published="U2",
              note="Nothing packed together, nothing deduplicated. lz4hc is level 12. Of Btrfs, ext4 and XFS: what is "
              "in use more than on an empty one."),
        Table("root", "A system tree with LZ4 and 4 KiB",
              [SIZE, RATIO, Column("saved", "saved", "%", "more", timed=False)], root, Plot("bars", "saved"), rounds=1,
              note="Against the bytes of regular files."),
        Table("memory", "Memory in use after the text has been read, by one reader and by eight",
              [USED, PEAK, PER, CACHE, PROGRAMS], after, Plot("bars", "used_bytes"), rounds=3, published="P",
              note="512 MiB in eight files, by cat, from a fresh mount. Server and readers are in a control group, "
              "which counts page cache, slab and programs; what a mount takes at once is not in it. Pages of the "
              "library's device go when its program ends. The published figure is for 1 GB."),
        Table("servers", "Memory of servers: after one file of 8 MiB, and under 16 readers",
              SERVER_COLUMNS, servers, Plot("bars", "memory_bytes"), rounds=2,
              note="The readers compare files and pages at random for 30 s while the kernel's caches are dropped."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
