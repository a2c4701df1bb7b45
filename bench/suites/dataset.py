"""Data sets of many small files: whole files at random, slow storage, copies, space.

In full about 55 minutes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lib import disks, machine, published
from lib.bench import Bench
from lib.mounts import Mount, serving
from lib.process import Failed, measure, quiet
from lib.programs import need, reason, typed
from lib.storage import BY_NAME, storage
from lib.suite import (
    CPU,
    MEMORY,
    SIZE,
    WALL,
    Column,
    Missing,
    Plot,
    Row,
    Run,
    Suite,
    Table,
)
from suites import _random
from suites._dataset import KILN, SYSTEMS, Data, System, copy_of, ext4_by_d, forget, make, named
from suites._dataset_claims import CLAIMS, FILES_TESTS, PUBLISHED_DEPTHS, D, words

RATE = Column("rate", "files", "/s", "more")
CPU_FILE = Column("cpu_file_s", "CPU a file", "s")
READ = [RATE, CPU_FILE, WALL, MEMORY]
SHARE = Column("ratio", "size ÷ data", "%", timed=False)
DEPTHS = (1, 2, 4, 8, 16, 32, 64)

# The published number needs 21 GiB for files and images.
FILES = 65536 if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 30e9 else 32768


def dataset(bench: Bench, quick: int = 256) -> Data:
    """Returns the files and their images."""
    return Data.of(bench, quick if bench.quick else FILES)


def row(data: Data, system: System, labels: dict[str, str], measure: Callable[[], Run], check: bool) -> Row:
    """Returns a row of a system; the first of each compares bytes."""
    checking = (lambda: data.check(system)) if check else None
    return Row(labels, measure, checking, ours=system.ours, most=1 if system.slow else None)


def depths(bench: Bench) -> Iterator[Row]:
    """Yields every system at each depth."""
    data = dataset(bench)
    for depth in (64,) if bench.quick else DEPTHS:
        seconds = 0.25 if bench.quick else 10 if depth in PUBLISHED_DEPTHS else 3
        for system in SYSTEMS:
            labels = {"system": system.name, "depth": str(depth)}
            work = lambda system=system, depth=depth, seconds=seconds: data.measure(system, depth, seconds)  # noqa: E731
            one = row(data, system, labels, work, depth == (64 if bench.quick else 1))
            one.reason = reason(system.server) if system.server in ("fuse-zip", "archivemount", "ratarmount") else ""
            if system.published and depth == 64:
                name = {"EROFS": "erofs"}.get(system.name, system.name.split(",")[0])
                one.published = published.row("D", system=name, options=system.published)
            yield one


def cores(bench: Bench) -> Iterator[Row]:
    """Yields systems at depth 64 with readers and servers on one core and on two."""
    data = dataset(bench)
    every = sorted(os.sched_getaffinity(0))
    systems = named("tmpfs", "EROFS", "squashfs, nothing compressed", "kiln mount", "kiln library")
    for system in systems[:2] if bench.quick else systems:
        for count in (1, 2):

            def pin(found: Mount, count: int = count) -> None:
                if found.pid:
                    quiet("taskset", "-a", "-c", "-p", ",".join(map(str, every[:count])), str(found.pid))

            def work(system: System = system, count: int = count, pin: Callable[[Mount], None] = pin) -> Run:
                if count > len(every):
                    raise Missing(f"this machine has {len(every)} core")
                before = ["taskset", "-c", ",".join(map(str, every[:count]))]
                return data.measure(system, 64, 0.25 if bench.quick else 5, before=before, server_before=pin)

            yield row(data, system, {"system": system.name, "cores": str(count)}, work, count == 1)


SPINNING = re.compile(r"spin|osq_lock|mutex_lock|rwsem_optimistic")
SPIN = Column("spin", "CPU that spins on locks", "%")


def profiles(bench: Bench) -> Iterator[Row]:
    """Yields the CPU a file and the share of it that spins, at depths 1 and 64."""
    data = dataset(bench)
    systems = named("squashfs, nothing compressed", "squashfs, metadata compressed", "EROFS", "ext4")
    for system in systems[1:2] if bench.quick else systems:
        for depth in (1, 64):

            def work(system: System = system, depth: int = depth) -> Run:
                file = data.place / "profile"
                before = [need("perf"), "record", "-q", "-a", "-e", "cpu-clock", "-o", str(file), "--"]
                run = data.measure(system, depth, 0.25 if bench.quick else 5, before=before)
                found = quiet(need("perf"), "report", "-q", "-i", file, "--stdio", "--sort", "comm,symbol")
                shares = re.findall(r"^\s*([\d.]+)%\s+(\S+)\s+\[.\]\s+(\S+)", found, re.MULTILINE)
                busy = [(float(share), symbol) for share, who, symbol in shares if who != "swapper"]
                spun = sum(share for share, symbol in busy if SPINNING.search(symbol))
                return {**run, "spin": spun / (sum(share for share, _ in busy) or 1)}

            yield row(data, system, {"system": system.name, "depth": str(depth)}, work, depth == 1)


@contextmanager
def slow(bench: Bench, image: Path, delay_ms: int) -> Iterator[Path]:
    """A file of a disk that takes so much longer for each request."""
    place = bench.new("slow")
    place.mkdir()
    with serving([need("slow_file"), "--cached", str(image), str(place), str(delay_ms * 1000)], place):
        yield place / image.name
    place.rmdir()


def latency(bench: Bench) -> Iterator[Row]:
    """Yields systems whose images answer each request late."""
    data = dataset(bench)
    systems = named("ext4", "squashfs, nothing compressed", "squashfs, metadata compressed", "EROFS", "EROFS by kiln",
                    "kiln mount", "kiln from Python", "fuse-zip", "LMDB")  # fmt: skip
    for depth in (64,) if bench.quick else (1, 64):
        for delay in (1,) if bench.quick else (0, 1, 10):
            for system in named("EROFS", "kiln mount", "fuse-zip") if bench.quick else systems:

                def work(system: System = system, depth: int = depth, delay: int = delay) -> Run:
                    image = data.image(system.maker)
                    with slow(bench, image, delay) as late:
                        return data.measure(system, depth, 0.2 if bench.quick else 4, image=late)

                labels = {"system": system.name, "depth": str(depth), "ms": str(delay)}
                yield row(data, system, labels, work, False)


def builds(bench: Bench) -> Iterator[Row]:
    """Yields what it costs to make the images."""
    data = dataset(bench)
    makers = {system.maker: system for system in reversed(SYSTEMS) if system.maker != "tree"}
    for maker, system in reversed(makers.items()):

        def work(maker: str = maker) -> Run:
            image = data.place / "built"

            def once() -> float:
                before = os.times()
                make(maker, data.tree, image)
                after = os.times()
                return after.children_user + after.children_system - before.children_user - before.children_system

            try:
                run = Mount(data.place, None, "loop|ext4").during(once)
                size = image.stat().st_size
                return {**run, "size_bytes": size, "ratio": size / data.size}
            finally:
                image.unlink(missing_ok=True)

        command = {"ext4": "mkfs.ext4; mount; cp -a", "lmdb": "python: lmdb"}.get(maker, maker.strip())
        name = {KILN: "kiln", "zip": "zip"}.get(maker, system.name)
        yield Row({"image": name}, work, command=command, ours=system.ours)


def smallest(tree: Path, place: Path) -> float:
    """Returns the size of the smallest ext4 that holds a tree, to 1 % of its data."""
    low, high = 100, 400  # hundredths: too small, and enough
    while high - low > 1:
        middle = (low + high) // 2
        try:
            ext4_by_d(tree, place, middle / 100, 0)
            high = middle
        except Failed:
            low = middle
        finally:
            place.unlink(missing_ok=True)
    return disks.entries(tree)[1] * high / 100


def taken(bench: Bench, tree: Path) -> float:
    """Returns what `du` says of a tree on ext4."""
    image = bench.new("du.ext4")
    try:
        disks.filled(image, "ext4", tree)
        with disks.loop(image) as device, disks.mounted(device, bench.new(), "ext4", "ro,noload") as place:
            return float(quiet("du", "-s", "-B1", "--exclude=lost+found", place).split()[0])
    finally:
        image.unlink(missing_ok=True)


def space(bench: Bench) -> Iterator[Row]:
    """Yields the space of small files: as lengths, on ext4, in images."""
    trees = [("sources", bench.tree("linux-source"))]
    trees += [] if bench.quick else [("32 KiB each", dataset(bench).tree)]
    for label, tree in trees:
        data = disks.entries(tree)[1]
        image = bench.new("image")

        def size(maker: str, tree: Path = tree, image: Path = image) -> float:
            try:
                make(maker, tree, image)
                return image.stat().st_size
            finally:
                image.unlink(missing_ok=True)

        ways: list[tuple[str, Callable[[], float]]] = [
            ("ext4: du", lambda tree=tree: taken(bench, tree)),
            ("EROFS, not compressed", lambda size=size: size("mkfs.erofs ")),
            ("kiln, not compressed", lambda size=size: size("kiln --preset plain")),
            ("squashfs, not compressed", lambda size=size: size("mksquashfs -noD -noI -noF -noX")),
            ("kiln by default", lambda size=size: size("kiln ")),
            ("squashfs by default", lambda size=size: size("mksquashfs ")),
        ]
        if label == "sources":  # by bisection; with one large directory each step takes minutes
            smallest_way = lambda tree=tree, image=image: smallest(tree, image)  # noqa: E731
            ways.insert(1, ("ext4: the smallest that holds them", smallest_way))
        for name, way in ways:

            def work(way: Callable[[], float] = way, data: int = data) -> Run:
                found = way()
                return {"size_bytes": found, "ratio": found / data}

            yield Row({"files": label, "kept as": name}, work, ours=name.startswith("kiln"))


def copies(bench: Bench, source: Path, target: Path, cold: Callable[[], None], extract: bool) -> Iterator[Row]:
    """Yields copies of a tree and of its image, which lie side by side in `source`."""
    out = target / "copy"
    tree, plain, packed = source / "tree", source / "plain.erofs", source / "packed.erofs"
    ways: list[tuple[str, str, Path, list[list[str]]]] = [
        ("tree", "cp -a", tree, [["cp", "-a", str(tree), str(out)]]),
        ("tree", "tar | tar", tree, [["tar", "-C", str(tree), "-cf", "-", "."], ["tar", "-C", str(out), "-xf", "-"]]),
        ("tree", "rsync -a", tree, [["rsync", "-a", f"{tree}/", str(out)]]),
        ("image, not compressed", "cp", plain, [["cp", str(plain), str(out)]]),
        ("image, not compressed", "rsync", plain, [["rsync", "-a", str(plain), str(out)]]),
        ("image", "cp", packed, [["cp", str(packed), str(out)]]),
    ]
    if extract:
        ways.append(("image", "kiln extract", packed, [["kiln", "extract", "--quiet", str(packed), str(out)]]))
    for what, name, _, lines in ways:
        one = Row({"what": what, "way": name}, command=" | ".join(map(typed, lines)), ours="kiln" in name)
        try:
            commands = [[need(line[0]), *line[1:]] for line in lines]
        except Missing as error:
            one.reason = str(error)
            yield one
            continue

        def work(commands: list[list[str]] = commands, tar: bool = "tar |" in name) -> Run:
            if tar:
                out.mkdir()
            cold()
            try:
                return measure(*commands, flush=target).run()
            finally:
                forget(out)

        one.measure = work
        yield one


def prepared(bench: Bench, tree: Path, image: Path) -> None:
    """Makes an ext4 with a tree and its two images."""
    both = bench.directory("both")
    copy_of(tree, both).rename(both / "tree")
    make("kiln --preset plain", tree, both / "plain.erofs")
    make("kiln ", tree, both / "packed.erofs")
    disks.filled(image, "ext4", both)
    forget(both)


def here(bench: Bench) -> Iterator[Row]:
    """Yields copies between two ext4 on this machine's disk, and removals."""
    tree = bench.tree("mini")
    source = bench.kept(("source",), lambda path: prepared(bench, tree, path))
    room = bench.kept(("target",), lambda path: disks.empty(path, "ext4", 2 * source.stat().st_size))
    stack = bench.stack
    one, two = stack.enter_context(disks.loop(source)), stack.enter_context(disks.loop(room, write=True))
    from_ = stack.enter_context(disks.mounted(one, bench.new(), "ext4", "ro,noload"))
    to = stack.enter_context(disks.mounted(two, bench.new(), "ext4", "noatime"))
    yield from copies(bench, from_, to, machine.drop_caches, True)
    for what, name in (("tree", "tree"), ("image, not compressed", "plain.erofs")):

        def work(name: str = name) -> Run:
            quiet("cp", "-a", from_ / name, to / name)
            machine.drop_caches()
            return measure(["rm", "-r", str(to / name)], flush=to).run()

        yield Row({"what": what, "way": "rm"}, work)


