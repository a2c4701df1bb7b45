#!/usr/bin/env python3
"""Measure the storage of small files: image size, build time, and the cost of one cold read of a small file.

Costs are those that `kiln explain` tells: bytes of blocks that must be fetched and bytes that are decoded for a whole file by a
reader that has nothing in its cache. They are properties of the image, the same for every reader.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import lib
import packers
from packers import Packer

SCHEMA = 1

# (program, options)
GRID: List[Sequence[str]] = [
    ("kiln", "--fragments", "off"),
    ("kiln", "--fragments", "off", "--layout=tail-packing"),
    *(("kiln", "--fragments", "small", f"--layout=packed-cluster={unit}") for unit in ("16K", "32K", "64K", "128K")),
    ("kiln", "--fragments", "tails"),
    ("kiln", "--fragments", "all"),
    ("kiln", "--fragments", "all", "--layout", "packed-cluster=128K"),
    ("mkfs.erofs", "-zzstd,3", "-C65536"),
    ("mkfs.erofs", "-zzstd,3", "-C65536", "-Eztailpacking"),
    ("mkfs.erofs", "-zzstd,3", "-C65536", "-Eall-fragments"),
]


@dataclass
class Cost:
    """Means over the files that were asked for."""

    fetched: float  # data, in whole blocks
    decoded: float
    wanted: float


@dataclass
class Candidate:
    """One command line and its measurements."""

    words: Sequence[str]
    runs: List[lib.Run] = field(default_factory=list)
    cost: Optional[Cost] = None
    problem: Optional[str] = None

    @property
    def name(self) -> str:
        """The command line without the files."""
        return " ".join(self.words)


def choose(source: Path, longest: int, count: int) -> List[str]:
    """Some small files, the same for the same tree."""
    small = [path for path in lib.walk_files(source) if 0 < os.path.getsize(path) <= longest]
    return sorted(random.Random(1).sample(small, min(count, len(small))))


def cost_of(kiln: Packer, image: Path, source: Path, files: Sequence[str]) -> Cost:
    """Ask `kiln explain` about each file."""
    fetched = decoded = wanted = 0
    for path in files:
        command = [str(kiln.path), "explain", "--json", str(image), os.path.relpath(path, source)]
        answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        fetched, decoded = fetched + answer["fetched"], decoded + answer["decoded"]
        wanted += answer["wanted"]
    return Cost(fetched / len(files), decoded / len(files), wanted / len(files))


def measure(one: Candidate, found: Dict[str, Packer], source: Path, image: Path, files: Sequence[str]) -> None:
    """Build, ask, remove. A failure is kept in `one.problem`."""
    image.unlink(missing_ok=True)
    run = lib.measure(packers.grid_command(found[one.words[0]], one.words, source, image), image)
    one.runs.append(run)
    lib.say(f"{one.name}: exit {run.exit_code}, {run.wall_s:.2f} s wall, {lib.mb(run.image_bytes)} MB")
    try:
        if not run.ok:
            one.problem = f"exit {run.exit_code}: {run.stderr_tail}"
        elif one.cost is None:
            one.cost = cost_of(found["kiln"], image, source, files)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        one.problem = str(error)
    if one.problem:
        lib.say(f"  {one.problem}")
    image.unlink(missing_ok=True)


def row(one: Candidate) -> List[str]:
    """One line of the table: medians of the builds."""
    if one.problem or not one.cost:
        return [f"`{one.name}`", "failed", "-", "-", "-", "-"]
    m = lib.median_run(one.runs)
    kib = [f"{value / lib.KIB:.1f}" for value in (one.cost.fetched, one.cost.decoded)]
    return [f"`{one.name}`", lib.mb(m["image_bytes"]), f"{m['wall_s']:.2f}", f"{m['cpu_s']:.2f}", *kib]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree to pack")
    parser.add_argument("--runs", type=lib.positive, default=3, help="rounds (default 3)")
    parser.add_argument("--files", type=lib.positive, default=500, help="files to be asked about (default 500)")
    parser.add_argument("--longest", type=lib.parse_size, default="64K", help="longest of them (default 64K)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="command lines")
    parser.add_argument("--tmp", type=Path, help="directory for images (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if anything failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    source, found = arguments.corpus.resolve(), packers.find_packers()
    listed = [Candidate(words) for words in GRID if words[0] in found and arguments.only.search(" ".join(words))]
    if not listed or not source.is_dir() or "kiln" not in found:
        lib.say("nothing to do: kiln, a directory and at least one candidate are needed")
        return 2
    corpus = lib.warm(source)
    files = choose(source, arguments.longest, arguments.files)
    if not files:
        lib.say("nothing to do: there are no small files")
        return 2
    with lib.scratch(arguments.tmp) as folder:
        for number in range(arguments.runs):
            for one in lib.rotated(listed, number):
                measure(one, found, source, folder / "image", files)
    facts: Dict[str, Any] = {**lib.machine_facts(), "programs": {one.name: one.version for one in found.values()}}
    mean = sum(map(os.path.getsize, files)) / len(files) / lib.KIB
    print(f"{corpus.path}: {corpus.files} files, {lib.mb(corpus.bytes)} MB. Medians of {arguments.runs} rounds; "
          f"means of {len(files)} files of {mean:.1f} KiB on average.\n")
    head = ["command", "image MB", "wall s", "CPU s", "KiB fetched a file", "KiB decoded a file"]
    print(lib.markdown_table(head, (row(one) for one in listed)))
    document = {"schema": SCHEMA, "kind": "small", "facts": facts, "corpus": asdict(corpus)}
    lib.write_json(arguments.out, {**document, "candidates": [asdict(one) for one in listed]})
    return 1 if any(one.problem for one in listed) else 0


if __name__ == "__main__":
    sys.exit(main())
