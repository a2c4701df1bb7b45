#!/usr/bin/env python3
"""Read images with and without `--root-hash`: CPU time of reading all files, and of `kiln check`.

Bars: with zstd, reads that are verified take at most 1.25 times the CPU time; with LZ4 and uncompressed, no more than the time
without and 1.1 times a SHA-256 of the image; the check takes at most 1.1 times its wall time. Rounds take turns, the images are
in the page cache.
"""
from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import lib
import packers

SCHEMA = 1
SETTINGS: Dict[str, Tuple[str, ...]] = {
    "zstd": ("--preset", "balanced"),
    "lz4": ("--preset", "fast"),
    "uncompressed": ("--preset", "plain"),
}
ZSTD_BAR, SHA_BAR, CHECK_BAR = 1.25, 1.1, 1.1
# Bytes of the arguments of one command line, at most; each has a pointer, too.
ARGUMENTS_MAX = 1900 * lib.KIB


def hash_cpu_s(image: Path) -> float:
    """CPU seconds of a SHA-256 of the image, as one message in memory."""
    data = image.read_bytes()
    start = time.process_time()
    hashlib.sha256(data).digest()
    return time.process_time() - start


def seal(kiln: str, source: Path, image: Path, options: Sequence[str]) -> str:
    """Pack an image with its hash tree behind it, and return the root hash."""
    subprocess.run([kiln, "pack", "--force", "--quiet", *options, str(source), str(image)], check=True)
    done = subprocess.run([kiln, "verity", "format", "--quiet", str(image)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def files_of(source: Path) -> List[str]:
    """Paths of all files in the image."""
    paths = sorted(str(Path(path).relative_to(source)) for path in lib.walk_files(source))
    if sum(len(path.encode()) + 9 for path in paths) > ARGUMENTS_MAX:
        raise SystemExit(f"{source}: more files than one command line has room for")
    return paths


def compare(kiln: str, image: Path, root_hash: str, files: List[str], rounds: int) -> Dict[str, Any]:
    """Medians of all commands for one image."""
    steps = {"cat": ["cat", str(image), *files], "check": ["check", str(image)]}
    runs: Dict[str, List[lib.Run]] = {}
    hashes: List[float] = []
    for number in range(rounds):
        for step, words in steps.items():
            variants = [(step, []), (f"{step} --root-hash", ["--root-hash", root_hash])]
            for name, options in lib.rotated(variants, number):
                run = lib.measure([kiln, *words, *options], image)
                if not run.ok:
                    raise OSError(f"{name}: {run.stderr_tail}")
                runs.setdefault(name, []).append(run)
        hashes.append(hash_cpu_s(image))
    result: Dict[str, Any] = {"sha256": lib.median(hashes)}
    for name, done in runs.items():
        result[name] = {"cpu_s": lib.median(run.cpu_s for run in done), "wall_s": lib.median(run.wall_s for run in done)}
    return result


def problems_of(setting: str, result: Dict[str, Any]) -> List[str]:
    """Bars that were missed."""
    plain, verified = result["cat"]["cpu_s"], result["cat --root-hash"]["cpu_s"]
    limit = plain * ZSTD_BAR if setting == "zstd" else plain + SHA_BAR * result["sha256"]
    check = result["check --root-hash"]["wall_s"] / result["check"]["wall_s"]
    found = []
    if verified > limit:
        found.append(f"{setting}: reading takes {verified:.3f} s, and {limit:.3f} s are allowed")
    if check > CHECK_BAR:
        found.append(f"{setting}: the check takes {check:.2f} times its time, and {CHECK_BAR} times are allowed")
    return found


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="a tree of some hundred MB, of up to 20,000 files")
    parser.add_argument("--rounds", type=lib.positive, default=5, help="runs of each command (default: 5)")
    parser.add_argument("--tmp", type=Path, help="directory for images (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 2 if there was nothing to do, 1 if a bar was missed."""
    arguments = parse_arguments()
    kiln = packers.find_packers().get("kiln")
    if kiln is None or not arguments.corpus.is_dir():
        lib.say(f"nothing to do: kiln: {kiln}, {arguments.corpus}")
        return 2
    files = files_of(arguments.corpus)
    results: List[Dict[str, Any]] = []
    problems: List[str] = []
    with lib.scratch(arguments.tmp) as folder:
        for setting, options in SETTINGS.items():
            image = folder / f"{setting}.erofs"
            root_hash = seal(str(kiln.path), arguments.corpus, image, options)
            result = compare(str(kiln.path), image, root_hash, files, arguments.rounds)
            results.append({"setting": setting, "image_bytes": image.stat().st_size, **result})
            problems += problems_of(setting, result)
    rows = []
    for one in results:
        cells = [one["setting"], lib.mb(one["image_bytes"]), f"{one['sha256']:.3f}"]
        for step, unit in (("cat", "cpu_s"), ("check", "wall_s")):
            plain, verified = one[step][unit], one[f"{step} --root-hash"][unit]
            cells += [f"{plain:.3f}", f"{verified:.3f}", f"{verified / plain:.2f}"]
        rows.append(cells)
    print(f"{kiln.version}, {len(files)} files.\n")
    head = ["image", "MB", "SHA-256, CPU s", "cat, CPU s", "verified", "ratio", "check, wall s", "verified", "ratio"]
    print(lib.markdown_table(head, rows))
    return lib.end(arguments.out, "verity", problems, results)


if __name__ == "__main__":
    sys.exit(main())
