#!/usr/bin/env python3
"""Updates in place: `kiln update` of one file among many, and of a few bytes in a long file, beside packing and comparing.

The trees are made here, the same on every machine: 80,000 small files of words, and one long file. What is appended is compared with data and metadata of the
new generation, which `kiln update --json` tells.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import lib
import packers

# One file of many: CPU time in that of a full pack, seconds, bytes beside data and metadata.
CPU_BAR, WALL_BAR, BESIDE_BAR = 0.05, 0.5, 8 << 10
# A few bytes of a long file: bytes beside metadata, wall time in that of `kiln cat F | cmp - NEW`.
DATA_BAR, COMPARE_BAR = 1 << 20, 1.3
# What is changed in the long file.
CHANGE_LEN = 4 << 10


@dataclass
class Update:
    """An update and its comparison."""

    what: str
    run: lib.Run
    told: Dict[str, Any]
    other: lib.Run
    other_name: str


def words(source: random.Random, length: int) -> bytes:
    """Text that compresses about as sources do."""
    text = " ".join(f"{source.randrange(3000) * 7919:x}" for _ in range(length // 5 + 1))
    return text.encode()[:length]


def make_small(root: Path, count: int) -> None:
    """Files of 0.2 to 8 KB in directories of 100."""
    source = random.Random(1)
    text = words(source, 1 << 20)
    for number in range(count):
        folder = root / f"{number // 10_000:02}" / f"{number // 100 % 100:02}"
        if number % 100 == 0:
            folder.mkdir(parents=True)
        start, length = source.randrange(len(text) - 8192), 200 + source.randrange(7800)
        (folder / f"file-{number:06}").write_bytes(text[start : start + length])
    age(root)


def make_long(path: Path, length: int) -> None:
    """One file of words."""
    source = random.Random(2)
    text = words(source, 8 << 20)
    with path.open("wb") as out:
        while length > 0:
            start = source.randrange(len(text) - (1 << 20))
            out.write(text[start : start + min(length, 1 << 20)])
            length -= 1 << 20


def age(root: Path) -> None:
    """Nothing was changed a moment ago: such files would not be trusted."""
    then = time.time() - 3600
    for folder, _, names in os.walk(root):
        for name in (*names, "."):
            os.utime(Path(folder) / name, (then, then))
    # The latest time in the image says when it was made: that of one file for all of them would say that all have just changed.
    os.utime(root, (then + 1800, then + 1800))


def update(kiln: Path, image: Path, options: Sequence[str]) -> "tuple[lib.Run, Dict[str, Any]]":
    """Run `kiln update --json`, and return its output."""
    told_path = image.with_suffix(".json")
    command = f'exec "$0" update -q --json "$@" > "{told_path}"'
    run = lib.measure(["sh", "-c", command, str(kiln), str(image), *options], image)
    return run, json.loads(told_path.read_text()) if run.ok else {}


def make_image(pack: Sequence[str], mkfs: Optional[Sequence[str]], tree: Path, image: Path) -> lib.Run:
    """The image that is updated, of kiln or of mkfs.erofs; what packing by kiln took."""
    made = lib.measure([*pack, str(tree), str(image)], image)
    if mkfs:
        image.unlink()
        subprocess.run([*mkfs, str(image), str(tree)], check=True, stdout=subprocess.DEVNULL)
    return made


def one_of_many(kiln: Path, folder: Path, count: int, preset: str, mkfs: Optional[Sequence[str]]) -> List[Update]:
    """One file changes among many: by the whole tree, and by its name."""
    tree, image = folder / "many", folder / "many.erofs"
    tree.mkdir()
    make_small(tree, count)
    lib.warm(tree)
    pack = make_image([str(kiln), "pack", "-q", "--preset", preset], mkfs, tree, image)
    found = []
    for options in ([str(tree)], ["--replace", f"00/07/file-000777={folder / 'new'}"]):
        new = words(random.Random(time.time_ns()), 5000)
        (tree / "00/07/file-000777").write_bytes(new)
        (folder / "new").write_bytes(new)
        # Once the clock of the filesystem's times has gone on.
        time.sleep(2.5)
        run, told = update(kiln, image, options)
        name = "update IMAGE SRC" if len(options) == 1 else "update --replace"
        found.append(Update(f"{name}: one of {count} files, {preset}", run, told, pack, "full pack"))
    subprocess.run([str(kiln), "check", str(image)], check=True, stdout=subprocess.DEVNULL)
    return found


def bytes_of_long(kiln: Path, folder: Path, length: int, mkfs: Optional[Sequence[str]]) -> Update:
    """A few bytes change in a long file."""
    tree, image = folder / "one", folder / "one.erofs"
    tree.mkdir()
    path = tree / "long"
    make_long(path, length)
    age(tree)
    make_image([str(kiln), "pack", "-q"], mkfs, tree, image)
    with path.open("r+b") as file:
        file.seek(length // 2)
        file.write(words(random.Random(3), CHANGE_LEN))
    compare = f'"$0" cat "{image}" /long | cmp -s - "{path}"; true'
    other = lib.measure(["sh", "-c", compare, str(kiln)], image)
    run, told = update(kiln, image, [str(tree)])
    subprocess.run([str(kiln), "diff", "-q", str(image), str(tree)], check=True)
    return Update(f"{CHANGE_LEN >> 10} KiB changed in {length / 1e9:.1f} GB", run, told, other, "cat | cmp")


def bars(one: Update) -> List[str]:
    """Return the results of the bars."""
    said = lambda kept: "kept" if kept else "MISSED"  # noqa: E731
    beside = one.told["appended_bytes"] - one.told["data_bytes"] - one.told["metadata_bytes"]
    if one.other_name == "full pack":
        share = one.run.cpu_s / max(one.other.cpu_s, 0.01)
        return [f"{one.what}: {share:.3f} of the CPU time of a full pack (bar {CPU_BAR}): {said(share <= CPU_BAR)}; {one.run.wall_s:.2f} s (bar {WALL_BAR}): "
                f"{said(one.run.wall_s <= WALL_BAR)}; {beside} bytes beside data and metadata (bar {BESIDE_BAR}): {said(beside <= BESIDE_BAR)}"]
    share = one.run.wall_s / max(one.other.wall_s, 0.01)
    data = one.told["appended_bytes"] - one.told["metadata_bytes"]
    return [f"{one.what}: {data} bytes beside metadata (bar {DATA_BAR}): {said(data <= DATA_BAR)}; {share:.2f} of the wall time of cat | cmp (bar {COMPARE_BAR}): "
            f"{said(share <= COMPARE_BAR)}"]


def row(one: Update) -> List[str]:
    """One line of the table."""
    told = one.told
    return [one.what, f"{one.run.cpu_s:.2f}", f"{one.run.wall_s:.2f}", one.other_name, f"{one.other.cpu_s:.2f}", f"{one.other.wall_s:.2f}",
            f"{told['appended_bytes']:,}", f"{told['data_bytes']:,}", f"{told['metadata_bytes']:,}"]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=80_000, help="how many small files (default 80000)")
    parser.add_argument("--long", type=int, default=1_000_000_000, metavar="BYTES", help="length of the long file (default 10^9)")
    parser.add_argument("--preset", action="append", help="presets of the small files (default balanced)")
    parser.add_argument("--mkfs", metavar="OPTIONS", help="the images are of mkfs.erofs with these options")
    parser.add_argument("--tmp", type=Path, help="directory for trees and images (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if anything failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    kiln = packers.find_packers(("kiln",)).get("kiln")
    if not kiln:
        lib.say("nothing to do: kiln is needed")
        return 2
    mkfs = None if arguments.mkfs is None else packers.mkfs_command(arguments.mkfs)
    found: List[Update] = []
    for preset in arguments.preset or ["balanced"]:
        with lib.scratch(arguments.tmp) as folder:
            found.extend(one_of_many(kiln.path, folder, arguments.files, preset, mkfs))
    with lib.scratch(arguments.tmp) as folder:
        found.append(bytes_of_long(kiln.path, folder, arguments.long, mkfs))
    problems = [f"{one.what}: exit {one.run.exit_code}: {one.run.stderr_tail}" for one in found if not one.run.ok]
    done = [one for one in found if one.run.ok]
    head = ["update", "CPU s", "wall s", "beside", "CPU s", "wall s", "appended", "data", "metadata"]
    print(lib.markdown_table(head, map(row, done)))
    print()
    for one in done:
        for line in bars(one):
            print(f"* {line}")
    for problem in problems:
        lib.say(problem)
    return lib.end(arguments.out, "update", problems, [asdict(one) for one in found])


if __name__ == "__main__":
    sys.exit(main())
