"""Sets of files and images that tests of datasets and samplers share."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path


def pack(source: Path, image: Path, *options: str) -> Path:
    """An image of a directory, by the command in the package."""
    from kilnfs import _native

    arguments = ["kiln", "pack", "--quiet", *options, source, image]
    status = _native.main([os.fsencode(each) for each in arguments], [os.fsencode(sys.executable), b"-m", b"kilnfs"])
    assert status == 0, f"kiln pack ended with {status}"
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
