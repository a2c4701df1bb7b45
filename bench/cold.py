#!/usr/bin/env python3
"""Measure reads from a cold, slow disk: bytes, requests, and the time with a limit on reads per second.

A cgroup (v1, blkio) holds client and server together to `--iops` reads a second of the disk that the images lie on, and counts what they
read. Before each row, all caches are dropped. What files give is compared with the tree. Root only. `--seed` and `--iops` can be repeated:
the second table has, for each row, the largest ratio of bytes between kiln's mount and the kernel's driver, over all of them.
"""
from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import lib
import mounted
import packers
import servers

BAR = 1.3  # bytes that kiln's mount takes from the disk, of those of the kernel's driver
FILES = 1000
PICTURES = 3000
PICTURE_LEN = (2000, 12000)
IMAGES = ("default", "dataset", "mkfs.erofs")
SQUASHFS = ["-comp", "zstd", "-Xcompression-level", "3", "-b", "64K", "-noappend", "-no-progress", "-quiet"]
EXT4_SLACK = 3  # ext4 wants room for journal and tables: as many times the bytes of the tree


class Disk:
    """The disk below a directory, as one cgroup sees it: held to so many reads a second, and counted."""

    def __init__(self, cgroup: Path, folder: Path, iops: int):
        device = os.stat(folder).st_dev
        self.number = f"{os.major(device)}:{os.minor(device)}"
        self.cgroup = cgroup
        (cgroup / "blkio.throttle.read_iops_device").write_text(f"{self.number} {iops}\n")

    def reads(self) -> Tuple[int, int]:
        """Bytes and requests that were read so far."""
        return self.count("blkio.throttle.io_service_bytes"), self.count("blkio.throttle.io_serviced")

    def count(self, name: str) -> int:
        lines = (line.split() for line in (self.cgroup / name).read_text().splitlines())
        return next((int(line[2]) for line in lines if line[:2] == [self.number, "Read"]), 0)


@contextmanager
def throttled(folder: Path, iops: int) -> Iterator[Disk]:
    """Put this process and those that it starts into a separate cgroup."""
    root = blkio_root()
    own = root / f"kiln-cold-{os.getpid()}"
    own.mkdir()
    try:
        disk = Disk(own, folder, iops)
        (own / "cgroup.procs").write_text("0")
        yield disk
    finally:
        (root / "cgroup.procs").write_text("0")
        own.rmdir()


def blkio_root() -> Path:
    """Return the mount point of cgroup v1's blkio controller."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    found = next((Path(words[1]) for words in mounts if words[2] == "cgroup" and "blkio" in words[3].split(",")), None)
    if found is None:
        raise OSError("no cgroup v1 hierarchy with blkio: mount -t cgroup -o blkio none DIR")
    return found


@dataclass(frozen=True)
class Row:
    """Something that is read, of an image of a tree."""

    what: str
    image: str
    tree: Path
    paths: Optional[List[str]]  # None: `ls -lR`


def shuffled(tree: Path, count: int, seed: int) -> List[str]:
    """Paths of so many files, the same for the same tree and seed."""
    paths = [os.path.relpath(path, tree) for path in lib.walk_files(tree)]
    return random.Random(seed).sample(paths, min(count, len(paths)))


def make_pictures(folder: Path) -> Path:
    """Small files that do not compress, a hundred in each directory."""
    generator = random.Random(PICTURES)
    for idx in range(PICTURES):
        path = folder / f"{idx // 100:02}" / f"{idx:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.randbytes(generator.randrange(*PICTURE_LEN)))
    return folder


def run(row: Row, place: Path) -> List[bytes]:
    """Return the contents of the files that the row reads below `place`."""
    if row.paths is None:
        subprocess.run(["ls", "-lR", str(place)], stdout=subprocess.DEVNULL, check=True)
        return []
    return [(place / path).read_bytes() for path in row.paths]


def measure(server: servers.Server, image: Path, row: Row, place: Path, iops: int) -> Dict[str, float]:
    """Mount, forget everything, read; raises WrongData where the bytes are not the tree's."""
    with throttled(image.parent, iops) as disk, servers.serving(server, image, place):
        mounted.drop_caches()
        subprocess.run(["ls", "-lR", "/dev/null"], stdout=subprocess.DEVNULL, check=True)  # the program itself is not cold
        evict(image)
        (bytes_before, requests_before), start = disk.reads(), time.perf_counter()
        contents = run(row, place)
        wall_s, (bytes_after, requests_after) = time.perf_counter() - start, disk.reads()
    for path, data in zip(row.paths or [], contents):
        if data != (row.tree / path).read_bytes():
            raise mounted.WrongData(f"{server.name}: {path}")
    return {"bytes": bytes_after - bytes_before, "requests": requests_after - requests_before, "wall_s": wall_s}


