#!/usr/bin/env python3
"""The sets of files that contestants hold: generated once from a seed, kept below `$KILN_BENCH/sets`, and used again.

I: files like photographs (log-normal sizes, mean 110 KB, nothing to compress). S: text of 1 to 4 KB that compresses
to about a half. J: JPEG pictures of 500×375 that can be decoded. Runs in an environment with NumPy: `python sets.py
I 20000`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SEED = 20261123
CLASSES = 1000
FORMAT = 1  # of the generators: another number is another set
MEAN_BYTES, SIGMA = 110_000, 0.6  # of set I
TEXT_BYTES = (1024, 4096)  # of set S
VOCABULARY = 1 << 15  # words of set S
# Start of image, and a JFIF segment: what `file` needs to say JPEG.
JPEG_HEADER = bytes.fromhex("ffd8ffe000104a46494600010100004800480000")
JPEG_END = bytes.fromhex("ffd9")
SUFFIX = {"I": ".jpg", "S": ".txt", "J": ".jpg"}
# Files in each form of a set: the whole, the quick one, the one of CI.
FORMS = {"I": (100_000, 20_000, 400), "S": (1_000_000, 100_000, 5_000), "J": (5_000, 1_000, 40)}


@dataclass(frozen=True)
class About:
    """Properties of a set."""

    name: str
    files: int
    bytes: int  # of all files together
    classes: int
    seed: int
    format: int
    digest: str  # of the digests of all files in the order of their paths


class Tree:
    """A set on disk. A file's id is its row in the sorted list of paths."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = directory / "tree"
        self.about = About(**json.loads((directory / "about.json").read_text()))

    def __len__(self) -> int:
        return self.about.files

    @cached_property
    def paths(self) -> list[str]:
        """Paths below the root, by id."""
        return (self.directory / "paths.txt").read_text().splitlines()

    @cached_property
    def sizes(self) -> array[int]:
        """Bytes of each file, by id."""
        return self._column("sizes.bin")

    @cached_property
    def digests(self) -> array[int]:
        """XXH3 (64 bits) of each file's bytes, by id."""
        return self._column("digests.bin")

    def _column(self, name: str) -> array[int]:
        """Unsigned numbers of 64 bits, native order."""
        column = array("Q")
        with open(self.directory / name, "rb") as file:
            column.fromfile(file, self.about.files)
        return column

    def contents(self) -> Iterator[bytes]:
        """The bytes of all files, by id."""
        for path in self.paths:
            with open(self.root / path, "rb") as file:
                yield file.read()


def path_of(name: str, number: int, files: int, classes: int) -> str:
    """`0007/00000712.jpg`: paths in the order of their numbers are sorted."""
    return f"{number * classes // files:04d}/{number:08d}{SUFFIX[name]}"


