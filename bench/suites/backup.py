"""Images of a system tree as backups: size, time, copying out; cold, in little memory; archives, repositories.

In full about 70 minutes."""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lib import disks, images, machine, published
from lib.bench import Bench
from lib.mounts import mount
from lib.process import Failed, measure, quiet
from lib.programs import need, typed, wake
from lib.suite import CPU, FETCHED, MEMORY, RATE, RATIO, SIZE, WALL, Column, Missing, Plot, Row, Run, Suite, Table
from suites._backup import ONE, PROGRAMS, RESTORE, image_row, options_of, peers, theirs
from suites._backup_claims import CLAIMS, words

BLOCKS = (4, 128, 1024)
ZSTD = ("zstd 1", "zstd 3", "zstd 6", "zstd 15")
LZ4 = ("lz4", "lz4hc 9", "lz4hc 12")
SLOW = ("zstd 15", "lz4hc 9", "lz4hc 12", "lz4hc")
FIRST = [
    *(("squashfs", method) for method in ("zstd 15", "zstd 6", "zstd 3", "zstd 1", "lz4", "lz4hc")),
    *(("erofs", method) for method in (*LZ4, "zstd 3")),
    *(("kiln", method) for method in ("zstd 15", "zstd 6", "zstd 3", "zstd 1", *LZ4)),
]
GRID = [
    *(("squashfs", "default", method) for method in (*ZSTD, "lz4hc", "lz4")),
    *(("squashfs", "no-duplicates", method) for method in ("lz4hc", "lz4")),
    *(("erofs", options, method) for options in ("default", "fragments") for method in LZ4),
    *(("erofs", "fragments", method) for method in ZSTD[:3]),  # at 15 it takes 20 minutes
    *(("kiln", "default", method) for method in (*ZSTD, *LZ4)),
    *(("kiln", "parts", method) for method in ("zstd 3", "lz4hc 12")),
    *(("kiln", options, method) for options in ("no-duplicates", "plain") for method in LZ4[:2]),
]
# A few of these, at 4 KiB and 1 MiB.
QUICK = [("squashfs", "default", "zstd 3"), ("squashfs", "default", "lz4"), ("erofs", "fragments", "lz4")]
QUICK += [("kiln", "default", "zstd 3"), ("kiln", "default", "lz4")]


def first(bench: Bench) -> Iterator[Row]:
    """Yields the rows of the first table, those of kiln at the same settings, and what was not to be had then."""
    tree, image = bench.tree("rootfs"), bench.new("out")
    for system, method in FIRST[3::3] if bench.quick else FIRST:
        row = Row({"system": system, "method": method}, published=theirs("B1", system, method))
        row.most = 1 if method in SLOW or (system, method) == ("erofs", "zstd 3") else None
        options = "fragments" if (system, method) == ("erofs", "zstd 3") else "default"
        yield image_row(bench, row, system, options, 1024, method, tree, image)
    row = Row({"system": "kiln", "method": "zstd 3, parts"})
    yield image_row(bench, row, "kiln", "parts", 1024, "zstd 3", tree, image)


def grid(bench: Bench) -> Iterator[Row]:
    """Yields the 36 rows of the second table, those of kiln, and of EROFS with more methods."""
    tree, image = bench.tree("mini"), bench.new("out")
    for system, options, method in QUICK if bench.quick else GRID:
        for kib in BLOCKS[::2] if bench.quick else BLOCKS:
            labels = {"system": system, "options": options, "KiB": str(kib), "method": method}
            row = Row(labels, published=theirs("B2", system, method, options=options, block=kib))
            row.most = 1 if method in SLOW or (system, method[:4]) == ("erofs", "zstd") else None
            yield image_row(bench, row, system, options, kib, method, tree, image)


# Server, its image's system and method: all with lz4hc.
READERS = [
    ("kernel squashfs", "squashfs", "lz4hc"),
    ("kernel erofs", "erofs", "lz4hc 9"),
    ("kernel erofs", "erofs", "lz4hc 12"),
    ("kernel erofs", "kiln", "lz4hc 12"),
    ("kiln mount", "kiln", "lz4hc 12"),
    ("squashfuse_ll", "squashfs", "lz4hc"),
    ("erofsfuse", "erofs", "lz4hc 12"),
]


