"""Reading a tree by mounts and by the library: `ls`, files in several orders, pages, copies; extraction; cold reads.

In full about 40 minutes."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.mounts import Mount, mount
from lib.process import Failed, measure, quiet
from lib.programs import need, reason, typed
from lib.results import Results
from lib.suite import CPU, FETCHED, MEMORY, REQUESTS, WALL, Column, Missing, Plot, Row, Run, Suite, Table, Wrong
from lib.words import Words

PAGES = 4000
SETTLE_S = 2.0
AGAIN = [Column("again_cpu_s", "again: CPU", "s"), Column("again_wall_s", "again: wall", "s")]
METHODS = {"zstd": "zstd,3", "lz4": "lz4"}
# Name of a reader, as `mounts.mount` names it, and what it reads. The last two are the library by way of read-client.
READERS = {
    "kiln mount": ("kiln mount", "kiln"),
    "erofsfuse": ("erofsfuse", "kiln"),
    "kernel EROFS": ("kernel erofs", "kiln"),
    "squashfuse_ll": ("squashfuse_ll", "mksquashfs"),
    "kernel squashfs": ("kernel squashfs", "mksquashfs"),
    "fuse-zip": ("fuse-zip", "zip"),
    "kiln library": ("image", "kiln"),
    "kiln library, all at once": ("many", "kiln"),
}
LIBRARIES = ("image", "many")


@dataclass(frozen=True)
class Step:
    """Something that a client does with a tree that is freshly mounted: a plan of read-client, or a command."""

    name: str
    plan: str = ""
    threads: int = 1
    via: str = "mount"  # or "walk", which lists each directory before the first file there
    command: tuple[str, ...] = ()  # {target} is replaced
    listed: bool = False  # `ls -lR` goes before
    twice: bool = False


LS = ("ls", "-lR", ".")
STEPS = (
    Step("ls -lR", command=LS, twice=True),
    Step("every file, by a walk", "files", via="walk", twice=True),
    Step("every file, in order of a list", "files", twice=True),
    Step("every file, shuffled, after ls -lR", "shuffled", listed=True),
    Step("every file, shuffled", "shuffled", twice=True),
    Step("every file, shuffled, 8 threads", "shuffled", 8),
    Step("every file, shuffled, 64 threads", "shuffled", 64),
    Step("4 KiB pages of the largest file", f"pages={PAGES}"),
    Step("4 KiB pages of the largest file, 16 at once", f"pages={PAGES}", 16),
    Step("4 KiB of each 128 KiB of the largest file", "strided"),
    Step("the largest file, sequentially", "sequential"),
    Step("cp -a", command=("cp", "-a", "./.", "{target}")),
    Step("rsync -aAXH", command=("rsync", "-aAXH", "./", "{target}")),
    Step("tar", command=("tar", "-cf", "/dev/zero", ".")),
)


def steps(bench: Bench, method: str) -> Iterator[Row]:
    """Yields each step by each reader. All EROFS readers have the same image."""
    tree = bench.tree("mini")
    bench.warm(tree)
    target = bench.stack.enter_context(disks.tmpfs(bench.new(), 8 << 30))
    looks: dict[str, Exception | None] = {}
    quick = STEPS[:2] + STEPS[4:8:3] + STEPS[11:12] if method == "zstd" else STEPS[4:5]
    for step in quick if bench.quick else STEPS:
        for name, (way, _) in READERS.items():
            if way in LIBRARIES and (not step.plan or step.listed):
                continue
            row = Row({"step": step.name, "reader": name}, ours=name.startswith("kiln"))
            row.command = f"read-client {step.plan}, threads: {step.threads}" if step.plan else " ".join(step.command)
            row.reason = "" if way in LIBRARIES or way.startswith(("kernel", "kiln")) else reason(way)
            if way in LIBRARIES:
                row.measure = partial(by_library, bench, step, way, tree, method)
            else:
                row.measure = partial(by_mount, bench, step, name, tree, method, target)
                row.check = partial(look, bench, name, tree, method, looks)
            yield row


def made(bench: Bench, maker: str, tree: Path, method: str) -> Path:
    """Makes the image of a tree by a program once a table; by zip, an archive."""
    if maker == "zip":
        # zip adds a suffix to names that have none, unless it writes to a pipe.
        line = f'cd "$1" && "{need("zip")}" -qry1 - . > "$2"'
        return bench.kept(("zip", str(tree)), lambda path: quiet("sh", "-c", line, "sh", tree, path))
    if maker == "mksquashfs":  # level 1 is the only one of its LZ4
        return bench.image(maker, images.squash(METHODS[method], 64), tree)
    return bench.image(maker, images.kiln(METHODS[method], 64), tree)


def look(bench: Bench, reader: str, tree: Path, method: str, seen: dict[str, Exception | None]) -> None:
    """Compares what a reader shows with the source, each reader once. Raises Wrong, Missing, Failed."""
    if reader not in seen:
        seen[reader] = None
        way, maker = READERS[reader]
        try:
            with mount(way, made(bench, maker, tree, method), bench.scratch / "mount") as mounted:
                images.compare(bench.digests(tree), mounted.root)
        except (Wrong, Missing, Failed, OSError) as error:
            seen[reader] = error
    if problem := seen[reader]:
        raise problem


def plan(bench: Bench, kind: str, tree: Path) -> Path:
    """Makes a plan of what is read once a table."""
    client = need("read-client")
    return bench.kept((kind, str(tree)), lambda path: path.write_text(quiet(client, "plan", kind, tree)))


def client(bench: Bench, step: Step, via: str, tree: Path, place: Path) -> dict[str, float]:
    """Runs read-client, which compares all that it reads, and returns its own wall and CPU seconds."""
    said = quiet(need("read-client"), "run", plan(bench, step.plan, tree), str(step.threads), via, place)
    found = json.loads(said)
    return {"wall_s": found["wall_s"], "cpu_s": found["cpu_s"]}


def by_library(bench: Bench, step: Step, via: str, tree: Path, method: str) -> Run:
    """Reads by the library. Nothing is kept, so that it does not read again."""
    return client(bench, step, via, tree, made(bench, "kiln", tree, method))


def by_mount(bench: Bench, step: Step, reader: str, tree: Path, method: str, target: Path) -> Run:
    """Mounts, does the step, and does it again if it is one that is done twice."""
    way, maker = READERS[reader]
    image = made(bench, maker, tree, method)
    with mount(way, image, bench.scratch / "mount") as mounted:
        if step.listed:
            measure(LS, cwd=mounted.root)
        run = once(bench, step, tree, mounted, target)
        again = once(bench, step, tree, mounted, target) if step.twice else {}
        memory = {"memory_bytes": float(mounted.memory("VmHWM"))} if mounted.pid else {}
    return {**run, **{f"again_{key}": value for key, value in again.items()}, **memory}


def once(bench: Bench, step: Step, tree: Path, mounted: Mount, target: Path) -> dict[str, float]:
    """Does a step, and returns wall seconds, and CPU seconds of client, server and kernel."""
    before, out = mounted.cpu_s(), target / "out"
    if step.plan:
        run = client(bench, step, step.via, tree, mounted.root)
    else:
        out.mkdir()
        program, *words = (word.format(target=out) for word in step.command)
        cost = measure([need(program), *words], cwd=mounted.root)
        run = {"wall_s": cost.wall_s, "cpu_s": cost.cpu_s}
    used = settled(mounted)
    quiet("rm", "-rf", out)
    return {**run, "cpu_s": run["cpu_s"] + sum(value - before.get(pid, 0.0) for pid, value in used.items())}


def settled(mounted: Mount) -> dict[int, float]:
    """Returns CPU seconds of all that serve once they are idle: releases and read-ahead end after the client."""
    used, deadline = mounted.cpu_s(), time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        time.sleep(0.05)
        before, used = used, mounted.cpu_s()
        if sum(value - before.get(pid, 0.0) for pid, value in used.items()) < 0.001:
            break
    return used


def decoding(bench: Bench) -> Iterator[Row]:
    """Yields the decoding of all streams: alone by one thread, and as the library reads them, on all processors."""
    tree, cores = bench.tree("mini"), str(machine.cpus())
    for method in METHODS:
        image = made(bench, "kiln", tree, method)
        for name, words in (("decoding alone", ["decode", image]), ("kiln library", ["streams", image, cores])):
            line = [need("read-client"), *map(str, words)]

            def run(line: list[str] = line) -> Run:
                found = json.loads(quiet(*line))
                return {"wall_s": found["wall_s"], "cpu_s": found["cpu_s"]}

            yield Row({"method": method, "work": name}, run, command=typed(line), ours=name.startswith("kiln"))


def extraction(bench: Bench) -> Iterator[Row]:
    """Yields programs that write a whole image to memory."""
    tree = bench.tree("rootfs")
    place = bench.stack.enter_context(disks.tmpfs(bench.new(), 12 << 30))
    target = place / "tree"
    kiln, erofs, squash = images.kiln("zstd,3", 64), images.erofs("zstd,3", 64), images.squash("zstd,3", 128)
    to, quietly = str(target), ["-quiet", "-no-progress", "-force", "-dest"]
    # Maker of the image and its options; the program, and its words before the image and behind it.
    ways: list[tuple[str, str, str, list[str], list[str]]] = [
        ("kiln", kiln, "kiln", ["extract", "--quiet"], [to]),
        ("mkfs.erofs", erofs, "kiln", ["extract", "--quiet"], [to]),
        ("mkfs.erofs", erofs, "fsck.erofs", [f"--extract={to}"], []),
        ("mksquashfs", squash, "unsquashfs", [*quietly, to], []),
        ("tar | zstd", "", "tar", ["-C", to, "-I", "zstd", "-xf"], []),
    ]
    for maker, options, program, before, behind in ways:
        row = Row(
            {"program": "kiln extract" if program == "kiln" else program, "image of": maker}, ours=program == "kiln"
        )
        yield row
        try:
            image = bench.image(maker, options, tree) if options else archive(bench, tree)
            line = [need(program), *before, str(image), *behind]
        except Missing as error:
            row.reason = str(error)
            continue
        row.command = typed(line)
        row.measure = partial(extracted, line, target, None)
        row.check = partial(extracted, line, target, bench.digests(tree))


def archive(bench: Bench, tree: Path) -> Path:
    """Makes a compressed archive of a tree once a table."""
    line = f'tar -C "$1" -c . | "{need("zstd")}" -q -3 -T0 > "$2"'
    return bench.kept(("tar.zst", str(tree)), lambda path: quiet("sh", "-c", line, "sh", tree, path))


def extracted(line: list[str], target: Path, expected: dict[str, str] | None) -> Run:
    """Extracts to a new directory, and leaves nothing. With digests, compares what came out. Raises Wrong."""
    target.mkdir()
    try:
        cost = measure(line)
        if expected is not None:
            images.compare(expected, target)
        return cost.run()
    finally:
        quiet("rm", "-rf", target)


COLD_FILES, PICTURES, PICTURE_LEN = 1000, 3000, (2000, 12000)
# Name of an image, its program and options, and who reads it.
COLD = (
    ("kiln, default", "kiln", "", ("kiln mount", "kernel erofs", "erofsfuse")),
    ("kiln, dataset", "kiln", "--preset dataset", ("kiln mount", "kernel erofs", "erofsfuse")),
    ("mkfs.erofs", "mkfs.erofs", images.erofs("zstd,3", 64), ("kiln mount", "kernel erofs", "erofsfuse")),
    ("squashfs", "mksquashfs", images.squash("zstd,3", 64), ("kernel squashfs", "squashfuse_ll")),
    ("ext4", "ext4", "", ("kernel ext4",)),
)


def cold(bench: Bench) -> Iterator[Row]:
    """Yields files in random order, and `ls -lR`, of images that are not in memory."""
    tree, pictures = bench.tree("mini"), bench.directory("pictures")
    make_pictures(pictures, 200 if bench.quick else PICTURES)
    for what, source in (
        (f"{COLD_FILES:,} files shuffled", tree),
        ("ls -lR", tree),
        ("all pictures, shuffled", pictures),
    ):
        names = [] if what == "ls -lR" else shuffled(source, COLD_FILES if source == tree else PICTURES)
        for image, maker, options, readers in COLD:
            if image == "kiln, default" and source == pictures:
                continue
            if bench.quick and (maker == "mkfs.erofs" or "dataset" in image and source == tree):
                continue
            for reader in readers:
                row = Row({"read": what, "image": image, "reader": reader}, ours=reader.startswith("kiln"))
                row.reason = "" if reader.startswith(("kernel", "kiln")) else reason(reader)
                row.measure = partial(read_cold, bench, maker, options, reader, source, names)
                yield row


def make_pictures(root: Path, count: int) -> None:
    """Makes small files that do not compress, a hundred in each directory."""
    rng = random.Random(count)
    for number in range(count):
        path = root / f"{number // 100:02}" / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(*PICTURE_LEN)))


def shuffled(tree: Path, count: int) -> list[str]:
    """Returns paths of at most so many files in random order, the same for the same tree."""
    every = (os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names)
    paths = sorted(os.path.relpath(path, tree) for path in every if os.path.isfile(path) and not os.path.islink(path))
    return random.Random(1).sample(paths, min(count, len(paths)))


def read_cold(bench: Bench, maker: str, options: str, reader: str, tree: Path, names: list[str]) -> Run:
    """Mounts, drops all caches, and reads files, or lists without any. Raises Wrong if the bytes are not the tree's."""
    if maker == "ext4":
        image = bench.kept(("ext4", str(tree)), lambda path: disks.filled(path, "ext4", tree))
    else:
        image = bench.image(maker, options, tree)
    contents: list[bytes] = []

    def work() -> float:
        if not names:
            return measure(LS, cwd=mounted.root).cpu_s
        start = time.process_time()
        contents.extend((mounted.root / name).read_bytes() for name in names)
        return time.process_time() - start

    with ExitStack() as stack:
        mounted = stack.enter_context(mount(reader, image, bench.scratch / "mount", counted=True))
        machine.drop_caches()
        measure(["ls", "-lR", "/dev/null"])  # the program itself is not cold
        run = mounted.during(work)
    for name, data in zip(names, contents, strict=False):
        if data != (tree / name).read_bytes():
            raise Wrong(name)
    return {key: run[key] for key in ("wall_s", "cpu_s", "fetched_bytes", "requests")}