def spinning(bench: Bench) -> Iterator[Row]:
    """Yields copies from a disk that turns."""
    data = Data.of(bench, 100 if bench.quick else 4096)
    image = data.place / "disk.ext4"
    prepared(bench, data.tree, image)
    late = bench.stack.enter_context(storage(BY_NAME["spinning"], image, bench.new("slow")))
    device = bench.stack.enter_context(disks.loop(late))
    source = bench.stack.enter_context(disks.mounted(device, bench.new(), "ext4", "ro,noload"))
    for one in copies(bench, source, data.place, machine.drop_caches, False):
        one.most = 1 if one.labels["what"] == "tree" else None
        yield one
    yield Row({"what": "tree", "way": "rm"}, reason="the model of a disk serves reads only")


FETCHED = Column("fetched_bytes", "fetched a file", "KiB", timed=False)
DECODED = Column("decoded_bytes", "decoded a file", "KiB", timed=False)
SMALL = [
    ("kiln", "--fragments off"),
    ("kiln", "--fragments off --layout tail-packing"),
    *(("kiln", f"--fragments small --layout packed-cluster={unit}") for unit in ("16K", "32K", "64K", "128K")),
    ("kiln", "--fragments tails"),
    ("kiln", "--fragments all"),
    ("mkfs.erofs", "-zzstd,3 -C65536"),
    ("mkfs.erofs", "-zzstd,3 -C65536 -Eztailpacking"),
    ("mkfs.erofs", "-zzstd,3 -C65536 -Eall-fragments"),
]


