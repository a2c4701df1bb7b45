#!/usr/bin/env python3
"""Candidates for kiln's presets over one tree: size, time to build, cost of cold random reads. README.md explains.

Needs root: each image is mounted by the kernel, and the page cache is dropped.
"""
from __future__ import annotations

import argparse
import bisect
import itertools
import os
import random
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import lib
import mounted
import packers
from mounted import Cost, Place
from packers import Packer, Setting

SCHEMA = 1

# (preset, methods, units): every method with every unit.
Method = Tuple[str, Optional[int]]
GRID: List[Tuple[str, List[Method], List[int]]] = [
    ("fast", [("lz4", None), ("lz4hc", 9)], [16 * lib.KIB, 64 * lib.KIB, 128 * lib.KIB]),
    ("balanced", [("zstd", level) for level in (1, 3, 6, 9)], [64 * lib.KIB, 128 * lib.KIB, 256 * lib.KIB]),
    ("archive", [("zstd", 15), ("zstd", 19), ("lzma", 6)], [128 * lib.KIB, 512 * lib.KIB, lib.MIB]),
]

# Two ways to choose places. By files: small files prevail, as when a system starts. By bytes: large files prevail, as
# in a database or a data set, and a unit much larger than the read costs most.
FILES, BYTES = "files", "bytes"


@dataclass
class Candidate:
    """One setting and its measurements."""

    preset: str
    setting: Setting
    runs: List[lib.Run] = field(default_factory=list)
    reads: Dict[str, List[Cost]] = field(default_factory=lambda: {FILES: [], BYTES: []})
    problem: Optional[str] = None

    @property
    def name(self) -> str:
        """`balanced zstd,3 128K`."""
        return f"{self.preset} {self.setting.method} {lib.unit_name(self.setting.unit)}"


class Tree:
    """The regular files of a tree, to draw places from."""

    def __init__(self, root: Path) -> None:
        paths = [path for path in lib.walk_files(root) if os.path.getsize(path) > 0]
        self.paths = [os.path.relpath(path, root) for path in paths]
        self.sizes = [os.path.getsize(path) for path in paths]
        self.pages_before = [0, *itertools.accumulate(map(pages, self.sizes))]

    def draw(self, how: str, count: int, seed: int) -> List[Place]:
        """`count` places, the same for the same seed: a random page of a random file, or any page of the tree."""
        rng = random.Random(f"{seed} {how}")
        pick = self._any_file if how == FILES else self._any_page
        return [pick(rng) for _ in range(count)]

    def _any_file(self, rng: random.Random) -> Place:
        idx = rng.randrange(len(self.paths))
        return Place(self.paths[idx], rng.randrange(pages(self.sizes[idx])) * mounted.PAGE)

    def _any_page(self, rng: random.Random) -> Place:
        page = rng.randrange(self.pages_before[-1])
        idx = bisect.bisect_right(self.pages_before, page) - 1
        return Place(self.paths[idx], (page - self.pages_before[idx]) * mounted.PAGE)


