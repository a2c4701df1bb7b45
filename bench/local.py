#!/usr/bin/env python3
"""Estimate the gain of metadata beside data: the cost of a cold walk and read of one directory, today and at best.

Today all inodes and directories of an image are one zone behind its data, both in the order of a walk. In the layout of the EROFS paper a directory's
inodes, indexes and data lie together. The model of that is as good as it could be: data is fetched as today, and what a walk alone fetches today comes with it, in
requests as long as the longest of the system. The image lies in a file that takes longer for each read, and counts (`slow_file`). Root only.
"""
from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import List, Tuple

import lib
import mounted
import packers
import relayout
import servers

SEED = 1
REQUEST = 128 << 10  # the window of the system's readahead
SMALLEST = 50  # files below a directory that is read


@dataclass
class Cost:
    """Of one directory, read by one server."""

    directory: str
    files: int
    who: str
    requests: int
    fetched: int
    wall_s: float
    walked: int  # requests of a walk alone
    best: int  # requests of the model

    def gain(self, delay_us: int) -> float:
        """Wall time that the model would save, if all requests waited one after the other."""
        return min(1.0, (self.requests - self.best) * delay_us / 1e6 / self.wall_s)


def directories(tree: Path, count: int) -> List[Path]:
    """Directories of some files, at random."""
    found = [Path(folder) for folder, _, _ in os.walk(tree)]
    chosen = random.Random(SEED)
    chosen.shuffle(found)
    suits = (folder for folder in found if folder != tree and SMALLEST <= sum(1 for _ in lib.walk_files(folder)) <= 20 * SMALLEST)
    return [folder.relative_to(tree) for folder, _ in zip(suits, range(count))]


def look_at(folder: Path, reads: bool) -> int:
    """Walk, examine everything, and optionally read all files. Return the number of files."""
    files = 0
    for base, dirs, names in os.walk(folder):
        dirs.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            if not os.path.islink(path) and not reads:
                files += 1
            elif not os.path.islink(path):
                with open(path, "rb", buffering=0) as file:
                    while file.read(1 << 20):
                        pass
                files += 1
    return files


def cost(server: servers.Server, source: Path, place: Path, directory: Path, reads: bool) -> Tuple[int, int, int, float]:
    """Files, requests, bytes and seconds."""
    mounted.drop_caches()
    with servers.serving(server, source, place):
        before, start = relayout.counts(source.parent), time.perf_counter()
        files = look_at(place / directory, reads)
        wall_s, after = time.perf_counter() - start, relayout.counts(source.parent)
    return files, after[0] - before[0], after[1] - before[1], wall_s


def main() -> int:
    """Exit code 1 if something failed, 2 if there was nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="a tree")
    parser.add_argument("--count", type=int, default=8, help="directories that are read")
    parser.add_argument("--delay", type=int, default=1000, help="microseconds a read")
    parser.add_argument("--options", default="", help="of kiln pack")
    parser.add_argument("--tmp", type=Path, help="directory for images, not on a tmpfs")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    kiln = packers.kiln_path().resolve()
    program = kiln.parent / "examples/slow_file"
    if not kiln.exists() or not program.exists() or os.geteuid() != 0:
        lib.say(f"needs root, {kiln} and {program}: cargo build --release -p kiln-command, -p kiln-mount --example slow_file")
        return 2
    tree, results = arguments.tree.resolve(), []
    listed = [server for server in servers.find_servers(kiln).values() if server.kind == "erofs"]
    with lib.scratch(arguments.tmp) as folder:
        image = folder / "image.erofs"
        subprocess.run([kiln, "pack", "-q", *arguments.options.split(), tree, image], check=True)
        (place := folder / "mount").mkdir()
        for directory in directories(tree, arguments.count):
            for server in listed:
                with relayout.slow(program, image, folder / "slow", arguments.delay) as source:
                    _, walked, metadata, _ = cost(server, source, place, directory, reads=False)
                    files, requests, fetched, wall_s = cost(server, source, place, directory, reads=True)
                best = max(requests - walked, 0) - (-metadata // REQUEST)
                results.append(Cost(str(directory), files, server.name, requests, fetched, wall_s, walked, min(best, requests)))
    rows = [[r.directory, str(r.files), r.who, str(r.requests), lib.mb(r.fetched), f"{r.wall_s:.2f}", str(r.walked), str(r.best), f"{r.gain(arguments.delay):.2f}"]
            for r in results]
    print(lib.markdown_table(["directory", "files", "who", "requests", "MB", "wall s", "of a walk", "at best", "gain at most"], rows))
    return lib.end(arguments.out, "local", [], [asdict(one) for one in results])


if __name__ == "__main__":
    sys.exit(main())
