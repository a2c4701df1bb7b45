"""Sets of files that contestants hold, generated from a seed.

* `photos`: log-normal sizes, mean 110 KB, σ 0.6; random bytes behind a JPEG header.
* `texts`: 1 to 4 KB, words by Zipf's law.
* `pictures`: JPEG of 500×375 that can be decoded.
"""

from __future__ import annotations

import io
import itertools
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

SEED = 20261123
CLASSES = 1000
MEAN_BYTES, SIGMA = 110_000, 0.6  # of photos
TEXT_BYTES = (1024, 4096)
WORDS = 1 << 15  # in the vocabulary of texts
# Start of image and a JFIF segment: what `file` needs to say JPEG.
HEADER = bytes.fromhex("ffd8ffe000104a46494600010100004800480000")
SUFFIX = {"photos": ".jpg", "texts": ".txt", "pictures": ".jpg"}


class Tree:
    """A set on disk. The id of a file is its row in the sorted list of paths."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root, self.name = directory, directory / "tree", directory.name

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def paths(self) -> list[str]:
        """Paths below the root, by id."""
        return (self.directory / "paths.txt").read_text().splitlines()

    @cached_property
    def sizes(self) -> array[int]:
        """Bytes of each file, by id."""
        return array("Q", (self.directory / "sizes.bin").read_bytes())

    @cached_property
    def digests(self) -> array[int]:
        """XXH3 (64 bits) of the bytes of each file, by id."""
        return array("Q", (self.directory / "digests.bin").read_bytes())

    def contents(self) -> Iterator[bytes]:
        """Yields the bytes of all files, by id."""
        for path in self.paths:
            yield (self.root / path).read_bytes()


def photos(files: int) -> Iterator[bytes]:
    """Yields files like photographs: nothing to compress."""
    import numpy as np

    random = np.random.Generator(np.random.SFC64(SEED))
    sizes = np.exp(random.standard_normal(files) * SIGMA + np.log(MEAN_BYTES) - SIGMA**2 / 2).astype(np.int64)
    for size in sizes.tolist():
        yield HEADER + random.bytes(size)


def texts(files: int) -> Iterator[bytes]:
    """Yields words of a vocabulary, the frequent ones often, as in a language."""
    import numpy as np

    random = np.random.Generator(np.random.SFC64(SEED))
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    shares = 1 / np.arange(2, len(letters) + 2)
    lengths = np.minimum(random.geometric(0.18, WORDS) + 1, 13).tolist()
    words = [random.choice(letters, length, p=shares / shares.sum()).tobytes() for length in lengths]
    weights = np.cumsum(1 / (np.arange(WORDS) + 20))
    for first in range(0, files, CLASSES):
        sizes = random.integers(TEXT_BYTES[0], TEXT_BYTES[1] + 1, min(CLASSES, files - first)).tolist()
        # Words with their spaces have some 6 bytes: this is enough.
        ranks = np.searchsorted(weights, random.random(sum(sizes) // 4) * weights[-1])
        text = io.BytesIO(b" ".join(map(words.__getitem__, ranks.tolist())))
        yield from (text.read(size) for size in sizes)


def pictures(files: int) -> Iterator[bytes]:
    """Yields smooth noise as JPEG of quality 90."""
    import numpy as np
    from PIL import Image

    random = np.random.Generator(np.random.SFC64(SEED))
    for _ in range(files):
        small = random.integers(0, 256, (24, 32, 3), np.uint8)
        grain = random.integers(0, 24, (375, 500, 3), np.uint8)
        large = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC))
        out = io.BytesIO()
        Image.fromarray(np.minimum(large, 231) + grain).save(out, "JPEG", quality=90)
        yield out.getvalue()


GENERATORS: dict[str, Callable[[int], Iterator[bytes]]] = {"photos": photos, "texts": texts, "pictures": pictures}


def generate(directory: Path, files: int) -> None:
    """Makes the set that the directory is named after: its files, and lists of paths, sizes and digests."""
    import xxhash

    classes = min(CLASSES, max(1, files // 5))
    paths, sizes, digests = [], array("Q"), array("Q")
    contents = enumerate(GENERATORS[directory.name](files))
    for number, group in itertools.groupby(contents, lambda one: one[0] * classes // files):
        folder = directory / "tree" / f"{number:04}"
        folder.mkdir(parents=True)
        for number, data in group:
            path = folder / f"{number:08}{SUFFIX[directory.name]}"
            path.write_bytes(data)
            paths.append(f"{folder.name}/{path.name}\n")
            sizes.append(len(data))
            digests.append(xxhash.xxh3_64_intdigest(data))
    (directory / "paths.txt").write_text("".join(paths))
    (directory / "sizes.bin").write_bytes(sizes.tobytes())
    (directory / "digests.bin").write_bytes(digests.tobytes())
