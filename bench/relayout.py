#!/usr/bin/env python3
"""Compare `kiln relayout`, with an order and without (compact), with packing again and `cp`; read an ordered image from slow storage.

A hot list, or a seeded stand-in for one (ranges of files all over the tree), is read through a mount of the image, cold, in its order. The image
lies in a file that takes longer for each read, and counts (`slow_file`): cached, as a disk is. Root only.
"""
from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

import lib
import mounted
import packers
import servers

SEED = 1
FILES = 150
RANGE = 128 << 10
MAGIC = "#kiln-hotlist 1"
Range = Tuple[int, int, str]


@dataclass
class Made:
    """A command that makes an image."""

    what: str
    cpu_s: float
    wall_s: float
    image_bytes: int


@dataclass
class Replayed:
    """A list that was read."""

    image: str
    who: str
    delay_us: int
    requests: int
    fetched: int
    wall_s: float


def stand_in(tree: Path) -> List[Range]:
    """Ranges of files all over the tree, as a program that starts might read them: fronts of small files, some stretches of large ones."""
    chosen = random.Random(SEED)
    paths = sorted(path for path in lib.walk_files(tree) if not os.path.islink(path) and os.path.getsize(path))
    large = [path for path in paths if os.path.getsize(path) > 8 * RANGE]
    picked = chosen.sample(paths, min(FILES, len(paths))) + chosen.sample(large, min(FILES // 10, len(large)))
    ranges: List[Range] = []
    for path in picked:
        size, name = os.path.getsize(path), os.path.relpath(path, tree)
        ranges.append((0, min(size, RANGE), name))
        if size > 8 * RANGE:
            places = chosen.sample(range(1, size // RANGE), 3)
            ranges.extend((place * RANGE, RANGE, name) for place in places)
    chosen.shuffle(ranges)
    return ranges


def escape(name: str) -> str:
    """A path as a hot list has it."""
    raw = name.encode(errors="surrogateescape")
    return "".join(chr(byte) if 32 < byte < 127 and byte != 92 else f"\\{byte:03o}" for byte in raw)


def unescape(text: str) -> str:
    """The path that a hot list means."""
    raw = re.sub(rb"\\([0-3][0-7]{2})", lambda octal: bytes([int(octal[1], 8)]), text.encode(errors="surrogateescape"))
    return os.fsdecode(raw)


def read_list(path: Path) -> List[Range]:
    """The ranges of a hot list."""
    lines = path.read_text(errors="surrogateescape").split("\n")
    assert lines[0] == MAGIC, f"{path}: no hot list"
    ranges = []
    for line in lines[1:]:
        if line and not line.startswith("#"):
            place, _, name = line.split("\t", 2)
            off, length = place.split("+")
            ranges.append((int(off), int(length), unescape(name)))
    return ranges


@contextmanager
def slow(program: Path, image: Path, folder: Path, delay_us: int) -> Iterator[Path]:
    """The image on slow storage. `counts` lies beside it."""
    folder.mkdir(exist_ok=True)
    child = subprocess.Popen([program, "--cached", image, folder, str(delay_us)])
    try:
        servers.wait_for(lambda: (folder / "counts").exists(), child, "slow_file")
        yield folder / image.name
    finally:
        mounted.check(mounted._libc.umount2(os.fsencode(folder), 0), f"umount {folder}")
        child.wait()


def counts(folder: Path) -> Tuple[int, int]:
    """Reads and bytes so far."""
    reads, fetched = (folder / "counts").read_text().split()
    return int(reads), int(fetched)


def replay(server: servers.Server, source: Path, place: Path, ranges: Sequence[Range]) -> Tuple[float, int, int]:
    """Mount, and read the ranges, mount included. Seconds, requests and bytes."""
    mounted.drop_caches()
    before, start = counts(source.parent), time.perf_counter()
    with servers.serving(server, source, place):
        for off, length, name in ranges:
            if length == 0:
                os.lstat(place / name)
                continue
            fd = os.open(place / name, os.O_RDONLY)
            try:
                # As a program that maps a file: no reading ahead of it.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(fd, length, off)
            finally:
                os.close(fd)
        wall_s = time.perf_counter() - start
        after = counts(source.parent)
    return wall_s, after[0] - before[0], after[1] - before[1]


def make_all(kiln: Path, tree: Path, listed: Path, folder: Path, options: Sequence[str]) -> Tuple[List[Made], Dict[str, Path]]:
    """Return all images, and the cost of making them."""
    images = {name: folder / f"{name}.erofs" for name in ("packed", "ordered pack", "relayout", "compact", "copy")}
    commands = {
        "packed": [kiln, "pack", "-q", *options, tree, images["packed"]],
        "ordered pack": [kiln, "pack", "-q", *options, "--order", listed, tree, images["ordered pack"]],
        "relayout": [kiln, "relayout", "-q", "--order", listed, images["packed"], images["relayout"]],
        "compact": [kiln, "relayout", "-q", images["relayout"], images["compact"]],
        "copy": ["sh", "-c", 'cp "$0" "$1" && sync "$1"', images["packed"], images["copy"]],
    }
    made = []
    for what, command in commands.items():
        run = lib.measure([str(part) for part in command], images[what])
        if not run.ok:
            raise RuntimeError(f"{what}: {run.stderr_tail}")
        made.append(Made(what, run.cpu_s, run.wall_s, run.image_bytes))
    for what in ("relayout", "compact"):
        subprocess.run([kiln, "diff", "-q", images["packed"], images[what]], check=True)
    return made, images


def main() -> int:
    """Exit code 1 if something failed, 2 if there was nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="a tree")
    parser.add_argument("--list", type=Path, help="a hot list of the tree; the default is a seeded stand-in for one")
    parser.add_argument("--rounds", type=lib.positive, default=1, help="rounds of replays, each in another order; medians are told")
    parser.add_argument("--delay", type=int, action="append", help="microseconds a read, several times; default 1000 and 10000")
    parser.add_argument("--options", default="", help="of kiln pack, for all images")
    parser.add_argument("--tmp", type=Path, help="directory for images, not on a tmpfs")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    kiln = packers.kiln_path().resolve()
    program = kiln.parent / "examples/slow_file"
    if not kiln.exists() or not program.exists() or os.geteuid() != 0:
        lib.say(f"needs root, {kiln} and {program}: cargo build --release -p kiln-command, -p kiln-mount --example slow_file")
        return 2
    tree, problems, replayed = arguments.tree.resolve(), [], []
    ranges = read_list(arguments.list) if arguments.list else stand_in(tree)
    listed = [server for server in servers.find_servers(kiln).values() if server.kind == "erofs"]
    with lib.scratch(arguments.tmp) as folder:
        hot = folder / "hot.list"
        lines = [f"{off}+{length}\t{number}\t{escape(name)}" for number, (off, length, name) in enumerate(ranges)]
        hot.write_text("\n".join([MAGIC, *lines]) + "\n")
        lib.warm(tree)
        made, images = make_all(kiln, tree, hot, folder, arguments.options.split())
        (place := folder / "mount").mkdir()
        contestants = [(name, server) for name in ("packed", "ordered pack", "relayout") for server in listed]
        for delay in arguments.delay or [1000, 10000]:
            taken: Dict[Tuple[str, str], List[Tuple[float, int, int]]] = {(name, server.name): [] for name, server in contestants}
            for number in range(arguments.rounds):
                for name, server in lib.rotated(contestants, number):
                    try:
                        with slow(program, images[name], folder / "slow", delay) as source:
                            taken[name, server.name].append(replay(server, source, place, ranges))
                    except (OSError, RuntimeError) as error:
                        problems.append(f"{name}, {server.name}: {error}")
                        lib.say(problems[-1])
            for (name, who), runs in taken.items():
                if runs:
                    wall_s, requests, fetched = (lib.median(run[at] for run in runs) for at in range(3))
                    replayed.append(Replayed(name, who, delay, int(requests), int(fetched), wall_s))
    wanted = sum(length for _, length, _ in ranges)
    lib.say(f"{len(ranges)} ranges of {len({name for _, _, name in ranges})} files, {lib.mb(wanted)} MB")
    pack = made[0]
    print(lib.markdown_table(
        ["what", "CPU s", "of a pack", "wall s", "of a pack", "MB"],
        [[m.what, f"{m.cpu_s:.2f}", f"{m.cpu_s / pack.cpu_s:.3f}", f"{m.wall_s:.2f}", f"{m.wall_s / pack.wall_s:.3f}", lib.mb(m.image_bytes)]
         for m in made]))
    print()
    print(lib.markdown_table(
        ["image", "who", "ms a read", "requests", "MB", "wall s"],
        [[r.image, r.who, f"{r.delay_us / 1000:g}", str(r.requests), lib.mb(r.fetched), f"{r.wall_s:.2f}"] for r in replayed]))
    results = [asdict(one) for one in [*made, *replayed]]
    return lib.end(arguments.out, "relayout", problems, results)


if __name__ == "__main__":
    sys.exit(main())
