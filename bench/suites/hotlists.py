"""Hot lists: cold starts from slow storage, pinned data, little memory, relayouts, and metadata beside data as a model.

In full about 15 minutes."""

from __future__ import annotations

import functools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.disks import within
from lib.images import built
from lib.mounts import mount
from lib.process import measure, quiet
from lib.programs import need, typed, wake
from lib.results import Results
from lib.storage import counted, since, slow
from lib.suite import CPU, FETCHED, MEMORY, REQUESTS, SIZE, WALL, Column, Missing, Plot, Row, Run, Suite, Table
from lib.words import Words
from suites._numpy import numpy
from suites._programs import bound, importing, record, settled, startable
from suites._systems import MOUNT, System
from suites._systems import image as made

REPLAY = Path(__file__).with_name("_replay.py")
LIMIT = 64 << 20
PIN = "256M"
METHODS = {"zstd": "-z zstd,3 -C 64K", "lzma": "-z lzma,6 -C 64K"}
# Twenty programs: an interpreter that imports other modules each time.
PROGRAMS = [
    words.split()
    for words in (
        "json,ssl,sqlite3,asyncio,email.message smtplib,http.server,unittest,xml.dom.minidom,decimal "
        "fractions,ctypes,multiprocessing.pool,logging.config,argparse shutil,tarfile zipfile,urllib.request,csv "
        "statistics,difflib pydoc,concurrent.futures,curses readline,doctest pdb"
    ).split(",")
]
WITH_MOUNT = Column("with_mount_s", "with the mount", "s")


class Scene:
    """The tree, and a list of what one start of the interpreter reads of it, recorded once a run."""

    def __init__(self, bench: Bench) -> None:
        machine.need_root("recording")
        self.bench = bench
        self.tree, programs = startable(bench)
        self.start = programs["python3"]
        self.list = self.recorded("start", self.start)
        self.order = f"--order {self.list}"

    def image(self, options: str = "", program: str = "kiln") -> Path:
        """Returns an image of the tree, or by `kiln relayout` one of the image without a list."""
        return made(self.bench, System("", program, options, ""), self.tree)

    def recorded(self, name: str, command: list[str]) -> Path:
        """Returns the list of what a program reads when it starts."""
        out = self.bench.scratch / f"hot-{name}.list"
        if not out.exists():
            record(self.image(), command, out, self.bench.new("recorded"))
        return out


def starts(bench: Bench) -> Iterator[Row]:
    """Yields cold starts of an interpreter from slow storage, right after mounting."""
    scene = Scene(bench)
    preload = ["--preload", str(scene.list)]
    ways: list[tuple[str, Callable[[], Path], list[str]]] = [
        ("no list", lambda: scene.image(), []),
        ("--order", lambda: scene.image(scene.order), []),
        ("--order, --preload", lambda: scene.image(scene.order), preload),
        ("relayout, --preload", lambda: scene.image(scene.order, "kiln relayout"), preload),
        ("--order, --preload, --pin", lambda: scene.image(scene.order), [*preload, "--pin", PIN]),
    ]

    def run(image: Path, options: list[str], delay_us: int) -> Run:
        machine.drop_caches()
        image.read_bytes()  # the storage is slow, not the disk below it
        wake("chroot", "sh")
        with slow(image, bench.new("slow"), delay_us) as source:
            begun = time.perf_counter()
            with mount("kiln mount", source, bench.new("mount"), options=options) as one, bound(one.root):
                before = counted(source)
                found = one.client(["chroot", str(one.root), *scene.start], cwd=Path("/"))
                return {**found, "with_mount_s": time.perf_counter() - begun, **since(source, before)}

    for delay_us in (1000, 10_000):
        for name, make, options in ways:
            row = Row({"a read": f"{delay_us // 1000} ms", "way": name}, ours=True)
            row.command = f"kiln mount {typed(options)} IMAGE DIR; chroot DIR python3 -c ...".replace("  ", " ")
            row.measure = functools.partial(run, make(), options, delay_us)
            if delay_us == 1000:
                row.check = functools.partial(images.same, make(), scene.tree)
            yield row