def words(results: Results) -> list[str]:
    """Returns sentences about the results."""
    text = Words(results, "reading")
    for method in METHODS:
        for ours in ("kiln mount", "kiln library"):
            for theirs in ("kernel EROFS", "erofsfuse", "kernel squashfs", "squashfuse_ll", "fuse-zip"):
                cases = {
                    step.name: ({"step": step.name, "reader": ours}, {"step": step.name, "reader": theirs})
                    for step in STEPS
                }
                text.spread(method, "cpu_s", cases, "CPU", of=ours, to=theirs, where=f"({method})")
    for method in METHODS:
        both = ({"method": method, "work": work} for work in ("kiln library", "decoding alone"))
        text.compare("decoding", "cpu_s", *both, "CPU", of="the library", to="decoding alone", where=f"({method})")
    erofs = {"image of": "mkfs.erofs"}
    for ours, theirs in (
        ({"program": "kiln extract", **erofs}, {"program": "fsck.erofs", **erofs}),
        ({"program": "kiln extract", "image of": "kiln"}, {"program": "unsquashfs", "image of": "mksquashfs"}),
        ({"program": "kiln extract", "image of": "kiln"}, {"program": "tar", "image of": "tar | zstd"}),
    ):
        text.compare("extract", "wall_s", ours, theirs, "time", of="kiln extract", to=theirs["program"])
    table = results.table("reading", "cold")
    rows = [row.labels for row in table.rows if row.ours] if table else []
    cases = {f"{row['read']}, {row['image']}": (row, {**row, "reader": "kernel erofs"}) for row in rows}
    what = "bytes from a cold device"
    text.spread("cold", "fetched_bytes", cases, what, of="kiln mount", to="the kernel's EROFS")
    return text.sentences()