def copies(bench: Bench) -> Iterator[Row]:
    """Yields copies by rsync of all files of cold images into memory."""
    tree = bench.tree("mini")
    size = disks.entries(tree)[1]
    for kib in (1024,) if bench.quick else (1024, 64, 4):
        for server, system, method in READERS[:5] if bench.quick else READERS:
            labels = {"KiB": str(kib), "image": f"{system} {method}", "reader": server}
            row = Row(labels, ours=system == "kiln" or server == "kiln mount", command="rsync -a IMAGE/ COPY")
            if kib == 1024 and (server, method) in (("kernel squashfs", "lz4hc"), ("kernel erofs", "lz4hc 9")):
                row.published = published.row("B3", system=system) if system in ("squashfs", "erofs") else {}
            options = options_of(system, "default", kib, method)

            def image(system: str = system, options: str = options) -> Path:
                return bench.image(PROGRAMS[system], options, tree)

            def check(server: str = server, image: Callable[[], Path] = image) -> None:
                with mount(server, image(), bench.directory()) as one:
                    images.compare(bench.digests(tree), one.root)

            def run(server: str = server, image: Callable[[], Path] = image) -> Run:
                room = bench.directory()
                with (
                    disks.tmpfs(room, 2 * size + (256 << 20)),
                    mount(server, image(), bench.directory(), counted=True) as one,
                ):
                    machine.drop_caches()
                    wake("rsync")
                    return one.client([need("rsync"), "-a", f"{one.root}/", str(room / "copy")])

            row.check, row.measure = check, run
            yield row


COPY = Column("copy_s", "copied out", "s")
COPY_FETCHED = Column("fetched_bytes", "read of the source", "MB", timed=False)
STATES = [
    *(("squashfs", "default", method) for method in ("lz4", "zstd 1", "zstd 3", "zstd 6")),
    *(("erofs", options, "lz4") for options in ("default", "fragments")),
    *(("kiln", "default", method) for method in ("lz4", "zstd 1", "zstd 3", "zstd 6")),
]
FEW = [one for one in STATES if one[2] in ("lz4", "zstd 3")]


def states(bench: Bench, little: bool) -> Iterator[Row]:
    """Yields builds from a cold disk to another one and copies of all files out of them, in little memory or not."""
    tree = bench.tree("rootfs")
    place, source, out, _ = bench.stack.enter_context(disks.on_disks(bench.new, tree))
    limit = (80 if bench.quick else 400) * 10**6
    group = bench.stack.enter_context(disks.memory_group(limit)) if little else None
    image, copy = out / "image", out / "copy"

    def run(line: list[str], kind: str) -> Run:
        try:
            machine.drop_caches()
            wake("kiln", "mksquashfs", "mkfs.erofs", "sh")
            before = source.read()
            try:
                cost = measure(disks.within(group, line), flush=image)
            except Failed as error:
                if group and "exit code -9" in str(error):  # that is a result of the table, and no error of ours
                    raise Missing(f"{limit / 1e6:.0f} MB are too few: the kernel has killed the builder") from error
                raise
            fetched = source.since(before)["fetched_bytes"]
            found = cost.run(size_bytes=image.stat().st_size, fetched_bytes=fetched)
            with mount(f"kernel {kind}", image, bench.directory()) as one:
                machine.drop_caches()
                wake("rsync", "sh")
                start = time.perf_counter()
                measure(disks.within(group, [need("rsync"), "-a", f"{one.root}/", str(copy)]))
                quiet("sync", "-f", out)
                return {**found, "copy_s": time.perf_counter() - start}
        finally:
            image.unlink(missing_ok=True)
            shutil.rmtree(copy, ignore_errors=True)

    def read_only() -> Run:
        machine.drop_caches()
        wake("tar", "cat", "sh")
        before = source.read()
        reading = disks.within(group, ["tar", "-C", str(place), "-cf", "-", "."])
        return measure(reading, disks.within(group, ["cat"])).run(
            **{COPY_FETCHED.key: source.since(before)[COPY_FETCHED.key]}
        )

    memory = {"squashfs": "-mem 200M", "kiln": "--memory 64M"}
    for system, way, method in FEW[::2] if bench.quick else FEW if little else STATES:
        row = Row({"system": system, "options": way, "method": method}, ours=system == "kiln")
        options = f"{options_of(system, way, 1024, method)} {memory.get(system, '') if little else ''}"
        try:
            line = images.command(PROGRAMS[system], options, place, image)
        except Missing as error:
            row.reason = str(error)
        else:
            row.command = typed(line)
            row.measure = lambda line=line, system=system: run(line, "squashfs" if system == "squashfs" else "erofs")
        yield row
    yield Row(
        {"system": "tar (reads only)", "options": "none", "method": "none"}, read_only, command="tar -cf - . | cat"
    )


