"""Images of composefs with their objects."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import kilnfs

BIG = bytes(range(256)) * 1000


@pytest.fixture
def composefs(tmp_path: Path) -> tuple[Path, Path]:
    """An image, and the store of its objects."""
    source, image, store = tmp_path / "source", tmp_path / "image", tmp_path / "objects"
    (source / "dir").mkdir(parents=True)
    (source / "dir" / "big").write_bytes(BIG)
    (source / "small").write_bytes(b"small")
    command = [sys.executable, "-m", "kilnfs", "composefs", "create", "-q", "--digest-store", store, source, image]
    subprocess.run(command, check=True)
    return image, store


def test_contents_come_from_the_objects(composefs: tuple[Path, Path]) -> None:
    path, store = composefs
    for objects in (store, str(store), [os.fsencode(store)]):
        with kilnfs.open(path, objects=objects) as image:
            assert image.listdir() == ["dir", "small"]
            assert image.read("dir/big") == BIG
            assert image.read("small") == b"small"
            assert bytes(image.read_many(["dir/big"])[0]) == BIG
            assert image.extents("dir/big")[0].kind == "object"
            with pickle.loads(pickle.dumps(image)) as again:
                assert again.read("dir/big") == BIG
    with kilnfs.open(path) as image:
        assert len(image.listdir()) == 256 + 2


def test_a_wrong_object_is_an_error(composefs: tuple[Path, Path]) -> None:
    path, store = composefs
    (found,) = (file for file in store.rglob("*") if file.is_file())
    found.write_bytes(BIG[:-1] + b"x")
    with kilnfs.open(path, objects=store) as image:
        with pytest.raises(OSError, match="digest") as raised:
            image.read("dir/big")
        assert (raised.value.errno, raised.value.filename) == (errno.EIO, "dir/big")
        found.unlink()
        with pytest.raises(OSError, match="is missing"):
            image.read("dir/big")
        assert image.read("small") == b"small"
    with pytest.raises(FileNotFoundError):
        kilnfs.open(path, objects=store / "nowhere")
    with pytest.raises(ValueError, match="objects"):
        kilnfs.open("shards.json", objects=store)
