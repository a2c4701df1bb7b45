"""`ls -lR` cold and warm through images, directories and stacks; sizes of metadata; look-ups of names.

In full about 45 minutes: most of it the million."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lib import disks, images, published
from lib.bench import Bench
from lib.mounts import mount, serving
from lib.process import quiet
from lib.programs import need
from lib.suite import CPU, FETCHED, REQUESTS, SIZE, WALL, Column, Plot, Row, Run, Suite, Table, Wrong
from suites import _random
from suites._lslr_claims import APART, CLAIMS, METADATA, L, words
from suites._stacks import (
    EROFS,
    EXT4,
    HOLES,
    KILN,
    LIST,
    M1,
    M2,
    METABOX,
    NOT_COMPRESSED,
    SQUASH,
    SQUASHED,
    STORED,
    Home,
    Stack,
    home,
    listed,
    made,
    read_all,
    same,
)

COLD, WARM = Column("wall_s", "caches dropped", "s"), Column("warm_s", "warm", "s")
SLAB = Column("slab_bytes", "inodes and dentries", "MB")
COLUMNS = [COLD, WARM, Column("cpu_s", "CPU, dropped", "s"), FETCHED, REQUESTS, SLAB]
NEVER = "composefs 3 was a filesystem of its own and was never merged; composefs of today is EROFS and overlayfs"


def stacks(bench: Bench, which: Sequence[Stack], table: str) -> Iterator[Row]:
    """Yields `ls -lR` of stacks; the published figures stand beside those that they are of."""
    place = home(bench, bench.tree("linux-source"))
    for stack in which[:12] if bench.quick else which:
        row = Row({"stack": stack.name}, ours=stack.ours, command=stack.maker.strip())
        row.measure = lambda stack=stack: listed(bench, stack, place)
        row.check = lambda stack=stack: same(bench, stack, place)
        row.published = figures(table, stack.name)
        yield row
    yield Row({"stack": "composefs"}, reason=NEVER, published=figures(table, "composefs"))


def figures(table: str, stack: str) -> dict[str, float]:
    """Returns the published figures of a stack; empty if there are none."""
    try:
        dropped, warm = (published.row(table, stack=stack, caches=caches)["wall_s"] for caches in ("dropped", "warm"))
    except LookupError:
        return {}
    return {"wall_s": dropped, "warm_s": warm}


def million(bench: Bench) -> Iterator[Row]:
    """Yields `ls -lR` of a generated tree, bare and under overlayfs."""
    count = 3 if bench.quick else 1000
    work = bench.stack.enter_context(disks.tmpfs(bench.new(), 4 << 30))
    source, rng = work / "meta", random.Random(1)
    source.mkdir()
    for folder in range(count):
        (source / f"d{folder:04}").mkdir()
        for name in range(100 if bench.quick else 1000):
            path = source / f"d{folder:04}" / f"file-{rng.getrandbits(32):08x}-{name}"
            path.touch()
            os.truncate(path, rng.randrange(1 << 16))
    place = Home(work, source, Path("/dev/none"))
    systems = [("erofs", HOLES, EROFS), ("squashfs", SQUASHED, SQUASH), ("ext4", "mkfs.ext4 -d", EXT4)]
    systems += [("kiln", KILN, EROFS), ("kiln, metadata compressed", METABOX, EROFS)]
    for name, maker, kind in systems:
        for over in ("",) if bench.quick else ("", "empty"):
            stack = Stack(f"overlayfs + {name}" if over else name, maker, kind, over)
            row = Row({"stack": stack.name}, ours=stack.ours, command=maker.strip())
            row.measure = lambda stack=stack: listed(bench, stack, place)
            row.check = None if over else lambda stack=stack: same(bench, stack, place)
            yield row


def sizes(bench: Bench, table: str) -> Iterator[Row]:
    """Yields sizes of images of metadata only."""
    place = home(bench, bench.tree("linux-source"))

    def without_lengths() -> float:
        short = bench.directory("short")
        quiet("cp", "-a", "--attributes-only", place.meta, short)
        return made(bench, STORED, short / "meta").stat().st_size

    def undigested() -> float:
        image = bench.new("undigested.cfs")
        dump = quiet(need("composefs-info"), "dump", place.composefs)
        lines = re.sub(r"^(\S+(?: \S+){9}) \S+", r"\1 -", dump, flags=re.MULTILINE)
        quiet(need("mkcomposefs"), "--from-file", "-", image, stdin=lines.encode())
        size = image.stat().st_size
        image.unlink()
        return size

    def built(maker: str) -> Callable[[], float]:
        return lambda: made(bench, maker, place.meta).stat().st_size

    cfs = lambda: place.composefs.stat().st_size  # noqa: E731
    ways: list[tuple[str, Callable[[], float], str]] = {
        "M1-sizes": [
            ("squashfs", built(SQUASHED), "squashfs"),
            ("composefs", cfs, "composefs"),
            ("ext4", built("mkfs.ext4 -d"), "ext4"),
            ("erofs", built(STORED), "erofs"),
            ("erofs, files of length 0", without_lengths, "erofs, files of length 0"),
        ],
        "M2-sizes": [
            ("composefs", cfs, "composefs"),
            ("composefs, without digests", undigested, "composefs, without digests"),
            ("erofs, holes kept", built(HOLES), "erofs"),
            ("erofs, holes kept, -T0", built(f"{HOLES} -T0"), "erofs, -T0"),
            ("squashfs", built(SQUASHED), "squashfs"),
            ("squashfs, nothing compressed", built(NOT_COMPRESSED), "squashfs, nothing compressed"),
        ],
    }[table]
    ways += [
        ("kiln", built(KILN), ""),
        ("kiln --mtime 0", built(f"{KILN} --mtime 0"), ""),
        ("kiln by default", built("kiln "), ""),
        ("kiln, metadata compressed", built(METABOX), ""),
    ]
    for name, way, of in ways:
        one = Row({"image": name}, lambda way=way: {"size_bytes": way()}, ours=name.startswith("kiln"))
        one.published = published.row(table, image=of) if of else {}
        yield one


LAYOUTS = [
    "kiln ",
    "kiln --layout compress-dirs",
    "kiln --kernel 6.15",
    "kiln --kernel 6.15 --layout compress-dirs",
    "kiln --layout metadata=8K",
    "kiln --layout metadata",
    "kiln --layout metadata=128K",
    "kiln --layout metadata --layout extents=index",
    "mkfs.erofs -zzstd,3 -C65536 -Efragments",
    "mkfs.erofs -zzstd,3 -C65536 -Efragments -m32768 --zD=0",  # 1.9.4 takes 0 for on
    "mksquashfs -comp zstd -Xcompression-level 3",
    "mksquashfs -comp zstd -Xcompression-level 3 -noI",
]


def counted(bench: Bench, maker: str, tree: Path, lines: int) -> Run:
    """Lists an image with caches dropped, and compares the number of entries."""
    kind = SQUASH if maker.startswith("mksquashfs") else EXT4 if "ext4" in maker else EROFS
    with mount(kind, made(bench, maker, tree), bench.new("mount"), counted=True) as found:
        run = found.client(LIST, cold=True)
        seen = disks.entries(found.root)[0]
        if abs(seen - lines) > (1 if kind == EXT4 else 0):  # ext4 has lost+found
            raise Wrong(f"{seen} entries, not {lines}")
        return run


def layouts(bench: Bench) -> Iterator[Row]:
    """Yields ways to store the metadata of a tree with its data: size, cost of the build, of a cold listing."""
    tree = bench.tree("linux-source")
    lines = bench.warm(tree) and disks.entries(tree)[0]
    spent: dict[str, float] = {}
    for maker in LAYOUTS[::4] if bench.quick else LAYOUTS:

        def work(maker: str = maker) -> Run:
            before = os.times()
            image = made(bench, maker, tree)
            after = os.times()
            cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
            built_s = spent.setdefault(maker, cpu_s)
            return {**counted(bench, maker, tree, lines), "size_bytes": image.stat().st_size, "built_s": built_s}

        yield Row({"image": maker.strip()}, work, ours=maker.startswith("kiln"), command=maker.strip())


def apart(bench: Bench) -> Iterator[Row]:
    """Yields a cold listing of images with data, on storage that takes 1 ms a request."""
    tree = bench.tree("mini")
    lines = disks.entries(tree)[0]
    for name, maker in APART[::2] if bench.quick else APART:

        def work(maker: str = maker) -> Run:
            size = disks.entries(tree)[1]
            image = bench.kept((maker, "late"), lambda path: late_image(maker, tree, path, size))
            kind = SQUASH if maker.startswith("mksquashfs") else EXT4 if "ext4" in maker else EROFS
            slow = bench.directory("slow")
            with (
                serving([need("slow_file"), "--cached", str(image), str(slow), "1000"], slow),
                mount(kind, slow / image.name, bench.new("mount"), counted=True) as found,
            ):
                run = found.client(LIST, cold=True)
                if abs(disks.entries(found.root)[0] - lines) > 1:
                    raise Wrong("entries are missing")
                return run

        yield Row({"image": name}, work, ours=maker.startswith("kiln"), command=maker.strip())


def late_image(maker: str, tree: Path, path: Path, size: int) -> None:
    """Makes an image with data."""
    program, _, options = maker.partition(" ")
    if program == "mkfs.ext4":
        disks.filled(path, "ext4", tree)
    else:
        quiet(*images.command(program, options, tree, path))


THERE = Column("there_s", "a name that is there", "s")
MISSING = Column("missing_s", "a name that is not", "s")


def lookups(bench: Bench) -> Iterator[Row]:
    """Yields look-ups in flat directories: names that are there and that are not, metadata in memory."""
    work = bench.stack.enter_context(disks.tmpfs(bench.new(), 6 << 30))
    rng = random.Random(1)
    for power in (2, 3) if bench.quick else (3, 5, 6):
        tree = work / f"names-{power}"
        (tree / "flat").mkdir(parents=True)
        names = [f"{rng.getrandbits(64):016x}.dat" for _ in range(10**power)]
        for name in names:
            os.mknod(tree / "flat" / name)
        systems = [("squashfs", SQUASHED, SQUASH), ("erofs", STORED, EROFS), ("kiln", "kiln --preset plain", EROFS)]
        systems += [("kiln, metadata compressed", METABOX, EROFS), ("kiln mount", "kiln --preset plain", "kiln mount")]
        for label, maker, kind in systems[:3] if bench.quick else [*systems, ("ext4", "ext4", EXT4)]:

            def look(tree: Path = tree, names: list[str] = names, maker: str = maker, kind: str = kind) -> Run:
                image = bench.kept(("looked", maker, str(tree)), lambda path: looked(maker, tree, path))
                with mount(kind, image, bench.new("mount"), counted=kind != "kiln mount") as found:
                    os.listdir(found.root / "flat")
                    hits = random.Random(2).sample(names, min(1000, len(names)))
                    return {"there_s": asked(found.root, hits), "missing_s": asked(found.root, [f"{n}x" for n in hits])}

            yield Row({"system": label, "names": str(10**power)}, look, ours="kiln" in label, command=maker.strip())


def looked(maker: str, tree: Path, path: Path) -> None:
    """Makes an image of a flat directory."""
    if maker == "ext4":
        disks.filled(path, "ext4", tree)
    else:
        program, _, options = maker.partition(" ")
        quiet(*images.command(program, options, tree, path))


def asked(root: Path, names: list[str], limit_s: float = 5.0) -> float:
    """Returns the seconds of one look-up. The kernel forgets dentries and inodes before."""
    quiet("sh", "-c", "echo 2 > /proc/sys/vm/drop_caches")
    flat = os.open(root / "flat", os.O_RDONLY | os.O_DIRECTORY)
    try:
        start, done = time.perf_counter(), 0
        for name in names:
            try:
                os.stat(name, dir_fd=flat)
            except FileNotFoundError:
                pass
            done += 1
            if time.perf_counter() - start > limit_s:
                break
        return (time.perf_counter() - start) / done
    finally:
        os.close(flat)


def equal(bench: Bench) -> Iterator[Row]:
    """Yields reads of all files through stacks that follow redirects, each compared with the source."""
    place = home(bench, bench.tree("mini"))
    wanted = bench.digests(place.source)
    for stack in (M1[7], M1[4]) if bench.quick else (M1[7], M1[8], M1[4], M1[5]):

        def check(stack: Stack = stack) -> None:
            with stack.opened(bench, place) as found:
                shown = images.digests(found.root)
            whiteouts = {path for path in shown if len(path) == 2 and path not in wanted}
            different = [
                path for path in wanted.keys() | shown.keys() - whiteouts if wanted.get(path) != shown.get(path)
            ]
            if different:
                raise Wrong(f"{min(different)}: other contents")

        def work(stack: Stack = stack) -> Run:
            with stack.opened(bench, place) as found:
                return found.during(lambda: read_all(found.root), cold=True)

        yield Row({"stack": stack.name}, work, check, ours=stack.ours)


NOTE = (
    "Kernel sources as metadata only: sparse files that refer to objects by attributes of overlayfs, whiteouts at "
    "the root. Images lie behind loop devices past the page cache unless they are read by file. A fresh mount each "
    "run. Warm is the next listing. The published tree was the root of a system."
)
MADE = "The published trees were others: only the order and quotients can be compared."
SUITE = Suite(
    L,
    "Listing trees: ls -lR cold and warm, bare and stacked",
    "How long does `ls -lR` take through images, directories and stacks of filesystems, with caches dropped and warm? "
    "How large are images of metadata, and how fast is a single name found?",
    [
        Table("stacks", "ls -lR through the published stacks and ours", COLUMNS, lambda bench: stacks(bench, M1, "M1"),
              Plot("bars", "wall_s"), 10, 1, "M1", NOTE),
        Table("bare", "ls -lR of images, bare and under overlayfs", COLUMNS, lambda bench: stacks(bench, M2, "M2"),
              Plot("bars", "wall_s"), 10, 1, "M2", NOTE),
        Table("million", "ls -lR of a million entries", COLUMNS, million, Plot("bars", "wall_s"), 3,
              note="A thousand directories of a thousand sparse files. The stack has an empty directory below."),
        Table("sizes-first", "Sizes of images of metadata, first published table", [SIZE],
              lambda bench: sizes(bench, "M1-sizes"), Plot("bars", "size_bytes", log_y=True), 1, 1, "M1-sizes",
              f"{MADE} ext4's size is a parameter; ours has room for half as much again."),
        Table("sizes-second", "Sizes of images of metadata, second published table", [SIZE],
              lambda bench: sizes(bench, "M2-sizes"), Plot("bars", "size_bytes", log_y=True), 1, 1, "M2-sizes", MADE),
        Table("layouts", "Layouts of metadata beside compressed data", [SIZE, COLD, FETCHED, REQUESTS,
              Column("built_s", "CPU of the build", "s"), CPU], layouts,
              Plot("scatter", "fetched_bytes", x="size_bytes"), 5, note="Kernel sources with their data, zstd 3."),
        Table("apart", "A cold listing at 1 ms a request: inodes together and apart", [WALL, REQUESTS, FETCHED], apart,
              Plot("bars", "wall_s"), 2, modelled=True, note="Images with data, not compressed."),
        Table("lookups", "Look-ups of single names in flat directories", [THERE, MISSING], lookups,
              Plot("lines", "there_s", x="names", series="system", log_x=True, log_y=True), 3,
              note="A thousand names at random, 5 s at most; dentries are dropped, metadata stay in memory."),
        Table("random", "Attributes of a system tree in random order, by one reader", _random.COLUMNS,
              lambda bench: _random.rows(bench, *METADATA[2 * bench.quick :]),
              Plot("bars", "wall_s", series="system", log_y=True), 3, 1, "U1",
              "Caches dropped. The published disk gave 3,000 requests a second."),
        Table("equal", "All files read through stacks, compared with the source", [WALL, CPU], equal,
              Plot("bars", "wall_s"), 3, note="Caches dropped; the digests of all files were compared before."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