WRITTEN = Column("written", "image written", "MB/s", "more")
CORES = Column("cores", "CPU ÷ wall", "", "")
WAYS = [
    ("squashfs", "no-duplicates"), ("squashfs", "default"), ("erofs", "default"), ("erofs", "dedupe"),
    ("kiln", "no-duplicates"), ("kiln", "default"), ("kiln", "parts"),
]  # fmt: skip


def edit(tree: Path, place: Path, most: int) -> None:
    """Writes files of a tree as they are, with bytes inserted, and with a bit changed; half of them once more."""
    rng = random.Random(3)
    for number, path in enumerate(sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())):
        if most > 0 and 1 << 14 <= path.stat().st_size <= 1 << 22:
            data = path.read_bytes()
            at = rng.randrange(len(data))
            ways = [data, data[:at] + b"edited" + data[at:], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]]
            for way, text in enumerate(ways + ways[:1] * (number % 2)):
                (place / f"{number}-{way}").write_bytes(text)
            most -= len(data)


def dedupe(bench: Bench) -> Iterator[Row]:
    """Yields builds that look for equal files or equal blocks, with lz4."""
    edited, image = bench.directory("edited"), bench.new("out")
    edit(bench.tree("mini"), edited, (2 if bench.quick else 60) << 20)
    for name, tree in (("system", bench.tree("mini")), ("edited duplicates", edited)):
        for kib in (1024,) if bench.quick else (4, 1024):
            for system, options in WAYS:
                row = Row({"tree": name, "system": system, "options": options, "KiB": str(kib)})
                image_row(bench, row, system, options, kib, "lz4", tree, image)
                if work := row.measure:

                    def run(work: Callable[[], Run] = work) -> Run:
                        one = work()
                        return {
                            **one,
                            "cores": one["cpu_s"] / one["wall_s"],
                            "written": one["size_bytes"] / one["wall_s"],
                        }

                    row.measure = run
                yield row


KEPT = Column("kept", "ACLs kept", "%", "more", timed=False)
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Returns a POSIX ACL as the kernel takes it: tag, permissions, id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def acls(bench: Bench) -> Iterator[Row]:
    """Yields systems that may keep POSIX ACLs."""
    tree, nobody = bench.directory("acls"), 2**32 - 1
    kept: dict[str, tuple[str, bytes]] = {}
    for number in range(20):
        words = acl((1, 6, nobody), (2, 4, 1000 + number), (4, 4, nobody), (16, 6, nobody), (32, 0, nobody))
        path, name = tree / f"{number}", ACCESS if number % 2 else DEFAULT
        path.write_text("text") if number % 2 else path.mkdir()
        try:
            os.setxattr(path, name, words)
        except OSError as error:
            raise Missing(f"the scratch directory takes no POSIX ACLs: {error}") from error
        kept[path.name] = (name, words)
    for system, server in (
        ("squashfs", "kernel squashfs"),
        ("erofs", "kernel erofs"),
        ("kiln", "kernel erofs"),
        ("kiln", "kiln mount"),
    ):

        def run(system: str = system, server: str = server) -> Run:
            options = options_of(system, "default", 128, "lz4")
            image = bench.image(PROGRAMS[system], options, tree)
            with mount(server, image, bench.directory()) as one:
                equal = sum(found(one.root / path, name) == words for path, (name, words) in kept.items())
            return {"kept": equal / len(kept)}

        yield Row({"system": system, "reader": server}, run, ours=system == "kiln")


