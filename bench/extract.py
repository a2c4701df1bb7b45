#!/usr/bin/env python3
"""Extract a tree from images, side by side: kiln, fsck.erofs --extract, unsquashfs.

Interleaved runs into a directory on a tmpfs (--target), so that the disk says nothing. kiln and fsck.erofs read the same
images: one made by mkfs.erofs, one by kiln. The first extraction of each contestant is compared with the source, byte for
byte, by `diff --recursive`.
"""
from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import lib
import packers
from packers import Packer, Setting

SCHEMA = 1
SETTING = Setting("zstd", 3, 64 * lib.KIB)
SQUASHFS = Setting("zstd", 3, 128 * lib.KIB)  # its default block


@dataclass
class Contestant:
    """A program that extracts an image into TARGET."""

    name: str
    command: List[str]
    problem: Optional[str] = None
    runs: List[lib.Run] = field(default_factory=list)

    def row(self) -> List[str]:
        """A row of the table."""
        if self.problem or not any(run.ok for run in self.runs):
            return [self.name, "-", "-", "-", self.problem or self.runs[-1].stderr_tail.splitlines()[-1]]
        of = lib.median_run(self.runs)
        return [self.name, f"{of['wall_s']:.2f}", f"{of['cpu_s']:.2f}", lib.mib(of["peak_rss_bytes"]), "equal"]


def contestants(found: Dict[str, Packer], images: Dict[str, Path], target: Path) -> List[Contestant]:
    """Return the installed programs, with the images that they read."""
    kiln = str(found["kiln"].path)
    listed = [
        Contestant(f"kiln extract, image of {maker}", [kiln, "extract", "--quiet", str(image), str(target)])
        for maker, image in images.items()
        if maker != "mksquashfs"
    ]
    fsck = packers.peer_path("erofs", "fsck.erofs")
    if fsck.exists() and "mkfs.erofs" in images:
        command = [str(fsck), f"--extract={target}", str(images["mkfs.erofs"])]
        listed.append(Contestant("fsck.erofs --extract, image of mkfs.erofs", command))
    unsquashfs = packers.peer_path("squashfs-tools", "unsquashfs")
    if unsquashfs.exists() and "mksquashfs" in images:
        command = [str(unsquashfs), "-quiet", "-no-progress", "-force", "-dest", str(target), str(images["mksquashfs"])]
        listed.append(Contestant("unsquashfs, image of mksquashfs", command))
    return listed


def make_images(found: Dict[str, Packer], source: Path, folder: Path) -> Dict[str, Path]:
    """An image by each maker."""
    threads = lib.cpu_count()
    images = {}
    for name, packer in found.items():
        image = folder / f"{name}.image"
        command = {
            "kiln": lambda: packers.kiln_command(packer, SETTING, source, image, threads),
            "mkfs.erofs": lambda: packers.mkfs_erofs_command(packer, SETTING, source, image, threads),
            "mksquashfs": lambda: packers.mksquashfs_command(packer, SQUASHFS, source, image, threads),
        }[name]()
        lib.say(f"packing with {name}")
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        images[name] = image
    return images


def extract(one: Contestant, source: Path, target: Path) -> None:
    """Run once; compare, the first time; leave nothing."""
    one.runs.append(lib.measure(one.command, target / "no image"))
    if one.runs[-1].ok and len(one.runs) == 1:
        same = subprocess.run(
            ["diff", "--recursive", "--no-dereference", "--brief", str(source), str(target)],
            capture_output=True, text=True, errors="replace", check=False,
        )
        # Special files, which diff cannot compare, are named but are no difference.
        lines = [line for line in same.stdout.splitlines() if " is a " not in line]
        one.problem = f"differs from the source: {lines[0]}" if lines else None
    shutil.rmtree(target, ignore_errors=True)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree")
    parser.add_argument("--runs", type=lib.positive, default=5, help="rounds (default 5)")
    parser.add_argument("--target", type=Path, default=Path("/dev/shm"), help="a tmpfs (default /dev/shm)")
    parser.add_argument("--tmp", type=Path, help="directory for images")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def document(listed: List[Contestant], corpus: lib.Corpus, facts: Dict[str, Any]) -> Dict[str, Any]:
    """The JSON file."""
    return {
        "schema": SCHEMA, "kind": "extract", "facts": facts, "corpus": asdict(corpus),
        "contestants": [asdict(one) for one in listed],
    }


def main() -> int:
    """Exit code 1 if a tree was wrong or a program failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    source = arguments.corpus.resolve()
    found = packers.find_packers()
    for sentence in packers.missing_packers(found):
        lib.say(sentence)
    if "kiln" not in found or not source.is_dir():
        lib.say(f"nothing to do: {len(found)} programs, {source}")
        return 2
    facts = lib.machine_facts()
    facts["programs"] = {name: packer.version for name, packer in found.items()}
    corpus = lib.warm(source)
    with lib.scratch(arguments.tmp) as folder, lib.scratch(arguments.target) as place:
        target = place / "tree"
        listed = contestants(found, make_images(found, source, folder), target)
        for round_number in range(arguments.runs):
            for one in lib.rotated(listed, round_number):
                lib.say(f"round {round_number + 1}: {one.name}")
                extract(one, source, target)
    print(f"{corpus.path}: {corpus.files} files, {lib.mb(corpus.bytes)} MB. Medians of {arguments.runs} interleaved runs.\n")
    print(lib.markdown_table(["who", "wall s", "CPU s", "peak MiB", "tree"], [one.row() for one in listed]))
    lib.write_json(arguments.out, document(listed, corpus, facts))
    return int(any(one.problem or not all(run.ok for run in one.runs) for one in listed))


if __name__ == "__main__":
    sys.exit(main())
