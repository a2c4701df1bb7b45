#!/usr/bin/env python3
"""Pack a tree of a million small files: seconds, and peak memory by the file.

The tree is made below `--tmp` (a tmpfs does well) and removed: a thousand directories of a thousand files, each of one to 600
bytes of words, so that it takes about 4 GB on a disk with blocks of 4 KiB. A quarter of the files equals another one.
"""
from __future__ import annotations

import argparse
import os
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Optional

import lib
import packers

SCHEMA = 1
FILES_A_DIRECTORY = 1000
WORDS = [f"{word * 2654435761 % 2**32:x}"[: 2 + word % 7] for word in range(4000)]

# What is packed with: the presets that differ in what they keep for each file.
PRESETS = ["plain", "fast", "balanced", "dataset"]


def make_tree(root: Path, count: int) -> None:
    """`count` files; the same for the same count."""
    rng = random.Random(count)
    texts = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 100))).encode() for _ in range(20000)]
    for number in range(count):
        if number % FILES_A_DIRECTORY == 0:
            folder = root / f"d{number // FILES_A_DIRECTORY:05}"
            folder.mkdir()
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        # A number in front makes three of four files unlike all others.
        text = texts[rng.randrange(len(texts))]
        content = text if number % 4 == 0 else b"%d " % number + text
        fd = os.open(f"f{number:07}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=at)
        os.write(fd, content[:600])
        os.close(fd)
        if number % FILES_A_DIRECTORY == FILES_A_DIRECTORY - 1 or number == count - 1:
            os.close(at)


def measure(kiln: packers.Packer, source: Path, folder: Path, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Each preset once: the run, and what `kiln check` says."""
    image = folder / "image"
    found = {}
    for preset in (preset for preset in PRESETS if preset in arguments.presets):
        threads = ["--threads", str(arguments.threads)]
        command = [str(kiln.path), "pack", "--preset", preset, *threads, "--force", "--quiet", str(source), str(image)]
        run = lib.measure(command, image)
        check = lib.measure([str(kiln.path), "check", str(image)], image)
        found[preset] = {"command": command, "run": asdict(run), "check": asdict(check)}
        lib.say(f"{preset}: exit {run.exit_code}, {run.wall_s:.1f} s, checked: exit {check.exit_code}")
        image.unlink(missing_ok=True)
    return found


def table(found: Dict[str, Any], corpus: lib.Corpus) -> str:
    """One line for each preset."""
    head = ["preset", "wall s", "CPU s", "peak RSS MiB", "bytes of it a file", "image MB", "checked"]
    return lib.markdown_table(head, (row(preset, one, corpus) for preset, one in found.items()))


def row(preset: str, one: Dict[str, Any], corpus: lib.Corpus) -> List[str]:
    """The numbers of one preset."""
    run = one["run"]
    peak: Optional[int] = run["peak_rss_bytes"]
    a_file = "-" if peak is None else f"{peak / max(1, corpus.files):.0f}"
    checked = "sound" if one["check"]["exit_code"] == 0 else f"exit {one['check']['exit_code']}"
    numbers = [f"{run['wall_s']:.1f}", f"{run['cpu_s']:.1f}", lib.mib(peak), a_file, lib.mb(run["image_bytes"])]
    return [preset, *(numbers if run["exit_code"] == 0 else [f"exit {run['exit_code']}", "-", "-", "-", "-"]), checked]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=lib.positive, default=1_000_000, help="how many (default a million)")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=PRESETS, help="which (default: these)")
    parser.add_argument("--threads", type=int, default=lib.cpu_count(), help="default: all")
    parser.add_argument("--tmp", type=Path, help="directory for tree and image (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if a build or a check failed, 2 without kiln."""
    arguments = parse_arguments()
    kiln = packers.find_packers().get("kiln")
    if kiln is None:
        lib.say("; ".join(packers.missing_packers({})))
        return 2
    facts = {**lib.machine_facts(), "threads": arguments.threads, "version": kiln.version}
    with lib.scratch(arguments.tmp) as folder:
        source = folder / "tree"
        source.mkdir()
        lib.say(f"making {arguments.files} files")
        make_tree(source, arguments.files)
        corpus = lib.warm(source)
        found = measure(kiln, source, folder, arguments)
    about = f"{corpus.files} files in {corpus.directories - 1} directories, {lib.mb(corpus.bytes)} MB; one run each. "
    about += f"{kiln.version}, {arguments.threads} threads. {facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}."
    print(about, table(found, corpus), sep="\n\n")
    lib.write_json(arguments.out, {"schema": SCHEMA, "kind": "million", "facts": facts, "corpus": asdict(corpus), "presets": found})
    return int(any(one[what]["exit_code"] != 0 for one in found.values() for what in ("run", "check")))


if __name__ == "__main__":
    sys.exit(main())