def pages(size: int) -> int:
    """Pages of a file."""
    return -(-size // mounted.PAGE)


def candidates(only: re.Pattern[str]) -> List[Candidate]:
    """All of the grid whose name `only` finds."""
    every = (
        Candidate(preset, Setting(algorithm, level, unit))
        for preset, methods, units in GRID
        for (algorithm, level), unit in itertools.product(methods, units)
    )
    return [candidate for candidate in every if only.search(candidate.name)]


@dataclass(frozen=True)
class Bench:
    """State that all measurements share."""

    packer: Packer
    source: Path
    folder: Path
    tree: Tree
    threads: int
    reads: int
    seed: int
    via: str

    @property
    def mountpoint(self) -> Path:
        """Mount point of images."""
        return self.folder / "mount"

    def command(self, setting: Setting, image: Path) -> List[str]:
        """Make `image` with `setting`."""
        if self.packer.name == "kiln":
            return packers.kiln_command(self.packer, setting, self.source, image, self.threads)
        return packers.mkfs_erofs_command(self.packer, setting, self.source, image, self.threads)

    def measure(self, candidate: Candidate, number: int) -> None:
        """One round of one candidate: build, then read, then remove. A failure is kept in `candidate.problem`."""
        image = self.folder / "image"
        image.unlink(missing_ok=True)
        run = lib.measure(self.command(candidate.setting, image), image)
        candidate.runs.append(run)
        lib.say(f"{candidate.name}: exit {run.exit_code}, {run.wall_s:.2f} s wall, {lib.mb(run.image_bytes)} MB")
        try:
            if not run.ok:
                candidate.problem = f"exit {run.exit_code}: {run.stderr_tail}"
            elif self.reads > 0:
                self.read(candidate, image, number)
        except (OSError, subprocess.CalledProcessError, mounted.WrongData) as error:
            candidate.problem = str(error)
        if candidate.problem:
            lib.say(f"  {candidate.problem}")
        image.unlink(missing_ok=True)

    def read(self, candidate: Candidate, image: Path, number: int) -> None:
        """Both kinds of places; other ones in each round, the same ones for each candidate."""
        for how, costs in candidate.reads.items():
            places = self.tree.draw(how, self.reads, self.seed + number)
            costs.append(mounted.read_cold(image, self.mountpoint, self.source, places, self.via))


def table(listed: Sequence[Candidate], corpus: lib.Corpus) -> str:
    """The medians over the rounds."""
    head = ["preset", "method", "unit", "image MB", "% of input", "CPU s", "wall s", "peak RSS MiB"]
    head += [f"{column}, by {how}" for how in (FILES, BYTES) for column in ("read ms", "KiB from disk")]
    return lib.markdown_table(head, (row(candidate, corpus) for candidate in listed))


def row(candidate: Candidate, corpus: lib.Corpus) -> List[str]:
    """One line of the table."""
    name = [candidate.preset, candidate.setting.method, lib.unit_name(candidate.setting.unit)]
    if candidate.problem:
        return [*name, "failed", *["-"] * 8]
    m = lib.median_run(candidate.runs)
    built = [
        lib.mb(m["image_bytes"]),
        f"{100 * m['image_bytes'] / max(1, corpus.bytes):.2f}",
        f"{m['cpu_s']:.2f}",
        f"{m['wall_s']:.2f}",
        lib.mib(m["peak_rss_bytes"]),
    ]
    return [*name, *built, *read_cells(candidate.reads[FILES]), *read_cells(candidate.reads[BYTES])]


def read_cells(costs: Sequence[Cost]) -> List[str]:
    """Mean latency and bytes from the disk: medians over the rounds."""
    latency = lib.median(cost.mean_s for cost in costs)
    disk = lib.median(cost.disk_bytes_per_read for cost in costs)
    return ["-" if latency is None else f"{1e3 * latency:.2f}", "-" if disk is None else f"{disk / lib.KIB:.1f}"]


def document(listed: Sequence[Candidate], bench: Bench, corpus: lib.Corpus, facts: Dict[str, Any]) -> Dict[str, Any]:
    """The JSON file."""
    found = [
        {
            "preset": candidate.preset,
            "setting": asdict(candidate.setting),
            "problem": candidate.problem,
            "command": bench.command(candidate.setting, bench.folder / "image"),
            "median": lib.median_run(candidate.runs),
            "runs": [asdict(run) for run in candidate.runs],
            "reads": {how: [cost_document(cost) for cost in costs] for how, costs in candidate.reads.items()},
        }
        for candidate in listed
    ]
    return {"schema": SCHEMA, "kind": "presets", "facts": facts, "corpus": asdict(corpus), "candidates": found}


def cost_document(cost: Cost) -> Dict[str, Any]:
    """A round of reads in short."""
    ordered = sorted(cost.latencies_s)
    return {
        "count": len(ordered),
        "mean_s": cost.mean_s,
        "median_s": lib.median(ordered),
        "p95_s": ordered[len(ordered) * 95 // 100],
        "disk_bytes": cost.disk_bytes,
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree to pack")
    parser.add_argument("--runs", type=lib.positive, default=3, help="rounds (default 3)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="as 'zstd,3 128K'")
    parser.add_argument("--reads", type=int, default=400, help="cold reads of each kind a round; 0: none (default 400)")
    parser.add_argument("--seed", type=int, default=1, help="of the places to read (default 1)")
    parser.add_argument("--via", choices=["file", "loop"], default="file", help="how to mount (default file)")
    parser.add_argument("--packer", choices=["kiln", "mkfs.erofs"], default="kiln", help="who builds (default kiln)")
    parser.add_argument("--threads", type=int, default=lib.cpu_count(), help="of the packer (default: all)")
    parser.add_argument("--tmp", type=Path, help="directory for images, on a real disk (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def read_ahead_kib(folder: Path) -> Optional[int]:
    """Read-ahead of the disk below `folder`: what a careless reader fetches at once."""
    counter = mounted.counter_of(folder)
    path = counter.parent / "queue/read_ahead_kb" if counter else None
    return int(path.read_text()) if path and path.exists() else None


def gather_facts(arguments: argparse.Namespace, packer: Packer, folder: Path) -> Dict[str, Any]:
    """The machine and the choices made."""
    facts = lib.machine_facts()
    facts["programs"] = {packer.name: packer.version}
    facts["disk_read_ahead_kib"] = read_ahead_kib(folder)
    facts.update({name: getattr(arguments, name) for name in ("threads", "runs", "reads", "seed", "via")})
    return facts


def about(corpus: lib.Corpus, facts: Dict[str, Any]) -> str:
    """The line above the table."""
    return (
        f"{corpus.path}: {corpus.files} files, {lib.mb(corpus.bytes)} MB. {', '.join(facts['programs'].values())}, "
        f"{facts['threads']} threads, medians of {facts['runs']} rounds; {facts['reads']} cold reads of 4 KiB a round, "
        f"mounted by {facts['via']}, seed {facts['seed']}, disk read-ahead {facts['disk_read_ahead_kib']} KiB. "
        f"{facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}."
    )


def main() -> int:
    """Exit code 1 if a build failed or an image was wrong, 2 if there was nothing to do."""
    arguments = parse_arguments()
    source = arguments.corpus.resolve()
    packer = packers.find_packers().get(arguments.packer)
    listed = candidates(arguments.only)
    if packer is None or not listed or not source.is_dir():
        lib.say(f"nothing to do: {arguments.packer}: {packer}, {len(listed)} candidates, {source}")
        return 2
    if arguments.reads > 0 and os.geteuid() != 0:
        lib.say("mounting and dropping caches need root; without it: --reads 0")
        return 2
    with lib.scratch(arguments.tmp) as folder:
        facts = gather_facts(arguments, packer, folder)
        tree = Tree(source)
        bench = Bench(packer, source, folder, tree, arguments.threads, arguments.reads, arguments.seed, arguments.via)
        bench.mountpoint.mkdir()
        for number in range(arguments.runs):
            for candidate in lib.rotated(listed, number):
                corpus = lib.warm(source)  # each time: the reads before have dropped the cache
                bench.measure(candidate, number)
        failures = [f"Failed: {candidate.name}: {candidate.problem}" for candidate in listed if candidate.problem]
        print(about(corpus, facts), table(listed, corpus), *failures, sep="\n\n")
        lib.write_json(arguments.out, document(listed, bench, corpus, facts))
    return int(any(candidate.problem for candidate in listed))


if __name__ == "__main__":
    sys.exit(main())
