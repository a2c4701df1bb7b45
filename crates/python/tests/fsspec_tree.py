"""The image that most tests of `kilnfs.fs` read."""

from __future__ import annotations

import os

import pytest
from fsspec_support import noise, pack

FILES = {
    "a/x.txt": b"0123456789",
    "a/b/y.txt": b"why" * 1000,
    "a/b/empty": b"",
    "a-b": b"between a and a/ in the order of paths",
    "big.bin": noise(700_000),
}
MTIME = 1_700_000_000


@pytest.fixture(scope="module")
def fs_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("fs")
    tree = directory / "tree"
    for path, data in FILES.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    (tree / "a/x.txt").chmod(0o640)
    (tree / "link").symlink_to("a/x.txt")
    (tree / "dirlink").symlink_to("a")
    (tree / "broken").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    (tree / os.fsdecode(b"caf\xe9")).write_bytes(b"not UTF-8")
    (tree / "void").mkdir()
    for path in (*FILES, "a/b", "a"):
        os.utime(tree / path, (MTIME, MTIME))
    return pack(tree, directory / "image.erofs")