def small(bench: Bench) -> Iterator[Row]:
    """Yields ways to store small files: size, and the cost of one cold read, as `kiln explain` tells it."""
    tree = bench.tree("mini")
    files = [name for name in _random.shuffled(tree) if 0 < os.path.getsize(tree / name) <= 64 << 10][
        : 20 if bench.quick else 300
    ]
    for program, options in SMALL[::3] if bench.quick else SMALL:

        def work(program: str = program, options: str = options) -> Run:
            image = bench.image(program, options, tree)
            told = [json.loads(quiet(need("kiln"), "explain", "--json", image, name)) for name in files]
            sums = {f"{what}_bytes": sum(one[what] for one in told) / len(told) for what in ("fetched", "decoded")}
            return {"size_bytes": image.stat().st_size, **sums}

        yield Row(
            {"program": program, "options": options}, work, command=f"{program} {options}", ours=program == "kiln"
        )


NOTE = (
    f"{FILES:,} files of 32 KiB of random bytes in one flat directory (published: 65,536), images in the same tmpfs, "
    "behind loop devices for the kernel. A fresh mount each run, a short warm-up, caches dropped. Readers end after "
    "10 s, between the published depths after 3 s (theirs: 30 s). Each reader has files of its own; the published "
    "driver had one queue for all. CPU is that of readers, servers and threads of the kernel. kiln library: threads of "
    "one program that compares all that it reads."
)
SUITE = Suite(
    D,
    "Data sets: many small files at random",
    "How many small files a second can programs read from each kind of storage, with one reader and with many, "
    "from memory and from disks that answer late? What do copies and space cost?",
    [
        Table("depths", "Whole files of 32 KiB at random, by number of readers", READ, depths,
              Plot("lines", "rate", x="depth", series="system", log_x=True, log_y=True), 3, 1, "D", NOTE),
        Table("cores", "One core and two, 64 readers", READ, cores, Plot("bars", "rate", series="cores"), 3,
              note="Readers and servers are bound; threads of the kernel are not."),
        Table("profiles", "CPU a file and spinning, with one reader and with 64", [*READ[:3], SPIN], profiles,
              Plot("bars", "cpu_file_s", series="depth"), 3,
              note="A profiler samples all processors; idle ones do not count."),
        Table("latency", "Files of 32 KiB at random from disks that answer late", READ, latency,
              Plot("lines", "rate", x="ms", series="system", log_y=True, only={"depth": "64"}), 2, modelled=True,
              note="Each request takes 0, 1 or 10 ms longer, 16 at once. Readers end after 4 s."),
        Table("builds", "Making the images", [WALL, CPU, SIZE, SHARE], builds, Plot("bars", "wall_s"), 3,
              note="Files and images lie in a tmpfs. ext4 by cp: format, mount, copy, unmount."),
        Table("space", "Space of small files", [SIZE, SHARE], space, Plot("bars", "ratio", series="files"), 1,
              note="ext4 by `mkfs.ext4 -d`, to 1 % of the data; all else as made."),
        Table("copies", "Copying and removing a tree and its image", [WALL, CPU, MEMORY], here,
              Plot("bars", "wall_s", series="what", log_y=True), 5,
              note="Between two ext4 on loop devices past the page cache, caches dropped, written through at the end."),
        Table("spinning", "Copying a tree and its image from a spinning disk", [WALL, CPU], spinning,
              Plot("bars", "wall_s", series="what", log_y=True), 3, modelled=True,
              note="4,096 files of 32 KiB on ext4, copied into memory. The model serves reads only."),
        Table("random", "Files of a system tree in random order, by one reader", _random.COLUMNS,
              lambda bench: _random.rows(bench, *FILES_TESTS[bench.quick :]),
              Plot("bars", "wall_s", series="system", log_y=True), 3, 1, "U1",
              "Caches dropped. Images behind loop devices; the published disk gave 3,000 requests a second."),
        Table("small", "Ways to store small files: cost of one cold read", [SIZE, FETCHED, DECODED], small,
              Plot("scatter", "fetched_bytes", x="size_bytes", series="program"), 1,
              note="Means over files of up to 64 KiB, as `kiln explain` counts blocks and decoded bytes."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
