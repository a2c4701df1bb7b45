"""Classes of storage as models: packing a tree, mounting and reading an image, copying a tree against its image.

In full about 30 minutes."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.mounts import mount
from lib.process import Failed, measure, quiet
from lib.programs import find, typed
from lib.results import Results
from lib.storage import ALL, Storage, counted, storage
from lib.suite import Column, Missing, Plot, Row, Run, Suite, Table, Wrong
from lib.units import show
from lib.words import Words, number

WALL = Column("wall_s", "time", "s")
READ = [Column("requests", "requests", "", timed=False), Column("fetched_bytes", "fetched", "MB", timed=False)]
STEPS = [Column("mount_s", "mount", "s"), Column("list_s", "ls -lR", "s"), Column("read_s", "all files", "s")]
FILES, QUICK_FILES, LARGEST = 300, 80, 256 << 10
SQUASH, EROFS = images.squash("zstd,3", 128), images.erofs("zstd,3", 128)
# Models on which a row takes minutes: it runs once.
SLOW = ("spinning", "object")


@cache
def names_of(source: Path, count: int) -> list[str]:
    """Returns paths of so many files of a tree, the first in order; large ones are left out."""
    found: list[str] = []
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= LARGEST:
                found.append(os.path.relpath(path, source))
        if len(found) >= count:
            break
    return found[:count]


def part(bench: Bench) -> Path:
    """Makes a tree of some files of a corpus: with all of them a disk that seeks would take hours."""
    source, place = bench.tree("mini"), bench.directory("part") / "tree"
    for name in names_of(source, QUICK_FILES if bench.quick else FILES):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, place / name)
    return place


def models(bench: Bench) -> list[Storage]:
    """Returns the models; in the quick form three of them."""
    return [model for model in ALL if not bench.quick or model.name in ("sata", "cloud", "spinning")]


def model_row(model: Storage, label: str, value: str, measure: Callable[[], Run] | None) -> Row:
    """Returns a row of a model."""
    row = Row({"storage": model.title, label: value}, measure, ours=value.startswith("kiln"))
    row.most = 1 if model.name in SLOW else None
    return row


@contextmanager
def slow_tree(bench: Bench, model: Storage, tree: Path) -> Iterator[tuple[Path, Path]]:
    """A tree on an ext4 on a disk of the model, with caches dropped; and the slow file, which counts."""
    disk = bench.kept(("ext4", str(tree)), lambda path: disks.filled(path, "ext4", tree))
    with ExitStack() as stack:
        slow = stack.enter_context(storage(model, disk, bench.new("slow")))
        mounted = stack.enter_context(mount("kernel ext4", slow, bench.scratch / "mount", counted=True))
        forget()
        yield mounted.root, slow


def forget() -> None:
    """Drops all caches. Programs are read again: they lie on another disk, and are not what is measured."""
    machine.drop_caches()
    names = ("kiln", "mksquashfs", "mkfs.erofs", "ls", "tar", "cp", "cat")
    measure(["cat", *(str(path) for name in names if (path := find(name)))])
    for name in names[-4:]:
        quiet(name, "--version")


def fetched(slow: Path, work: Callable[[], float]) -> Run:
    """Does work that returns its wall seconds, and returns the run with requests and bytes of the slow file."""
    requests, size = counted(slow)
    wall_s = work()
    now = counted(slow)
    return {"wall_s": wall_s, "requests": float(now[0] - requests), "fetched_bytes": float(now[1] - size)}


def packs(bench: Bench) -> Iterator[Row]:
    """Yields packing of a tree that lies on the storage. The image goes to the machine's own disk."""
    tree, image = part(bench), bench.new("out")
    for model in models(bench):
        for program, options in (("kiln", ""), ("mksquashfs", SQUASH), ("mkfs.erofs", EROFS), ("tar", "")):

            def run(model: Storage = model, program: str = program, options: str = options) -> Run:
                with slow_tree(bench, model, tree) as (root, slow):
                    line = pack(program, options, root, image)
                    quiet("sh", "-c", '"$0" --version 2>&1 || :', line[0])
                    return fetched(slow, lambda: done(line, image))

            label = {"kiln": "kiln pack", "tar": "tar (reads only)"}.get(program, program)
            row = model_row(model, "program", label, run)
            try:
                row.command = typed(pack(program, options, tree, image))
            except Missing as error:
                row.reason = str(error)
            if program == "kiln":
                row.check = partial(images.checked, pack(program, options, tree, image), image)
            yield row


def pack(program: str, options: str, tree: Path, image: Path) -> list[str]:
    """Returns a command that makes an image of a tree; of tar, one that reads it: with /dev/null it would not."""
    if program == "tar":
        return ["tar", "-C", str(tree), "-cf", str(image), "."]
    return images.command(program, options, tree, image)


