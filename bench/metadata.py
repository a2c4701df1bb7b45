#!/usr/bin/env python3
"""Measure the storage of metadata: image size, and bytes read by a cold `ls -lR`. README.md explains.

Needs root: each image is mounted by the kernel, through a loop device of its own, and the page cache is dropped.
"""
from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import lib
import mounted
import packers
from packers import Packer

SCHEMA = 1

# (program, options)
GRID: List[Sequence[str]] = [
    ("kiln",),
    ("kiln", "--layout=compress-dirs"),
    ("kiln", "--kernel", "6.15"),
    ("kiln", "--kernel", "6.15", "--layout=compress-dirs"),
    ("kiln", "--layout=metadata=8K"),
    ("kiln", "--layout=metadata"),
    ("kiln", "--layout=metadata=128K"),
    ("kiln", "--layout=metadata", "--layout", "extents=index"),
    ("mkfs.erofs", "-zzstd,3", "-C65536", "-Efragments"),
    # 1.9.4 takes 0 for on.
    ("mkfs.erofs", "-zzstd,3", "-C65536", "-Efragments", "-m32768", "--zD=0"),
]


@dataclass
class Listing:
    """A cold `ls -lR`."""

    wall_s: float
    disk_bytes: Optional[int]


@dataclass
class Candidate:
    """One command line and its measurements."""

    words: Sequence[str]
    runs: List[lib.Run] = field(default_factory=list)
    listings: List[Listing] = field(default_factory=list)
    problem: Optional[str] = None

    @property
    def name(self) -> str:
        """The command line without the files."""
        return " ".join(self.words)


def list_all(directory: Path) -> int:
    """`ls -lR`; how many lines it printed."""
    command = ["ls", "-lR", str(directory)]
    listed = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, "LC_ALL": "C"})
    return listed.stdout.count(b"\n")


def list_cold(image: Path, directory: Path, lines: int) -> Listing:
    """Mount, drop caches, list. Raises WrongData if there is more or less than `lines`."""
    with mounted.loop_device(image) as source, mounted.mounted(source, directory):
        counter = mounted.counter_of(source)
        mounted.drop_caches()
        before, start = mounted.bytes_read(counter), time.perf_counter()
        found = list_all(directory)
        wall_s, after = time.perf_counter() - start, mounted.bytes_read(counter)
    if found != lines:
        raise mounted.WrongData(f"{found} lines of ls -lR, not {lines}")
    return Listing(wall_s, None if before is None or after is None else after - before)


def measure(candidate: Candidate, packer: Packer, source: Path, folder: Path, lines: int) -> None:
    """Build, list, remove. A failure is kept in `candidate.problem`."""
    image, directory = folder / "image", folder / "mount"
    image.unlink(missing_ok=True)
    run = lib.measure(packers.grid_command(packer, candidate.words, source, image), image)
    candidate.runs.append(run)
    lib.say(f"{candidate.name}: exit {run.exit_code}, {run.wall_s:.2f} s wall, {lib.mb(run.image_bytes)} MB")
    try:
        if run.ok:
            candidate.listings.append(list_cold(image, directory, lines))
        else:
            candidate.problem = f"exit {run.exit_code}: {run.stderr_tail}"
    except (OSError, subprocess.CalledProcessError, mounted.WrongData) as error:
        candidate.problem = str(error)
    if candidate.problem:
        lib.say(f"  {candidate.problem}")
    image.unlink(missing_ok=True)


def row(candidate: Candidate) -> List[str]:
    """One line of the table: medians."""
    if candidate.problem or not candidate.runs:
        return [candidate.name, "failed", "-", "-", "-"]
    m = lib.median_run(candidate.runs)
    disk = lib.median(listing.disk_bytes for listing in candidate.listings)
    wall = lib.median(listing.wall_s for listing in candidate.listings)
    read = "-" if disk is None else f"{disk / 1e6:.2f}"
    return [f"`{candidate.name}`", lib.mb(m["image_bytes"]), f"{m['cpu_s']:.2f}", read, f"{wall:.2f}"]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree to pack")
    parser.add_argument("--runs", type=lib.positive, default=3, help="rounds (default 3)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="command lines")
    parser.add_argument("--tmp", type=Path, help="directory for images, on a real disk (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if a build failed or an image was wrong, 2 if there was nothing to do."""
    arguments = parse_arguments()
    source, found = arguments.corpus.resolve(), packers.find_packers()
    listed = [Candidate(words) for words in GRID if words[0] in found and arguments.only.search(" ".join(words))]
    if not listed or not source.is_dir() or os.geteuid() != 0:
        lib.say("nothing to do: root, a directory and at least one candidate are needed")
        return 2
    corpus = lib.warm(source)
    with lib.scratch(arguments.tmp) as folder:
        (folder / "mount").mkdir()
        lines = list_all(source)
        for number in range(arguments.runs):
            for candidate in lib.rotated(listed, number):
                measure(candidate, found[candidate.words[0]], source, folder, lines)
    facts: Dict[str, Any] = {**lib.machine_facts(), "programs": {one.name: one.version for one in found.values()}}
    print(f"{corpus.path}: {corpus.files} files, {lib.mb(corpus.bytes)} MB. Medians of {arguments.runs} rounds.\n")
    head = ["command", "image MB", "CPU s", "MB read by ls -lR", "s"]
    print(lib.markdown_table(head, (row(candidate) for candidate in listed)))
    candidates = [asdict(candidate) for candidate in listed]
    document = {"schema": SCHEMA, "kind": "metadata", "facts": facts, "corpus": asdict(corpus)}
    lib.write_json(arguments.out, {**document, "candidates": candidates})
    return 1 if any(candidate.problem for candidate in listed) else 0


if __name__ == "__main__":
    sys.exit(main())