def replay(root: Path, lists: list[Path], group: Path | None = None) -> float:
    """Reads what lists name, in their order, in a control group if there is one. Returns the seconds."""
    told = quiet(*within(group, [sys.executable, str(REPLAY), str(root), *map(str, lists)]))
    return sum(json.loads(told))


def forget(root: Path, listed: Path) -> None:
    """Drops a mount's pages from the cache, but not those of the image."""
    for line in listed.read_text(errors="surrogateescape").splitlines()[1:]:
        try:
            fd = os.open(root / line.split("\t", 2)[2], os.O_RDONLY)
        except OSError:
            continue
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def pinned(bench: Bench) -> Iterator[Row]:
    """Yields replays with the image in memory, and nothing of the mount: decoded when they ask, and pinned."""
    scene = Scene(bench)

    def run(image: Path, pin: bool) -> Run:
        image.read_bytes()
        options = ["--preload", str(scene.list), "--pin", PIN] if pin else []
        with mount("kiln mount", image, bench.new("mount"), options=options) as one:
            replay(one.root, [])  # the interpreter that replays is in memory
            if pin:
                settled(one.root)
            forget(one.root, scene.list)
            return {"wall_s": replay(one.root, [scene.list]), "memory_bytes": one.memory()}

    for method, options in METHODS.items():
        if bench.quick and method == "lzma":  # it takes longer to pack than all else
            continue
        image = scene.image(options)
        for pin in (False, True):
            row = Row({"method": method, "way": "pinned" if pin else "decoded when read"}, ours=True)
            row.measure = functools.partial(run, image, pin)
            yield row


def little(bench: Bench) -> Iterator[Row]:
    """Yields replays of twenty recordings, server and reader together in a small control group."""
    scene = Scene(bench)
    chosen = PROGRAMS[:3] if bench.quick else PROGRAMS
    commands = [importing(scene.start[0], modules) for modules in chosen]
    lists = [scene.recorded(str(number), command) for number, command in enumerate(commands)]
    image = scene.image(METHODS["zstd"])

    def run(server: str, options: list[str]) -> Run:
        with (
            disks.memory_group(LIMIT) as group,
            mount(server, image, bench.new("mount"), options=options, counted=True, group=group) as one,
        ):
            machine.drop_caches()
            quiet(sys.executable, "-c", "import json, re")  # the reader itself is in memory
            assert one.counter
            before = one.counter.read()
            return {"wall_s": replay(one.root, lists, group), **one.counter.since(before)}

    for server, options in (("kiln mount", ["--cache", "16M"]), ("erofsfuse", []), ("kernel erofs", [])):
        row = Row({"reader": server}, functools.partial(run, server, options), ours=server == "kiln mount")
        try:
            need("kiln" if server.startswith("k") else server)
        except Missing as error:
            row.reason = str(error)
        yield row


def making(bench: Bench) -> Iterator[Row]:
    """Yields the making of ordered images: by packing again, by a relayout; and of a compact one, beside a copy."""
    scene = Scene(bench)
    bench.warm(scene.tree)
    old, new, order = scene.image(), bench.new("new"), scene.order
    relaid, kiln = scene.image(scene.order, "kiln relayout"), need("kiln")
    ways = [
        ("pack", images.command("kiln", "", scene.tree, new)),
        ("pack --order", images.command("kiln", order, scene.tree, new)),
        ("relayout --order", [kiln, "relayout", "--quiet", *order.split(), str(old), str(new)]),
        ("relayout", [kiln, "relayout", "--quiet", str(relaid), str(new)]),
        ("cp", ["cp", "--reflink=never", str(old), str(new)]),
    ]

    def check(command: list[str]) -> None:
        try:
            measure(command)
            images.same(new, scene.tree)
        finally:
            new.unlink(missing_ok=True)

    for name, command in ways:
        row = Row({"way": name}, functools.partial(built, command, image=new), functools.partial(check, command))
        row.command, row.ours = typed(command), name != "cp"
        yield row


SERVERS = ("kiln mount", "erofsfuse", "kernel erofs")


