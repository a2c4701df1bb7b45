"""Data sets of many small files: whole files at random, slow storage, copies, space.

In full about 55 minutes."""

from __future__ import annotations

import json
import os
import random
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lib import disks, images, judge, machine, published, queues
from lib.bench import Bench
from lib.mounts import Mount, mount, serving
from lib.process import Failed, measure, quiet
from lib.programs import find, need, reason, typed
from lib.results import Results, TableResult
from lib.storage import BY_NAME, storage
from lib.suite import (
    CPU,
    FETCHED as DEVICE,
    MEMORY,
    REQUESTS,
    SIZE,
    WALL,
    Claim,
    Column,
    Missing,
    Plot,
    Row,
    Run,
    Suite,
    Table,
    Verdict,
)
from lib.words import Words, number
from suites._dataset import SYSTEMS, Data, System, copy_of, ext4_by_d, forget, interpreter, make, named

RATE = Column("rate", "files", "/s", "more")
CPU_FILE = Column("cpu_file_s", "CPU a file", "s")
READ = [RATE, CPU_FILE, WALL, MEMORY]
SHARE = Column("ratio", "size ÷ data", "%", timed=False)
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
PUBLISHED_DEPTHS = (1, 8, 64)
# The published number needs 21 GiB for files and images.
FILES = 65536 if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 30e9 else 32768


def dataset(bench: Bench, quick: int = 1024) -> Data:
    """Returns the files and their images."""
    return Data.of(bench, quick if bench.quick else FILES)


def row(data: Data, system: System, labels: dict[str, str], measure: Callable[[], Run], check: bool) -> Row:
    """Returns a row of a system; the first of each compares bytes."""
    checking = (lambda: data.check(system)) if check else None
    return Row(labels, measure, checking, ours=system.ours, most=1 if system.slow else None)


def depths(bench: Bench) -> Iterator[Row]:
    """Yields every system at each depth."""
    data = dataset(bench)
    for depth in (1, 64) if bench.quick else DEPTHS:
        seconds = 0.25 if bench.quick else 30 if depth in PUBLISHED_DEPTHS else 10
        for system in SYSTEMS:
            labels = {"system": system.name, "depth": str(depth)}
            work = lambda system=system, depth=depth, seconds=seconds: data.measure(system, depth, seconds)  # noqa: E731
            one = row(data, system, labels, work, depth == 1)
            one.reason = reason(system.server) if system.server in ("fuse-zip", "archivemount", "ratarmount") else ""
            if system.published and depth == 64:
                name = {"EROFS": "erofs"}.get(system.name, system.name.split(",")[0])
                one.published = published.row("D", system=name, options=system.published)
            yield one


def cores(bench: Bench) -> Iterator[Row]:
    """Yields systems at depth 64 with readers and servers on one core and on two."""
    data = dataset(bench)
    every = sorted(os.sched_getaffinity(0))
    for system in named("tmpfs", "EROFS", "squashfs, nothing compressed", "kiln mount", "kiln library"):
        for count in (1, 2):

            def pin(found: Mount, count: int = count) -> None:
                if found.pid:
                    quiet("taskset", "-a", "-c", "-p", ",".join(map(str, every[:count])), str(found.pid))

            def work(system: System = system, count: int = count, pin: Callable[[Mount], None] = pin) -> Run:
                if count > len(every):
                    raise Missing(f"this machine has {len(every)} core")
                before = ["taskset", "-c", ",".join(map(str, every[:count]))]
                return data.measure(system, 64, 0.25 if bench.quick else 10, before=before, server_before=pin)

            yield row(data, system, {"system": system.name, "cores": str(count)}, work, count == 1)


SPINNING = re.compile(r"spin|osq_lock|mutex_lock|rwsem_optimistic")
SPIN = Column("spin", "CPU that spins on locks", "%")


