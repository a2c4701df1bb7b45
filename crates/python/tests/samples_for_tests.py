"""Sets of files and images that tests of datasets and samplers share."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path


def pack(source: Path, image: Path, *options: str) -> Path:
    """An image of a directory, by the command in the package: in a process of its own, as it catches signals."""
    subprocess.run([sys.executable, "-m", "kilnfs", "pack", "--quiet", *options, source, image], check=True, timeout=300)
    return image


def make_set(directory: Path, classes: int = 7, files: int = 43, seed: int = 1) -> Path:
    """Directories `class 0`, `class 1` … of files of different length; the contents of a file begin with its path."""
    numbers = random.Random(seed)
    for label in range(classes):
        (directory / f"class {label}").mkdir(parents=True)
        for number in range(files + label):
            name = f"class {label}/{number:04}.bin"
            (directory / name).write_bytes(name.encode() + b"\n" + numbers.randbytes(numbers.randrange(6000)))
    return directory


def contents(directory: Path) -> list[tuple[str, bytes]]:
    """Path and contents of each file, in path order."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return [(str(path.relative_to(directory)), path.read_bytes()) for path in files]