def of_method(method: str) -> Table:
    """Returns the table of all steps for a compressor."""
    return Table(
        method,
        f"Reading a tree and its largest file by mounts and by the library, {method}",
        [CPU, WALL, *AGAIN, MEMORY],
        partial(steps, method=method),
        Plot("bars", "cpu_s", series="reader", only={"step": "every file, shuffled"}),
        rounds=3,
        note="CPU of client, server and kernel together; images in memory, a fresh mount for each row; `again` is the "
        "same step in the same mount. Clusters and blocks of 64 KiB. Memory is the server's.",
    )


SUITE = Suite(
    "reading",
    "Reading: mounts, library, copies, extraction, cold disks",
    "What does it cost to read a tree? kiln's FUSE server, erofsfuse and the kernel's EROFS read one and the same "
    "image, which kiln made; SquashFS has the same tree by the same algorithm, fuse-zip a zip file of it. A client "
    "compares all that it reads with digests of the source.",
    [
        of_method("zstd"),
        of_method("lz4"),
        Table(
            "decoding",
            "All streams of an image: decoding alone, and the library",
            [CPU, WALL],
            decoding,
            Plot("bars", "cpu_s", series="work"),
        ),
        Table(
            "extract",
            "Extracting an image of a system tree into memory",
            [WALL, CPU, MEMORY],
            extraction,
            Plot("bars", "wall_s", series="program"),
        ),
        Table(
            "cold",
            "Reading from a disk with nothing in memory",
            [FETCHED, REQUESTS, WALL, CPU],
            cold,
            Plot("bars", "fetched_bytes", series="reader"),
            rounds=3,
            note="Each image lies on a loop device that reads past the page cache. Caches are dropped before each row.",
        ),
    ],
    words,
)
