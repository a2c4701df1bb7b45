"""Cost of ends of files beside inodes for a data set behind a URL, and savings by an index behind the image.

Requests and bytes are counted, no times. `python bench/pyworker/tails.py [FILES]` prints the table of
docs/python-packing.md.

Files of 3 to 30 KB that do not compress, as small pictures are, each with a label of some 40 bytes, in 20 classes.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import kilnfs
from slow import Store

WAYS: dict[str, dict[str, Any]] = {
    "the default": {},
    "`index=…`": {"index": {"extensions": ".jpg", "group": 1}},
    "`inline=False`": {"inline": False},
    "`inline=False, index=…`": {"inline": False, "index": {"extensions": ".jpg", "group": 1}},
}
"""Arguments of `kilnfs.pack`."""


def make(root: Path, files: int) -> int:
    """Makes the files. Returns the bytes of their contents."""
    numbers = random.Random(5)
    total = 0
    for number in range(files):
        path = root / f"class {number % 20}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = b"\xff\xd8\xff" + numbers.randbytes(numbers.randrange(3_000, 30_000))
        path.write_bytes(data)
        path.with_suffix(".json").write_text(f'{{"number": {number}, "of": "class {number % 20}"}}')
        total += len(data)
    return total


def main(files: int) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        root = Path(directory)
        contents = make(root / "source", files)
        print(f"{files:,} pictures of {contents / 1e6:.0f} MB together\n")
        print("| `kilnfs.pack` with | image | `index()`: requests | bytes | an epoch: requests | bytes |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, options in WAYS.items():
            path = root / "image.erofs"
            made = kilnfs.pack(root / "source", path, overwrite=True, **options)
            far = Store()
            image = kilnfs.open(far(path))
            looks = [(far.requests, far.fetched)]
            index = image.index(extensions=".jpg", group=1)
            looks.append((far.requests, far.fetched))
            assert sum(len(data) for _, data in image.iter_many(index)) == contents
            looks.append((far.requests, far.fetched))
            cells = [f"{made.image_bytes / 1e6:.1f} MB"]
            for (requests, fetched), (later, more) in zip(looks, looks[1:], strict=False):
                cells += [f"{later - requests}", f"{(more - fetched) / 1e6:.1f} MB"]
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