def done(line: list[str], image: Path) -> float:
    """Makes an image, removes it, and returns the wall seconds."""
    try:
        return measure(line).wall_s
    finally:
        image.unlink(missing_ok=True)


# What is mounted by whom, and the image: a program and its options.
READERS = {
    "kiln mount": ("kiln mount", "kiln", ""),
    "kernel EROFS, image by kiln": ("kernel erofs", "kiln", ""),
    "kernel EROFS, image by mkfs.erofs": ("kernel erofs", "mkfs.erofs", EROFS),
    "kernel squashfs": ("kernel squashfs", "mksquashfs", SQUASH),
    "kernel ext4": ("kernel ext4", "ext4", ""),
}


def readings(bench: Bench) -> Iterator[Row]:
    """Yields mounting an image that lies on the storage, `ls -lR`, and reading of all its files."""
    tree = part(bench)
    for model in models(bench):
        for name in READERS:
            row = model_row(model, "reader", name, partial(read, bench, model, name, tree))
            if model is models(bench)[0]:
                row.check = partial(look, bench, name, tree)
            yield row


def image_of(bench: Bench, name: str, tree: Path) -> Path:
    """Makes the image of a reader once a table."""
    _, program, options = READERS[name]
    if program == "ext4":
        return bench.kept(("ext4", str(tree)), lambda path: disks.filled(path, "ext4", tree))
    return bench.image(program, options, tree)


def look(bench: Bench, name: str, tree: Path) -> None:
    """Compares what a reader shows with the source. Raises Wrong."""
    with mount(READERS[name][0], image_of(bench, name, tree), bench.scratch / "mount") as mounted:
        images.compare(bench.digests(tree), mounted.root)


def read(bench: Bench, model: Storage, name: str, tree: Path) -> Run:
    """Mounts an image on a model, lists it and reads it; nothing is in memory before."""
    server, image = READERS[name][0], image_of(bench, name, tree)
    with ExitStack() as stack:
        slow = stack.enter_context(storage(model, image, bench.new("slow")))
        forget()
        took: dict[str, float] = {}

        def work() -> float:
            start = time.perf_counter()
            mounted = stack.enter_context(mount(server, slow, bench.scratch / "mount", counted=True))
            took["mount_s"] = time.perf_counter() - start
            took["list_s"] = measure(["ls", "-lR", "."], cwd=mounted.root).wall_s
            took["read_s"] = measure(["tar", "-cf", "-", "."], ["cat"], cwd=mounted.root).wall_s
            return sum(took.values())

        return {**fetched(slow, work), **took}


def copies(bench: Bench) -> Iterator[Row]:
    """Yields copies from the storage to memory: of a tree file by file, and of its image or archive as one file."""
    tree = part(bench)
    target = bench.stack.enter_context(disks.tmpfs(bench.new(), 4 << 30))
    archive = bench.kept(("tar", str(tree)), lambda path: quiet("tar", "-C", tree, "-cf", path, "."))
    ways: dict[str, Path | None] = {
        "tree, cp -a": None,
        "image of kiln, cp": bench.image("kiln", "", tree),
        "uncompressed image of kiln, cp": bench.image("kiln", "--preset plain", tree),
        "tar archive, cp": archive,
    }
    for model in models(bench):
        for name, file in ways.items():
            row = model_row(model, "copy of", name, partial(copy, bench, model, tree, file, target))
            row.ours, row.command = "kiln" in name, "cp IMAGE TARGET" if file else "cp -a TREE TARGET"
            yield row


def copy(bench: Bench, model: Storage, tree: Path, file: Path | None, target: Path) -> Run:
    """Copies a file, or a tree if there is none, to memory, and compares it. Raises Wrong."""
    out = target / "out"
    try:
        if file is None:
            with slow_tree(bench, model, tree) as (root, slow):
                run = fetched(slow, lambda: measure(["cp", "-a", f"{root}/.", str(out)]).wall_s)
            images.compare(bench.digests(tree), out)
            return run
        with storage(model, file, bench.new("slow")) as slow:
            forget()
            run = fetched(slow, lambda: measure(["cp", str(slow), str(out)]).wall_s)
        if out.read_bytes() != file.read_bytes():
            raise Wrong("the copy has other bytes")
        return run
    finally:
        quiet("rm", "-rf", out)