def photographs(files: int) -> Iterator[bytes]:
    """Set I: random bytes behind a JPEG header."""
    import numpy as np

    random = np.random.Generator(np.random.SFC64(SEED))
    sizes = np.exp(random.standard_normal(files) * SIGMA + np.log(MEAN_BYTES) - SIGMA**2 / 2).astype(np.int64)
    source = np.random.SFC64(SEED + 1)
    for size in np.maximum(sizes, len(JPEG_HEADER) + len(JPEG_END)).tolist():
        inner = size - len(JPEG_HEADER) - len(JPEG_END)
        yield JPEG_HEADER + source.random_raw((inner + 7) // 8).tobytes()[:inner] + JPEG_END


def texts(files: int) -> Iterator[bytes]:
    """Set S: words of a vocabulary, the frequent ones often, as in a language."""
    import numpy as np

    random = np.random.Generator(np.random.SFC64(SEED))
    blob, starts, lengths, weights = vocabulary(random)
    sizes = random.integers(TEXT_BYTES[0], TEXT_BYTES[1] + 1, files)
    for first in range(0, files, CLASSES):
        cut = sizes[first : first + CLASSES]
        text = text_of(random, int(cut.sum()), blob, starts, lengths, weights)
        off = 0
        for size in cut.tolist():
            yield text[off : off + size]
            off += size


def vocabulary(random: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Words as one blob: bytes, start and length of each (with the space behind it), and cumulated weights by Zipf's
    law."""
    import numpy as np

    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz", dtype=np.uint8)
    frequencies = 1 / np.arange(2, len(letters) + 2)
    lengths = np.minimum(random.geometric(0.18, VOCABULARY) + 2, 14)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    blob = random.choice(letters, int(lengths.sum()), p=frequencies / frequencies.sum()).astype(np.uint8)
    blob[starts + lengths - 1] = ord(" ")
    weights = np.cumsum(1 / (np.arange(VOCABULARY) + 20))
    return blob, starts, lengths, weights / weights[-1]


def text_of(random: np.random.Generator, size: int, blob: Any, starts: Any, lengths: Any, weights: Any) -> bytes:
    """`size` bytes of words."""
    import numpy as np

    mean = float(np.diff(weights, prepend=0.0) @ lengths)
    words = np.searchsorted(weights, random.random(int(size / mean * 1.02) + 1000))
    ends = np.cumsum(lengths[words])
    count = int(np.searchsorted(ends, size)) + 1
    words, ends = words[:count], ends[:count]
    if int(ends[-1]) < size:
        raise RuntimeError(f"set S: {len(words)} words make {int(ends[-1])} bytes, {size} are needed")
    begins = ends - lengths[words]
    index = np.repeat(starts[words] - begins, lengths[words]) + np.arange(int(ends[-1]))
    text: bytes = blob[index[:size]].tobytes()
    return text


def pictures(files: int) -> Iterator[bytes]:
    """Set J: smooth noise of 500×375, as JPEG of quality 90."""
    import numpy as np
    from PIL import Image

    random = np.random.Generator(np.random.SFC64(SEED))
    for _ in range(files):
        small = random.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        grain = random.integers(0, 24, (375, 500, 3), dtype=np.uint8)
        large = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC))
        out = BytesIO()
        Image.fromarray(np.minimum(large, 231) + grain).save(out, "JPEG", quality=90)
        yield out.getvalue()


GENERATORS: dict[str, Callable[[int], Iterator[bytes]]] = {"I": photographs, "S": texts, "J": pictures}


def place_of(home: Path, name: str, files: int) -> Path:
    """Return the directory of a set."""
    return home / "sets" / f"{name}-{files}"


def generate(home: Path, name: str, files: int) -> Tree:
    """Return the set; make it, complete or not at all, if it is missing or of other generators."""
    place = place_of(home, name, files)
    if (place / "about.json").exists():
        tree = Tree(place)
        if (tree.about.seed, tree.about.format, tree.about.files) == (SEED, FORMAT, files):
            return tree
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        write(half, name, files)
        half.chmod(0o755)
        os.rename(half, place)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
    return Tree(place)


def write(directory: Path, name: str, files: int) -> None:
    """Write all files of a set and its lists below `directory`."""
    import xxhash

    classes = min(CLASSES, max(1, files // 5))
    paths, sizes, digests = [], array("Q"), array("Q")
    whole = xxhash.xxh3_128()
    folder = ""
    for number, data in enumerate(GENERATORS[name](files)):
        path = path_of(name, number, files, classes)
        if path[:4] != folder:
            folder = path[:4]
            os.makedirs(directory / "tree" / folder)
        with open(directory / "tree" / path, "wb", buffering=0) as file:
            file.write(data)
        paths.append(path)
        sizes.append(len(data))
        digests.append(xxhash.xxh3_64_intdigest(data))
    whole.update(digests.tobytes())
    (directory / "paths.txt").write_text("".join(f"{path}\n" for path in paths))
    (directory / "sizes.bin").write_bytes(sizes.tobytes())
    (directory / "digests.bin").write_bytes(digests.tobytes())
    about = About(name, files, sum(sizes), classes, SEED, FORMAT, whole.hexdigest())
    (directory / "about.json").write_text(json.dumps(asdict(about), indent=1) + "\n")


def main() -> int:
    """Make a set and print its properties."""
    from environment import home

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(GENERATORS))
    parser.add_argument("files", type=int, help=f"number of files: {FORMS} are the whole, quick and CI forms")
    arguments = parser.parse_args()
    print(json.dumps(asdict(generate(home(), arguments.name, arguments.files).about)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