def profiles(bench: Bench) -> Iterator[Row]:
    """Yields the CPU a file and the share of it that spins, at depths 1 and 64."""
    data = dataset(bench)
    for system in named("squashfs, nothing compressed", "squashfs, metadata compressed", "EROFS", "ext4"):
        for depth in (1, 64):

            def work(system: System = system, depth: int = depth) -> Run:
                file = data.place / "profile"
                before = [need("perf"), "record", "-q", "-a", "-e", "cpu-clock", "-o", str(file), "--"]
                run = data.measure(system, depth, 0.25 if bench.quick else 10, before=before)
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
        for delay in (0, 1) if bench.quick else (0, 1, 10):
            for system in systems:

                def work(system: System = system, depth: int = depth, delay: int = delay) -> Run:
                    image = data.image(system.maker)
                    with slow(bench, image, delay) as late:
                        return data.measure(system, depth, 0.2 if bench.quick else 4, image=late)

                labels = {"system": system.name, "depth": str(depth), "ms": str(delay)}
                yield row(data, system, labels, work, False)


def builds(bench: Bench) -> Iterator[Row]:
    """Yields what it costs to make the images."""
    data = dataset(bench)
    makers = {system.maker: system for system in SYSTEMS if system.maker != "tree"}
    for maker, system in makers.items():

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
        yield Row({"image": system.name}, work, command=command, ours=system.ours)


def smallest(tree: Path, place: Path) -> float:
    """Returns the size of the smallest ext4 that holds a tree, to 1 % of its data."""
    low, high = 100, 400  # hundredths: too small, and enough
    while high - low > 1:
        middle = (low + high) // 2
        try:
            ext4_by_d(tree, place, middle / 100)
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
    trees = [("sources", bench.tree("linux-source")), ("32 KiB each", dataset(bench).tree)]
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
            ("ext4: the smallest that holds them", lambda tree=tree, image=image: smallest(tree, image)),
            ("EROFS, not compressed", lambda size=size: size("mkfs.erofs ")),
            ("kiln, not compressed", lambda size=size: size("kiln --preset plain")),
            ("squashfs, not compressed", lambda size=size: size("mksquashfs -noD -noI -noF -noX")),
            ("kiln by default", lambda size=size: size("kiln ")),
            ("squashfs by default", lambda size=size: size("mksquashfs ")),
        ]
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


METHODS = {
    "erofs": {"not compressed": "-T0", "4": "-zlz4hc,12 -C4096 -Efragments -T0", "128": "-zlz4hc,12 -C131072 -Efragments -T0"},
    "squashfs": {
        "not compressed": "-noD -noI -noX -noF -no-duplicates",
        "4": "-comp lz4 -Xhc -b 4K -no-xattrs -all-time 0",
        "128": "-comp lz4 -Xhc -b 128K -no-xattrs -all-time 0",
    },
    "kiln": {
        "not compressed": "--preset plain --mtime 0",
        "4": "-z lz4hc,12 -C 4K --mtime 0",
        "128": "-z lz4hc,12 -C 128K --mtime 0",
    },
}  # fmt: skip
TESTS = ("500 files", "all files", "all data by tar")


def shuffled(tree: Path) -> list[str]:
    """Returns the paths of all regular files of a tree in random order."""
    found = sorted(
        os.path.relpath(os.path.join(folder, name), tree)
        for folder, _, names in os.walk(tree)
        for name in names
        if stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)
    )
    random.Random(1).shuffle(found)
    return found