def evict(image: Path) -> None:
    """Drop the image's own pages from the cache: a server may have read some at its start."""
    fd = os.open(image, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def make_image(kiln: Path, name: str, tree: Path, image: Path) -> None:
    """The image of that name: a preset, or another program's."""
    size = sum(os.path.getsize(path) for path in lib.walk_files(tree))
    mkfs, mksquashfs = packers.peer_path("erofs", "mkfs.erofs"), packers.peer_path("squashfs-tools", "mksquashfs")
    commands: Dict[str, List[str]] = {
        "default": [str(kiln), "pack", "--quiet", str(tree), str(image)],
        "dataset": [str(kiln), "pack", "--quiet", "--preset", "dataset", str(tree), str(image)],
        "mkfs.erofs": [str(mkfs), "-zzstd,3", "-C65536", "--quiet", str(image), str(tree)],
        "squashfs": [str(mksquashfs), str(tree), str(image), *SQUASHFS],
        "ext4": ["mkfs.ext4", "-q", "-d", str(tree), str(image), f"{(EXT4_SLACK * size + (64 << 20)) >> 10}k"],
    }
    subprocess.run(commands[name], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    lib.flush(image)


def find_contestants(kiln: Path) -> List[servers.Server]:
    """All that mount EROFS or SquashFS here, and ext4."""
    found = [server for server in servers.find_servers(kiln).values() if server.kind in ("erofs", "squashfs")]
    return [*found, servers.Server("ext4", "ext4", None)]


def find_rows(tree: Path, pictures: Path, seed: int) -> List[Row]:
    """All that is measured with a seed, image by image."""
    files = shuffled(tree, FILES, seed)
    return [
        *(Row(f"{FILES} files shuffled", image, tree, files) for image in IMAGES),
        *(Row("`ls -lR`", image, tree, None) for image in IMAGES),
        Row(f"{PICTURES} pictures", "dataset", pictures, shuffled(pictures, PICTURES, seed)),
    ]


def ratios(results: List[Dict[str, object]]) -> List[List[str]]:
    """The largest ratio of bytes between kiln and the kernel's driver of each row, and in how many cells it was measured."""
    cells: Dict[Tuple[str, str], List[float]] = {}
    taken = {(r["what"], r["image"], r["seed"], r["iops"], r["who"]): r["bytes"] for r in results}
    for (what, image, seed, iops, who), taken_bytes in taken.items():
        of_kernel = taken.get((what, image, seed, iops, "kernel EROFS"))
        if who == "kiln" and of_kernel:
            cells.setdefault((what, image), []).append(taken_bytes / of_kernel)
    rows = sorted(cells.items())
    return [
        [what, image, str(len(all_)), f"{max(all_):.2f}", "" if max(all_) <= BAR else f"over {BAR}"]
        for (what, image), all_ in rows
    ]


def main() -> int:
    """Exit code 1 if bytes were wrong or a program failed, 2 if there was nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--iops", type=lib.positive, action="append", help="reads a second (default 1000)")
    parser.add_argument("--seed", type=int, action="append", help="of the order of files (default 1)")
    parser.add_argument("--who", action="append", default=[], help="only these contestants")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows with this text in their name")
    parser.add_argument("--tmp", type=Path, help="directory for images, on a disk")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    kiln = packers.kiln_path().resolve()
    if not kiln.exists() or os.geteuid() != 0:
        lib.say(f"needs root and {kiln}: cargo build --release -p kiln-command")
        return 2
    who = [one for one in find_contestants(kiln) if one.name in (arguments.who or [one.name])]
    results, problems = [], []
    with lib.scratch(arguments.tmp) as folder:
        place = folder / "mount"
        place.mkdir()
        tree, pictures = arguments.tree.resolve(), make_pictures(folder / "pictures")
        cells = [(seed, iops) for seed in arguments.seed or [1] for iops in arguments.iops or [1000]]
        rows = [(row, seed, iops) for seed, iops in cells for row in find_rows(tree, pictures, seed)]
        images: Dict[Tuple[str, Path], Path] = {}
        for row, seed, iops in ((row, seed, iops) for row, seed, iops in rows if arguments.only in row.what):
            # What is no EROFS has one image of each tree: it stands beside the first of ours.
            first = (f"first {row.what} {seed} {iops}", row.tree)
            is_first = first not in images
            images[first] = folder
            for server in who if is_first else [one for one in who if one.kind == "erofs"]:
                name = row.image if server.kind == "erofs" else server.kind
                try:
                    if (name, row.tree) not in images:
                        image = folder / f"{row.tree.name}-{name}.img"
                        make_image(kiln, name, row.tree, image)
                        images[(name, row.tree)] = image
                    cost = measure(server, images[(name, row.tree)], row, place, iops)
                    cell = {"what": row.what, "image": name, "who": server.name, "seed": seed, "iops": iops}
                    results.append({**cell, **cost})
                    lib.say(f"{row.what}, {name}, {server.name}: {lib.mb(cost['bytes'])} MB, {cost['requests']}")
                except (OSError, subprocess.CalledProcessError, mounted.WrongData) as error:
                    problems.append(f"{row.what}, {name}, {server.name}: {error}")
                    lib.say(problems[-1])
    head = ["read", "image", "who", "seed", "reads/s", "MB from the disk", "requests", "s"]
    table = [
        [
            r["what"], r["image"], r["who"], str(r["seed"]), str(r["iops"]), lib.mb(r["bytes"]), str(r["requests"]),
            f"{r['wall_s']:.2f}",
        ]
        for r in results
    ]  # fmt: skip
    print(lib.markdown_table(head, table))
    print()
    print(lib.markdown_table(["read", "image", "cells", "kiln / kernel, bytes, at most", "bar"], ratios(results)))
    return lib.end(arguments.out, "cold", problems, results)


if __name__ == "__main__":
    sys.exit(main())