def ordered(bench: Bench) -> Iterator[Row]:
    """Yields replays of the list from slow storage: of the image as packed, ordered, and laid out again."""
    scene = Scene(bench)
    ways = {
        "pack": scene.image(),
        "pack --order": scene.image(scene.order),
        "relayout --order": scene.image(scene.order, "kiln relayout"),
    }

    def run(image: Path, server: str) -> Run:
        machine.drop_caches()
        image.read_bytes()
        quiet(sys.executable, "-c", "import json, re")
        with (
            slow(image, bench.new("slow"), 1000) as source,
            mount(server, source, bench.new("mount")) as one,
        ):
            before = counted(source)
            return {"wall_s": replay(one.root, [scene.list]), **since(source, before)}

    for server in SERVERS:
        for name, image in ways.items():
            yield Row({"reader": server, "image": name}, functools.partial(run, image, server), ours="kiln" in server)


REQUEST = 128 << 10  # the window of the system's readahead
BEST = [
    WALL,
    REQUESTS,
    FETCHED,
    Column("walked", "requests of a walk alone", "", timed=False),
    Column("best", "requests at best", "", timed=False),
    Column("gain", "time saved at most", "%", "", timed=False),
]


def directories(tree: Path, least: int, count: int) -> list[Path]:
    """Returns directories of some files, at random, but the same each time."""
    found = sorted(Path(folder) for folder, _, _ in os.walk(tree))
    random.Random(1).shuffle(found)
    suits = (folder for folder in found if folder != tree and least <= disks.entries(folder)[0] <= 20 * least)
    return [folder.relative_to(tree) for folder, _ in zip(suits, range(count), strict=False)]


def look_at(folder: Path, reads: bool) -> None:
    """Walks and examines everything, and reads all files if told to."""
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            if not os.path.islink(path) and reads:
                with open(path, "rb", buffering=0) as file:
                    while file.read(1 << 20):
                        pass


def local(bench: Bench) -> Iterator[Row]:
    """Yields cold walks and reads of single directories, and what they would need if metadata lay beside data."""
    tree = bench.tree("rootfs")
    image = made(bench, MOUNT, tree)
    chosen = directories(tree, 3 if bench.quick else 50, 2 if bench.quick else 8)

    def cost(server: str, folder: Path, reads: bool) -> Run:
        machine.drop_caches()
        image.read_bytes()
        with (
            slow(image, bench.new("slow"), 1000) as source,
            mount(server, source, bench.new("mount")) as one,
        ):
            before, begun = counted(source), time.perf_counter()
            look_at(one.root / folder, reads)
            return {"wall_s": time.perf_counter() - begun, **since(source, before)}

    def run(server: str) -> Run:
        total = {"wall_s": 0.0, "requests": 0.0, "fetched_bytes": 0.0, "walked": 0.0, "best": 0.0}
        for folder in chosen:
            walked, all_ = cost(server, folder, False), cost(server, folder, True)
            best = max(all_["requests"] - walked["requests"], 0) + -(-walked["fetched_bytes"] // REQUEST)
            found = {**all_, "walked": walked["requests"], "best": min(best, all_["requests"])}
            total = {key: value + found[key] for key, value in total.items()}
        return {**total, "gain": min(1.0, (total["requests"] - total["best"]) * 1e-3 / total["wall_s"])}

    for server in SERVERS:
        yield Row({"reader": server}, functools.partial(run, server), ours="kiln" in server)


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "hotlists")
    for delay in ("1 ms", "10 ms"):
        base = {"a read": delay, "way": "no list"}
        for way in ("--order", "--order, --preload", "relayout, --preload", "--order, --preload, --pin"):
            for column, what in (("wall_s", "time"), ("requests", "requests")):
                told = {"of": f"A start by “{way}”", "to": "one without a list", "where": f"at {delay} a read"}
                said.compare("starts", column, {**base, "way": way}, base, what, **told)
    directory = {"made by": "ext4", "from": "directory"}
    for maker, way in (("kiln", "image"), ("kiln --order", "image, --preload")):
        told = {"of": f"An import of NumPy from “{way}”", "to": "one from a directory of ext4"}
        said.compare("numpy", "requests", {"made by": maker, "from": way}, directory, "requests", **told)
    for method in METHODS:
        rows = [{"method": method, "way": way} for way in ("pinned", "decoded when read")]
        told = {"of": "A replay of pinned data", "to": "one that decodes", "where": f"({method})"}
        said.compare("pinned", "wall_s", rows[0], rows[1], "time", **told)
    for peer in ("erofsfuse", "kernel erofs"):
        told = {"of": "kiln mount", "to": peer, "where": "in 64 MiB"}
        told |= {"why": "a server's own memory is missing to the page cache"} if peer != "erofsfuse" else {}
        said.compare("little", "wall_s", {"reader": "kiln mount"}, {"reader": peer}, "time", **told)
    for way, peer in (("relayout --order", "pack --order"), ("relayout --order", "cp"), ("relayout", "pack")):
        for column, what in (("cpu_s", "CPU"), ("wall_s", "time"), ("size_bytes", "size")):
            said.compare("making", column, {"way": way}, {"way": peer}, what, of=way, to=peer)
    for server in SERVERS:
        for image in ("pack --order", "relayout --order"):
            rows = [{"reader": server, "image": name} for name in (image, "pack")]
            told = {"of": f"{server} of an image by {image}", "to": "one without a list"}
            said.compare("ordered", "requests", rows[0], rows[1], "requests", **told)
        gain = results.median("hotlists", "local", "gain", reader=server)
        if gain is not None:
            said.say(f"Metadata beside data would save {server} at most {gain:.0%} of the time for one directory.")
    return said.sentences()


