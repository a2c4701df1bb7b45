#!/usr/bin/env python3
"""Measure the bytes fetched from the disk to read 16 MiB of a large file: sequentially, at random, in strides.

Each contestant mounts a loop device on the image, which reads past the page cache; the device's own counter says what was fetched,
read-ahead included. Caches are dropped before each read, and what is read is compared with the source. Root only.
"""
from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import lib
import mounted
import packers
import read
import servers

WANTED = 16 << 20
PAGE = 4096
STRIDE = 128 << 10
SEED = 1
KINDS = ["erofs", "squashfs"]


def plans(size: int) -> Dict[str, List[Tuple[int, int]]]:
    """Ranges of a file by access pattern, at most `WANTED` bytes; the strides of a short file come to less."""
    pages = random.Random(SEED).sample(range(size // PAGE), min(WANTED // PAGE, size // PAGE))
    step = 128 << 10  # what `cp` reads at a time
    return {
        "sequentially": [(off, step) for off in range(0, min(WANTED, size - step), step)],
        "at random": [(page * PAGE, PAGE) for page in pages],
        "4 KiB of each 128 KiB": [(off, PAGE) for off in range(0, size - PAGE, STRIDE)][: WANTED // PAGE],
    }


def fetched(server: servers.Server, image: Path, place: Path, file: Path, source: Path, parts: List[Tuple[int, int]]) -> int:
    """Bytes from the disk for `parts` of `file`, a path below the mount, which must be those of `source`."""
    with mounted.loop_device(image) as device, servers.serving(server, device, place):
        # The name is looked up before: metadata is the same for all patterns.
        with open(place / file, "rb", buffering=0) as shown, open(source, "rb", buffering=0) as truth:
            mounted.drop_caches()
            counter = mounted.counter_of(device)
            before = mounted.bytes_read(counter)
            read_parts = [os.pread(shown.fileno(), length, off) for off, length in parts]
            after = mounted.bytes_read(counter)
            for (off, length), data in zip(parts, read_parts):
                if data != os.pread(truth.fileno(), length, off):
                    raise mounted.WrongData(f"{server.name}: {file} at {off}")
    assert before is not None and after is not None, "loop devices count"
    return after - before


def largest(tree: Path) -> Path:
    """The largest file of a tree."""
    paths = (Path(path) for path in lib.walk_files(tree))
    return max((path for path in paths if not path.is_symlink()), key=lambda path: path.stat().st_size)


def main() -> int:
    """Exit code 1 if bytes were wrong or a program failed, 2 if there was nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="a tree; its largest file is read")
    parser.add_argument("--method", choices=[*read.SETTINGS], action="append", help="only this algorithm")
    parser.add_argument("--who", action="append", default=[], help="only these contestants")
    parser.add_argument("--tmp", type=Path, help="directory for images, not on a tmpfs")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    kiln = packers.kiln_path().resolve()
    if not kiln.exists() or os.geteuid() != 0:
        lib.say(f"needs root and {kiln}: cargo build --release -p kiln-command")
        return 2
    tree = arguments.tree.resolve()
    source = largest(tree)
    listed = [s for n, s in servers.find_servers(kiln).items() if s.kind in KINDS and n in (arguments.who or [n])]
    results, problems = [], []
    with lib.scratch(arguments.tmp) as folder:
        place = folder / "mount"
        place.mkdir()
        for method in arguments.method or read.SETTINGS:
            images = read.make_images(tree, read.SETTINGS[method], folder, KINDS, [])
            for name, parts in plans(source.stat().st_size).items():
                wanted = sum(length for _, length in parts)
                for server in (server for server in listed if server.kind in images):
                    try:
                        count = fetched(server, images[server.kind], place, source.relative_to(tree), source, parts)
                        results.append({"pattern": name, "method": method, "who": server.name, "wanted": wanted, "fetched": count})
                    except (OSError, mounted.WrongData) as error:
                        problems.append(f"{method}, {name}, {server.name}: {error}")
                        lib.say(problems[-1])
            for image in images.values():
                image.unlink()
    head = ["read", "method", "who", "wanted MB", "fetched MB", "fetched / wanted"]
    rows = [
        [r["pattern"], r["method"], r["who"], lib.mb(r["wanted"]), lib.mb(r["fetched"]), f"{r['fetched'] / r['wanted']:.2f}"]
        for r in results
    ]
    print(lib.markdown_table(head, rows))
    return lib.end(arguments.out, "fetched", problems, results)


if __name__ == "__main__":
    sys.exit(main())