def disk_rates(bench: Bench) -> Iterator[Row]:
    """Yields what each model gives a reader of one file: front to back, and 4 KiB at random, one at once."""
    file = bench.new("zeros")
    size = (8 if bench.quick else 64) << 20
    with file.open("wb") as out:
        out.truncate(size)
    bench.stack.callback(file.unlink)

    def run(model: Storage) -> Run:
        with storage(model, file, bench.new("slow")) as slow:
            machine.drop_caches()
            fd = os.open(slow, os.O_RDONLY | os.O_DIRECT)
            try:
                return {"rate": size / timed(fd, sequence(size)), "latency_s": timed(fd, scattered(size)) / SCATTERED}
            finally:
                os.close(fd)

    for model in models(bench):
        # The model's own numbers, for comparison.
        asked = {"asked_rate": float(model.bandwidth), "asked_s": (model.latency_us + model.seek_us) / 1e6}
        yield Row({"storage": model.title}, lambda model=model, asked=asked: {**run(model), **asked})  # type: ignore[misc]


SCATTERED = 50
PIECE = 1 << 20


def sequence(size: int) -> list[tuple[int, int]]:
    """Returns offsets and lengths of a file, front to back."""
    return [(offset, PIECE) for offset in range(0, size, PIECE)]


def scattered(size: int) -> list[tuple[int, int]]:
    """Returns offsets of blocks that never follow each other."""
    return [(number * 7919 * 4096 % size, 4096) for number in range(1, SCATTERED + 1)]


def timed(fd: int, reads: list[tuple[int, int]]) -> float:
    """Reads parts of a file past the page cache, and returns the wall seconds."""
    with mmap.mmap(-1, PIECE) as aligned:
        start = time.perf_counter()
        for offset, length in reads:
            if os.preadv(fd, [memoryview(aligned)[:length]], offset) != length:
                raise Failed(f"a short read at {offset}")
        return time.perf_counter() - start


def words(results: Results) -> list[str]:
    """Returns sentences about the results."""
    text = Words(results, "storage")
    ways = [("pack", "program", "kiln pack", peer) for peer in ("mksquashfs", "mkfs.erofs", "tar (reads only)")]
    ways += [
        ("read", "reader", ours, peer)
        for ours in ("kiln mount", "kernel EROFS, image by kiln")
        for peer in ("kernel EROFS, image by mkfs.erofs", "kernel squashfs", "kernel ext4")
    ]
    for table, label, ours, peer in ways:
        cases = {
            model.title: ({"storage": model.title, label: ours}, {"storage": model.title, label: peer}) for model in ALL
        }
        where = "where the tree lies on the storage" if table == "pack" else "to mount, list and read all"
        text.spread(table, "wall_s", cases, "time", of=ours, to=peer, where=where)
    for model in ALL:
        tree, image = (
            results.median("storage", "copy", "wall_s", storage=model.title, copy_of=what)
            for what in ("tree, cp -a", "image of kiln, cp")
        )
        if tree and image:
            text.say(
                f"Copying a tree takes {number(tree / image)} times as long as copying its image on: {model.title} "
                f"({show(tree, 's')} against {show(image, 's')}).",
                loses=tree < image,
            )
    return text.sentences()


NOTE = "Modelled: a file that answers with the latency, bandwidth, depth and seek of such a disk. Nothing is in memory."
SUITE = Suite(
    "storage",
    "Storage: eight classes as models",
    "How does storage change who wins? Eight classes of storage, from eMMC to a slow object store, are modelled by a "
    "file that answers as such a disk would: latency, bandwidth, queue depth, seek, each number with its source in "
    "`lib/storage.py`. A tree of 300 files of up to 256 KiB is packed, mounted and read, and copied as a tree and as "
    "an image.",
    [
        Table(
            "rates",
            "What the models give to one reader",
            [
                Column("rate", "front to back, 1 MiB a read", "MiB/s", "more"),
                Column("asked_rate", "bandwidth of the model", "MiB/s", "", timed=False),
                Column("latency_s", "4 KiB at random", "s"),
                Column("asked_s", "latency and seek of the model", "s", "", timed=False),
            ],
            disk_rates,
            Plot("bars", "rate", log_y=True),
            rounds=3,
            note="One read at once, past the page cache. What is over the model's own numbers is the machine's.",
            modelled=True,
        ),
        Table(
            "pack",
            "Packing a tree that lies on the storage",
            [WALL, *READ],
            packs,
            Plot("bars", "wall_s", series="program", log_y=True),
            rounds=3,
            note=f"{NOTE} The tree lies on an ext4 there; the image goes elsewhere.",
            modelled=True,
        ),
        Table(
            "read",
            "Mounting an image, listing it and reading all its files",
            [WALL, *STEPS, *READ],
            readings,
            Plot("bars", "wall_s", series="reader", log_y=True),
            rounds=3,
            note=NOTE,
            modelled=True,
        ),
        Table(
            "copy",
            "Copying a tree against copying its image",
            [WALL, *READ],
            copies,
            Plot("bars", "wall_s", series="copy of", log_y=True),
            rounds=3,
            note=f"{NOTE} The copy goes to memory.",
            modelled=True,
        ),
    ],
    words,
)
