"""`Index` and `Batch` as sequences of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import kilnfs
import pytest


@pytest.fixture
def image(tmp_path: Path) -> kilnfs.Image:
    for name in ["a/1.txt", "a/2.txt", "b/1.txt", "b/3.txt", "\udcff.bin", "top"]:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name[-5:].encode("utf-8", "surrogateescape"))
    (tmp_path / "tree" / "link").symlink_to("a")
    kilnfs.pack(tmp_path / "tree", tmp_path / "image.erofs")
    return kilnfs.open(tmp_path / "image.erofs")


def test_an_index_is_a_sequence_of_its_paths(image: kilnfs.Image) -> None:
    index = image.index()
    paths = [index.path(row) for row in range(len(index))]
    assert isinstance(index, Sequence) and issubclass(kilnfs.Index, Sequence)
    assert list(index) == paths == list(index.__iter__()) and list(reversed(index)) == paths[::-1]
    for row, path in enumerate(paths):
        assert path in index and index.index(path) == row and index.count(path) == 1
    # Neither other ways to write a path, nor what no row has, nor what is no text.
    for other in [
        "/a/1.txt",
        "a//1.txt",
        "link/1.txt",
        "a",
        "",
        "a/9.txt",
        "nothing/1.txt",
        "top/1",
        b"a/1.txt",
        0,
        None,
    ]:
        assert other not in index and index.count(other) == 0, other  # type: ignore[operator]
        with pytest.raises(ValueError, match="no row"):
            index.index(other)
    match index:
        case [first, *_, last]:
            assert (first, last) == (paths[0], paths[-1])
        case _:
            pytest.fail("no sequence")
    assert set(random.Random(1).sample(index, 3)) <= set(paths)


def test_positions_are_those_of_a_list(image: kilnfs.Image) -> None:
    rows = [3, 0, 3, 5, 1, 3, 0]
    index = image.index().subset(rows)
    paths = list(index)
    limits = [-9, -4, -1, 0, 1, 3, 6, 7, 99]
    for path in image.index():
        assert index.count(path) == paths.count(path) and (path in index) == (path in paths)
        for start in limits:
            for stop in [None, *limits]:
                bounds = (start,) if stop is None else (start, stop)
                expected = paths.index(path, *bounds) if path in paths[slice(start, stop)] else None
                if expected is None:
                    with pytest.raises(ValueError):
                        index.index(path, *bounds)
                else:
                    assert index.index(path, *bounds) == expected, (path, bounds)


def test_an_index_without_an_image_says_so(image: kilnfs.Image, tmp_path: Path) -> None:
    image.index().save(str(tmp_path / "index"))
    index = kilnfs.Index.load(str(tmp_path / "index"))
    for call in (lambda: "top" in index, lambda: index.index("top"), lambda: list(reversed(index))):
        with pytest.raises(ValueError, match="not bound to an image"):
            call()


def test_a_batch_is_a_sequence_of_contents(image: kilnfs.Image) -> None:
    index = image.index()
    batch = image.read_many(index, rows=[index.index(path) for path in ("a/1.txt", "b/1.txt", "a/1.txt")])
    assert isinstance(batch, Sequence) and issubclass(kilnfs.Batch, Sequence)
    contents = [bytes(part) for part in batch]
    assert contents == [bytes(part) for part in batch.__iter__()] == [b"1.txt", b"1.txt", b"1.txt"]
    batch = image.read_many(index, rows=[index.index(path) for path in ("top", "a/1.txt", "b/3.txt", "a/1.txt")])
    contents = [batch.tobytes(place) for place in range(4)]
    assert [bytes(part) for part in reversed(batch)] == contents[::-1]
    for data in (contents[1], memoryview(contents[1])):
        assert data in batch and batch.index(data) == 1 and batch.index(data, 2) == 3 and batch.count(data) == 2
    assert b"none" not in batch and "1.txt" not in batch and batch.count(b"none") == 0
    for bounds in [(), (2, 3), (0, -3)]:
        with pytest.raises(ValueError):
            batch.index(b"none" if not bounds else contents[1], *bounds)
    assert list(image.read_many([])) == [] and list(reversed(image.read_many([]))) == []