def found(path: Path, name: str) -> bytes | None:
    """Returns an extended attribute; None if there is none."""
    try:
        return os.getxattr(path, name)
    except OSError:
        return None


BUILD = [SIZE, RATIO, WALL, RATE, CPU, MEMORY]
THERE_AND_BACK = [WALL, SIZE, COPY, CPU, MEMORY, COPY_FETCHED]
SUITE = Suite(
    "backup",
    "Backups of a system tree: images, archives, repositories",
    "What does it cost to keep a system tree, and to get it back? A backup operator has compared squashfs and EROFS "
    "in 7, 36 and 2 rows. They run again, with kiln at the same settings, and with what was not to be had then: "
    "threads and zstd in mkfs.erofs.",
    [
        Table(
            "first",
            "Seven rows at 1 MiB, and ours",
            BUILD,
            first,
            Plot("bars", "wall_s", series="system", log_y=True),
            rounds=3,
            published="B1",
            note="The tree is in memory; the time ends when the image is on the disk; all threads. Slow methods run "
            "once. kiln stores whole duplicates once, as squashfs does, or equal parts (parts). EROFS has "
            "fragments with zstd only.",
        ),
        Table(
            "grid",
            "The 36 rows: method, block, duplicates, fragments; with kiln and more of EROFS",
            BUILD,
            grid,
            Plot("scatter", "size_bytes", x="cpu_s", series="system", log_x=True),
            rounds=3,
            published="B2",
            note="A smaller tree than the first table's, the same for all rows. Slow methods run once. lz4hc of "
            "squashfs is level 12. kiln: default stores whole duplicates once, parts equal parts, too; "
            "no-duplicates packs small files together only; plain does neither, as EROFS by default.",
        ),
        Table(
            "copies",
            "All files copied out by rsync, cold, all with lz4hc",
            [WALL, CPU, FETCHED, MEMORY],
            copies,
            Plot("bars", "wall_s", series="image"),
            published="B3",
            note="Caches dropped, into a filesystem in memory. The CPU is that of rsync, server and kernel, the "
            "memory the server's. Theirs says level 9 on both; squashfs runs 12, so EROFS has a row for each.",
        ),
        Table(
            "peers",
            "Archives, repositories and images, there and back",
            [SIZE, WALL, RESTORE, ONE, CPU, MEMORY],
            peers,
            Plot("scatter", "size_bytes", x="wall_s", series="program", log_x=True),
            rounds=3,
            note="The tree is in memory when it is kept. All files and one file come back from a cold disk into a "
            "filesystem in memory, by the program's own means. restic encrypts. Slow levels run once.",
        ),
        Table(
            "cold",
            "From a cold disk and back again, blocks of 1 MiB",
            THERE_AND_BACK,
            lambda bench: states(bench, False),
            Plot("bars", "wall_s", series="system"),
            rounds=3,
            note="Tree and image lie on two ext4 on loop devices that read past the page cache. The kernel mounts "
            "all images, and rsync copies all files to the second disk.",
        ),
        Table(
            "memory",
            "From a cold disk and back again in 400 MB of memory",
            THERE_AND_BACK,
            lambda bench: states(bench, True),
            Plot("bars", "wall_s", series="system"),
            rounds=3,
            note="Builder and rsync share 400 MB with their page cache. mksquashfs has -mem 200M, kiln --memory 64M; "
            "mkfs.erofs has no such option.",
        ),
        Table(
            "dedupe",
            "Equal files and equal blocks, with lz4",
            [SIZE, WALL, CPU, CORES, WRITTEN, MEMORY],
            dedupe,
            Plot("bars", "size_bytes", series="options"),
            rounds=3,
            note="Edited duplicates: each file as it is, with six bytes inserted, and with one bit changed; half of "
            "them once more.",
        ),
        Table(
            "acls",
            "POSIX ACLs that come back",
            [KEPT],
            acls,
            Plot("bars", "kept"),
            rounds=1,
            note="Twenty files and directories; attributes are compared byte for byte, as getfacl would print them.",
        ),
    ],
    words,
    CLAIMS,
)