def at_random(bench: Bench) -> Iterator[Row]:
    """Yields files of a system tree read in random order by one reader."""
    tree = bench.tree("mini")
    names = shuffled(tree)
    tests = {"500 files": names[:500], "all files": names, "all data by tar": []}
    for program, blocks in METHODS.items():
        for block, options in blocks.items():
            for test, wanted in tests.items():
                maker = {"erofs": "mkfs.erofs", "squashfs": "mksquashfs"}.get(program, program)
                kind = "kernel squashfs" if program == "squashfs" else "kernel erofs"

                def work(
                    maker: str = maker, options: str = options, kind: str = kind, wanted: Sequence[str] = wanted
                ) -> Run:
                    image = bench.image(maker, options, tree)
                    text, line = bench.new("names"), [interpreter("mount"), queues.__file__, "mount", ".", "1", "600"]
                    with mount(kind, image, bench.new("mount"), counted=True) as found:
                        if not wanted:
                            return found.client(["tar", "-cf", "-", "."], ["cat"], cold=True)
                        text.write_text("\n".join(wanted))
                        runs: list[dict[str, float]] = []

                        def read() -> float:
                            said = quiet("sh", "-c", 'cd "$0" && exec "$@" <' + str(text), found.root, *line)
                            runs.append(json.loads(said))
                            return runs[0]["cpu_s"]

                        cost = found.during(read, cold=True)
                        text.unlink()
                        if runs[0]["files"] != len(wanted):
                            raise Failed(f"{runs[0]['files']:.0f} of {len(wanted)} files in time")
                        return {**cost, "wall_s": runs[0]["wall_s"]}

                one = Row({"system": program, "block": block, "test": test}, work, ours=program == "kiln")
                one.command = f"{maker} {options}".strip()
                if program != "kiln":
                    one.published = published.row("U1", system=program, block=block, test=test)
                yield one


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
    files = [name for name in shuffled(tree) if 0 < os.path.getsize(tree / name) <= 64 << 10][
        : 40 if bench.quick else 300
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


def at(depth: object, system: str) -> dict[str, str]:
    """Returns the labels of a row of the table `depths`."""
    return {"system": system, "depth": str(depth)}


def depths_of(results: Results) -> list[int]:
    """Returns the published depths that were measured; all if none was."""
    table = results.table("dataset", "depths")
    found = [depth for depth in PUBLISHED_DEPTHS if table and table.find(depth=str(depth))]
    return found or list(PUBLISHED_DEPTHS)


def each(results: Results, better: str, *worse: str) -> Verdict:
    """Judges that a system reads more files a second than others, at each published depth."""
    return judge.every(
        judge.order(
            results, "dataset", "depths", "rate", at(depth, better), [at(depth, one) for one in worse], more=True
        )
        for depth in depths_of(results)
    )


def times(results: Results, one: str, other: str, holds: Callable[[float], bool], depth: int = 0) -> Verdict:
    """Judges the quotient of two systems' rates, at each published depth or at one."""
    return judge.every(
        judge.ratio(results, "dataset", "depths", "rate", at(each, one), at(each, other), holds)
        for each in ([depth] if depth else depths_of(results))
    )


def rate(results: Results, system: str, holds: Callable[[float], bool], depth: int = 64) -> Verdict:
    """Judges a number of files a second."""
    return judge.value(
        results, "dataset", "depths", "rate", at(depth, system), holds, lambda one: f"{one:,.3g} files/s"
    )


def nothing_beats_tmpfs(results: Results) -> Verdict:
    """Judges claim 93 against every system that was read."""
    table = results.table("dataset", "depths")
    names = [row.labels["system"] for row in table.all(depth="64") if row.runs] if table else []
    others = [name for name in names if not name.startswith("tmpfs")]
    return each(results, "tmpfs", *others)


def on_the_disk(results: Results) -> Verdict:
    """Judges claim 104: tree against image, by each program that copies trees."""
    image = {"what": "image, not compressed", "way": "cp"}
    return judge.every(
        judge.ratio(
            results, "dataset", "spinning", "wall_s", {"what": "tree", "way": way}, image, lambda one: 10 <= one <= 100
        )
        for way in ("cp -a", "tar | tar", "rsync -a")
    )


def spins(results: Results) -> Verdict:
    """Judges claim 98."""
    name = "squashfs, nothing compressed"
    grows = judge.ratio(results, "dataset", "profiles", "cpu_file_s", at(64, name), at(1, name), lambda one: one > 2)
    half = lambda one: one > 0.5  # noqa: E731
    return judge.every([
        grows, judge.value(results, "dataset", "profiles", "spin", at(64, name), half, lambda one: f"{one:.0%} spins")
    ])  # fmt: skip


def faster_at_random(results: Results) -> Verdict:
    """Judges claim 108."""
    return judge.every(
        judge.ratio(results, "dataset", "random", "wall_s",
                    {"system": "squashfs", "block": block, "test": test}, {"system": "erofs", "block": block, "test": test},
                    lambda one, least=least: one > least)  # fmt: skip
        for test, least in (("500 files", 4), ("all files", 8)) for block in METHODS["erofs"]
    )  # fmt: skip


def kept(results: Results, files: str, how: str, holds: Callable[[float], bool]) -> Verdict:
    """Judges the size of small files, as a quotient of their lengths."""
    labels = {"files": files, "kept as": how}
    return judge.value(results, "dataset", "space", "ratio", labels, holds, lambda one: f"{number(one)} times the data")


def with_latency(results: Results) -> Verdict:
    """Says what the table shows of the open question, claim 106."""
    table = results.table("dataset", "latency")
    found = [row for row in table.all(depth="64", ms="10") if row.median("rate")] if table else []
    told = [f"{row.labels['system']} {row.median('rate'):,.3g} files/s" for row in found]
    if not told:
        return Verdict("not run", why="the full form measures it")
    return Verdict("no longer", f"10 ms a request, depth 64: {', '.join(told)}", "the table of late disks answers")


D = "dataset"
CLAIMS = [
    Claim(93, nothing_beats_tmpfs),
    Claim(94, lambda results: times(results, "EROFS", "ext4", lambda one: 0.9 <= one <= 1.1)),
    Claim(95, lambda results: judge.every(times(results, one, "fuse-zip", lambda q: q > 2) for one in ("EROFS", "ext4"))),
    Claim(96, lambda results: rate(results, "fuse-zip", lambda one: one * 32 / 1024 > 119)),
    Claim(97, lambda results: each(results, "fuse-zip", "squashfs, nothing compressed", "squashfs, metadata compressed")),
    Claim(98, spins),
    Claim(99, lambda results: times(results, "squashfs, nothing compressed", "squashfs, metadata compressed",
                                    lambda one: one > 10, 64)),
    Claim(100, lambda results: rate(results, "squashfs, metadata compressed", lambda one: one < 200)),
    Claim(101, lambda results: rate(results, "archivemount", lambda one: one < 10)),
    Claim(102, lambda results: judge.every([
        judge.ratio(results, D, "builds", "wall_s", {"image": "ext4 by mkfs.ext4 -d"}, {"image": "ext4"}, lambda one: one > 1),
        times(results, "ext4 by mkfs.ext4 -d", "ext4", lambda one: one < 0.5),
    ])),
    Claim(103, lambda results: kept(results, "sources", "ext4: the smallest that holds them", lambda one: one > 1.02)),
    Claim(104, on_the_disk),
    Claim(105, lambda results: judge.every([
        kept(results, "sources", "ext4: du", lambda one: one > 1.05),
        kept(results, "sources", "EROFS, not compressed", lambda one: one < 1.02),
    ])),
    Claim(106, with_latency),
    Claim(107, lambda results: judge.every(
        judge.ratio(results, D, "cores", "rate", {"system": one, "cores": "2"}, {"system": one, "cores": "1"}, lambda q: q > 1.5)
        for one in ("tmpfs", "EROFS")
    )),
    Claim(108, faster_at_random),
]  # fmt: skip


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    text = Words(results, D)
    why = "each read crosses two processes and the kernel"
    for ours, theirs, of, to, reason_ in (
        ("EROFS by kiln", "EROFS", "the kernel with kiln's image", "the kernel with mkfs.erofs's", ""),
        ("EROFS by kiln", "ext4", "the kernel with kiln's image", "ext4", ""),
        ("EROFS by kiln", "squashfs, nothing compressed", "the kernel with kiln's image", "squashfs with nothing compressed",
         "squashfs finds an inode through a table and reads files as fragments of blocks of 128 KiB"),
        ("kiln mount", "EROFS by kiln", "kiln's mount", "the kernel's", why),
        ("kiln mount", "fuse-zip", "kiln's mount", "fuse-zip", ""),
        ("kiln library", "tmpfs", "kiln's library", "the bare tmpfs", "it opens no files"),
        ("kiln from Python", "LMDB", "kiln from Python", "LMDB", ""),
        ("kiln from Python", "tmpfs", "kiln from Python", "the bare tmpfs", ""),
    ):  # fmt: skip
        for depth in (1, 64):
            text.compare("depths", "rate", at(depth, ours), at(depth, theirs), "files a second", of=of, to=to,
                         where=f"at depth {depth}", why=reason_, more=True)  # fmt: skip
    for system in ("tmpfs", "EROFS"):
        share = results.ratio(D, "depths", "rate", at(64, f"{system}, shared queue"), at(64, system))
        if share:
            text.say(
                f"With one queue for all readers, as in the published test, {system} reaches {number(share)} of its rate."
            )
    for ms in (1, 10):
        text.compare("latency", "rate", {**at(64, "kiln mount"), "ms": str(ms)}, {**at(64, "fuse-zip"), "ms": str(ms)},
                     "files a second", of="kiln's mount", to="fuse-zip", where=f"at {ms} ms a request", more=True)  # fmt: skip
    tree, image = {"what": "tree", "way": "cp -a"}, {"what": "image, not compressed", "way": "cp"}
    for key, where in (("copies", "on this machine's disk"), ("spinning", "on the model of a spinning disk")):
        text.compare(key, "wall_s", image, tree, "time", of="a copy of the image", to="a copy of its tree", where=where)
    text.compare("space", "size_bytes", {"files": "sources", "kept as": "kiln, not compressed"},
                 {"files": "sources", "kept as": "ext4: du"}, "space", of="kiln's plain image", to="ext4")  # fmt: skip
    for block in METHODS["kiln"]:
        for test in TESTS:
            for peer in ("erofs", "squashfs"):
                labels = {"block": block, "test": test}
                text.compare("random", "wall_s", {"system": "kiln", **labels}, {"system": peer, **labels}, "time",
                             of="kiln's image", to=f"that of {peer}", where=f"for {test}, {block}")  # fmt: skip
    return text.sentences()


NOTE = (
    f"{FILES:,} files of 32 KiB of random bytes in one flat directory (published: 65,536), images in the same tmpfs, behind loop "
    "devices for the kernel. A fresh mount each run, a short warm-up, caches dropped. Readers end after 30 s, between the published "
    "depths after 10 s. Each reader has files of its own; the published driver had one queue for all. CPU is that of readers, servers "
    "and threads of the kernel; a file counts when it was read whole."
)
SUITE = Suite(
    D,
    "Data sets: many small files at random",
    "How many small files a second can programs read from each kind of storage, with one reader and with many, from memory and from "
    "disks that answer late? What do copies and space cost?",
    [
        Table("depths", "Whole files of 32 KiB at random, by number of readers", READ, depths,
              Plot("lines", "rate", x="depth", series="system", log_x=True, log_y=True), 3, 1, "D", NOTE),
        Table("cores", "One core and two, 64 readers", READ, cores, Plot("bars", "rate", series="cores"), 3,
              note="Readers and servers are bound; threads of the kernel are not."),
        Table("profiles", "CPU a file and spinning, with one reader and with 64", [*READ[:3], SPIN], profiles,
              Plot("bars", "cpu_file_s", series="depth"), 3, note="A profiler samples all processors; idle ones do not count."),
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
        Table("random", "Files of a system tree in random order, by one reader", [WALL, CPU, DEVICE, REQUESTS], at_random,
              Plot("bars", "wall_s", series="system", log_y=True), 3, 1, "U1",
              "Caches dropped. Images behind loop devices on this machine's disk; the published disk gave 3,000 requests a second."),
        Table("small", "Ways to store small files: cost of one cold read", [SIZE, FETCHED, DECODED], small,
              Plot("scatter", "fetched_bytes", x="size_bytes", series="program"), 1,
              note="Means over files of up to 64 KiB, as `kiln explain` counts blocks and decoded bytes."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
