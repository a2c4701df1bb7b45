"""Memory and descriptors are given back."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path

import kilnfs


def resident() -> int:
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_memory_does_not_grow(image: kilnfs.Image) -> None:
    names = ["hello.txt", "many/001.txt", "many/003.JPG", "ünïcode", "empty"]
    index = image.index("train", group=1)

    def use(rounds: int) -> None:
        for _ in range(rounds):
            for name in names:
                image.read(name)
                image.view(name)
                image.stat(name)
                image.exists("missing")
            image.listdir("many")
            image.read_many(names)
            image.read_many(index)
            list(image.iter_many(index))
            image.path("train/cat").parent.exists()
            with image.open("hello.txt", "r") as file:
                file.read()
            list(image.scandir("train"))

    use(200)
    gc.collect()
    before = resident()
    use(3000)
    gc.collect()
    # What each of 3,000 rounds would keep if it kept its smallest batch is more than that.
    assert resident() - before < 6 << 20


def test_images_that_are_closed_or_forgotten_keep_nothing(image_path: Path) -> None:
    def use(rounds: int) -> None:
        for _ in range(rounds):
            with kilnfs.open(image_path) as image:
                image.read("hello.txt")
            kilnfs.open(image_path).read("big.bin", 0, 10_000)
            path = kilnfs.open(image_path) / "hello.txt"
            pickle.loads(pickle.dumps(path)).read_bytes()

    use(30)
    gc.collect()
    count, before = descriptors(), resident()
    use(300)
    gc.collect()
    assert descriptors() == count
    assert resident() - before < 16 << 20


def test_images_that_cannot_be_opened_keep_nothing(image_path: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(bytes(100_000))
    count = descriptors()
    for _ in range(100):
        for path in (tmp_path / "bad", tmp_path / "missing", tmp_path):
            try:
                kilnfs.open(path)
            except OSError:
                continue
            raise AssertionError(f"{path} was opened")
    gc.collect()
    assert descriptors() == count