SUITE = Suite(
    "hotlists",
    "Hot lists: order, preload, pin, relayout",
    "What do lists of hot data gain? A recording of one start orders the data of an image, is read in advance, and is "
    "kept decoded. Starts and replays read from storage that takes 1 or 10 ms for each read, and counts; the system "
    "caches it as a disk. The last table is a model: what it would gain if metadata lay beside data.",
    [
        Table(
            "starts",
            "Cold starts of an interpreter from slow storage",
            [WALL, WITH_MOUNT, REQUESTS, FETCHED],
            starts,
            Plot("bars", "wall_s", series="way"),
            modelled=True,
            note="python3 imports fifteen modules, in a chroot, right after the mount by FUSE; caches are dropped "
            "before.",
        ),
        Table(
            "numpy",
            "A cold import of NumPy from slow storage",
            [WALL, WITH_MOUNT, REQUESTS, FETCHED],
            numpy,
            Plot("bars", "requests"),
            rounds=3,
            modelled=True,
            note="Python and NumPy are in the tree; a read takes 1 ms. Requests are those of mounting, too. The "
            "directory is one of ext4.",
        ),
        Table(
            "pinned",
            "Replays of a list with the image in memory, decoded when read and pinned",
            [WALL, MEMORY],
            pinned,
            Plot("bars", "wall_s", series="way"),
            note="Nothing of the mount is in the system's cache; the whole image is. Memory is the server's.",
        ),
        Table(
            "little",
            "Twenty replays in 64 MiB",
            [WALL, FETCHED, REQUESTS],
            little,
            Plot("bars", "wall_s"),
            note="Server, reader and page cache share a control group. kiln's cache has 16 MiB. All read kiln's image.",
        ),
        Table(
            "making",
            "Making ordered and compact images",
            [WALL, CPU, MEMORY, SIZE],
            making,
            Plot("bars", "cpu_s"),
            rounds=3,
            note="The time ends when the image is on the disk. “relayout” makes a compact image of an ordered one.",
        ),
        Table(
            "ordered",
            "Replays of a list from slow storage, by image and reader",
            [WALL, REQUESTS, FETCHED],
            ordered,
            Plot("bars", "requests", series="image"),
            rounds=3,
            modelled=True,
            note="A read takes 1 ms.",
        ),
        Table(
            "local",
            "One directory, cold: what metadata beside data would gain",
            BEST,
            local,
            Plot("bars", "gain"),
            rounds=1,
            modelled=True,
            note="Sums over eight directories; a read takes 1 ms. At best, data is fetched as today, and what a walk "
            "alone fetches today comes in requests of 128 KiB.",
        ),
    ],
    words,
)
