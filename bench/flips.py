#!/usr/bin/env python3
"""Flip single bits of images of all presets, without and with digests of contents, and count what `kiln check` sees.

A flip that the check passes is compared with the good image by `kiln diff`: it is in padding, in contents, or in metadata.
"""
from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

import lib
import packers

SCHEMA = 1
PRESETS = ("plain", "fast", "balanced", "archive", "dataset")
DIGESTS = {"without": (), "with": ("--content-digests",)}
OUTCOMES = ("flips", "noticed", "harmless", "contents changed", "metadata changed")


def run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command that may fail, and return its output."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def outcome_of(kiln: str, good: Path, flipped: Path) -> str:
    """Return the outcome of one flip."""
    if run([kiln, "check", str(flipped)]).returncode != 0:
        return "noticed"
    compared = run([kiln, "diff", str(good), str(flipped)])
    if compared.returncode == 0:
        return "harmless"
    contents = run([kiln, "diff", "--ignore", "mode,owner,mtime,xattrs,links", str(good), str(flipped)])
    return "metadata changed" if contents.returncode == 0 else "contents changed"


def flip_all(kiln: str, source: Path, folder: Path, preset: str, options: Sequence[str], flips: int) -> Dict[str, int]:
    """Pack once, then flip one bit after the other, each in a good image. Equal seeds flip equal bits."""
    good, flipped = folder / "good.erofs", folder / "flipped.erofs"
    command = [kiln, "pack", "--force", "--quiet", "--preset", preset, *options, str(source), str(good)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    data = bytearray(good.read_bytes())
    flipped.write_bytes(data)
    rng = random.Random(f"{preset}{options}")
    counts = {"flips": flips, **{name: 0 for name in OUTCOMES[1:]}}
    with open(flipped, "r+b", buffering=0) as file:
        for _ in range(flips):
            bit = rng.randrange(8 * len(data))
            byte = bit // 8
            file.seek(byte)
            file.write(bytes([data[byte] ^ 1 << bit % 8]))
            counts[outcome_of(kiln, good, flipped)] += 1
            file.seek(byte)
            file.write(data[byte : byte + 1])
    return counts


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="a small tree: each flip checks the whole image")
    parser.add_argument("--flips", type=lib.positive, default=300, help="for each image (default: 300)")
    parser.add_argument("--tmp", type=Path, help="directory for images (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 2 if there was nothing to do, 1 if a flip changed contents under digests unseen."""
    arguments = parse_arguments()
    kiln = packers.find_packers().get("kiln")
    if kiln is None or not arguments.corpus.is_dir():
        lib.say(f"nothing to do: kiln: {kiln}, {arguments.corpus}")
        return 2
    results: List[Dict[str, Any]] = []
    with lib.scratch(arguments.tmp) as folder:
        for preset in PRESETS:
            for digests, options in DIGESTS.items():
                counts = flip_all(str(kiln.path), arguments.corpus, folder, preset, options, arguments.flips)
                results.append({"preset": preset, "digests": digests, **counts})
                lib.say(f"{preset}, {digests} digests: {counts}")
    facts = {**lib.machine_facts(), "version": kiln.version, "corpus": str(arguments.corpus)}
    rows = [[one["preset"], one["digests"], *(str(one[name]) for name in OUTCOMES)] for one in results]
    print(f"{facts['version']}, Linux {facts['kernel']}, {facts['date']}.\n")
    print(lib.markdown_table(["preset", "digests", *OUTCOMES], rows))
    lib.write_json(arguments.out, {"schema": SCHEMA, "kind": "flips", "facts": facts, "results": results})
    return int(any(one["contents changed"] for one in results if one["digests"] == "with"))


if __name__ == "__main__":
    sys.exit(main())
