"""An index and a path belong to an image: another one refuses them, whichever way they are handed over."""

from __future__ import annotations

import ctypes
import errno
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kilnfs
import pytest
from conftest import pack
from kilnfs import shards

FILES = 40


def tree(root: Path, text: str) -> Path:
    for number in range(FILES):
        path = root / "ab"[number % 2] / f"{number:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {number} " * (1 + number))
    return root


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two images of trees with the same names."""
    base = tmp_path_factory.mktemp("identity")
    for name in ("one", "two"):
        pack(tree(base / name, name), base / f"{name}.erofs")
    return base / "one.erofs", base / "two.erofs"


@pytest.fixture
def images(paths: tuple[Path, Path]) -> Iterator[tuple[kilnfs.Image, kilnfs.Image]]:
    with kilnfs.open(paths[0]) as one, kilnfs.open(paths[1]) as two:
        yield one, two


BY_INDEX: dict[str, Callable[[kilnfs.Image, Any], object]] = {
    "read_many": lambda image, what: image.read_many(what, rows=[3]),
    "read_many, all rows": lambda image, what: image.read_many(what),
    "views": lambda image, what: image.views(what, rows=[3]),
    "iter_many": lambda image, what: list(image.iter_many(what, rows=[3])),
    "positions": lambda image, what: image.positions(what, rows=[3]),
    "physical_order": lambda image, what: image.physical_order(what),
    "prefetch": lambda image, what: image.prefetch(what),
    "bind": lambda image, what: what.bind(image),
}


def refused(call: Callable[[], object], mine: bytes, other: bytes, name: str) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == errno.ESTALE
    assert caught.value.filename == name
    assert mine.hex() in str(caught.value) and other.hex() in str(caught.value)


@pytest.mark.parametrize("way", BY_INDEX)
def test_an_index_of_another_image_is_refused(images: tuple[kilnfs.Image, kilnfs.Image], way: str) -> None:
    one, two = images
    index = one.index()
    refused(lambda: BY_INDEX[way](two, index), one.uuid, two.uuid, two.name)
    BY_INDEX[way](one, index)


@pytest.mark.parametrize("way", BY_INDEX)
def test_an_index_is_taken_by_the_same_image_opened_again(paths: tuple[Path, Path], way: str) -> None:
    with kilnfs.open(paths[0]) as first:
        index = first.index()
    with kilnfs.open(paths[0]) as again:
        BY_INDEX[way](again, index)
        assert bytes(again.read_many(index, rows=[3])[0]) == again.read("a/06.txt")


BY_PATH: dict[str, Callable[[kilnfs.Image, Any], object]] = {
    "read": lambda image, path: image.read(path),
    "read_into": lambda image, path: image.read_into(path, bytearray(8)),
    "view": lambda image, path: image.view(path),
    "views": lambda image, path: image.views([path]),
    "read_many": lambda image, path: image.read_many(["a/00.txt", path]),
    "iter_many": lambda image, path: list(image.iter_many([path])),
    "positions": lambda image, path: image.positions((path,)),
    "prefetch": lambda image, path: image.prefetch([path]),
    "open": lambda image, path: image.open(path),
    "stat": lambda image, path: image.stat(path),
    "getinfo": lambda image, path: image.getinfo(path),
    "extents": lambda image, path: image.extents(path),
    "explain": lambda image, path: image.explain(path),
    "path": lambda image, path: image.path(path),
    "/": lambda image, path: image / path,
    "find": lambda image, path: image.index().find(path),
}


@pytest.mark.parametrize("way", BY_PATH)
@pytest.mark.parametrize("kind", ["path", "file", "entry"])
def test_a_path_of_another_image_is_refused(images: tuple[kilnfs.Image, kilnfs.Image], way: str, kind: str) -> None:
    one, two = images
    path: Any = one / "a/06.txt"
    if kind == "file":
        path = path.open("rb")
    elif kind == "entry":
        path = next(entry for entry in one.scandir("a") if entry.name == "06.txt")
    refused(lambda: BY_PATH[way](two, path), one.uuid, two.uuid, two.name)
    BY_PATH[way](one, path)


def test_directories_of_another_image_are_refused(images: tuple[kilnfs.Image, kilnfs.Image], tmp_path: Path) -> None:
    one, two = images
    calls: list[Callable[[], object]] = [
        lambda: two.listdir(one / "a"),
        lambda: list(two.walk(one / "a")),
        lambda: list(two.glob("*", root=one / "a")),
        lambda: two.index(one / "a"),
        lambda: two.extract(one / "a", tmp_path),
        lambda: two.extractall(tmp_path, [one / "a"]),
    ]
    for call in calls:
        refused(call, one.uuid, two.uuid, two.name)
    assert os.listdir(tmp_path) == []


def test_a_path_of_an_image_that_was_closed_is_taken_by_the_same_one(paths: tuple[Path, Path]) -> None:
    with kilnfs.open(paths[0]) as first:
        path = first / "b/01.txt"
    with kilnfs.open(paths[0]) as again, kilnfs.open(paths[1]) as other:
        assert again.read(path) == again.read("b/01.txt")
        refused(lambda: other.read(path), first._identity[1], other.uuid, other.name)


def test_shards_refuse_what_belongs_to_others(tmp_path: Path, images: tuple[kilnfs.Image, kilnfs.Image]) -> None:
    opened = []
    for name in ("one", "two"):
        source = tree(tmp_path / name, name)
        plan = shards.plan(str(source), str(tmp_path / f"{name}.d"), shard_bytes=2000, seed=1)
        assert len(plan) > 2
        opened.append(shards.open(shards.finish(plan, [shards.pack(entry) for entry in plan])))
    one, two = opened
    index = one.index()
    refused(lambda: two.read_many(index, rows=[3]), one.uuid, two.uuid, two.name)
    refused(lambda: two.read(one / "a/06.txt"), one.uuid, two.uuid, two.name)
    refused(lambda: two.read_many([one / "a/06.txt"]), one.uuid, two.uuid, two.name)
    refused(lambda: images[0].read_many(index), one.uuid, images[0].uuid, images[0].name)
    of_shard = one.shard_index(0)
    with pytest.raises(OSError, match=of_shard.uuid.hex()) as caught:
        two.read_many(of_shard)
    assert caught.value.errno == errno.ESTALE
    again = shards.open(one.name)
    row = index.find("a/06.txt")
    expected = one.read("a/06.txt")
    assert bytes(again.read_many(index, rows=[row])[0]) == expected == again.read(one / "a/06.txt")
    assert bytes(one.read_many(of_shard)[0]) == one.read(of_shard[0])


@pytest.mark.parametrize("kind", [ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64])
@pytest.mark.parametrize("order", ["__ctype_be__", "__ctype_le__"])
def test_rows_in_either_byte_order(images: tuple[kilnfs.Image, kilnfs.Image], kind: Any, order: str) -> None:
    image, _ = images
    index = image.index()
    rows = (getattr(kind, order) * 2)(1, 38)
    expected = [bytes(part) for part in image.read_many(index, rows=[1, 38])]
    assert [bytes(part) for part in image.read_many(index, rows=rows)] == expected
    assert list(index.subset(rows)) == [index[1], index[38]]
    assert [bytes(part) for part in image.views(index, rows=rows)] == expected
    nids = (getattr(kind, order) * 2)(index.nids[1], index.nids[38])
    assert [bytes(part) for part in image.read_many(nids=nids)] == expected
    labels = index.with_labels((getattr(kind, order) * FILES)(*([1, 0] * (FILES // 2))), ["x", "y"]).labels
    assert labels is not None and labels.tolist() == [1, 0] * (FILES // 2)


def test_big_endian_rows_are_not_other_rows(images: tuple[kilnfs.Image, kilnfs.Image]) -> None:
    """0x01000000 in the other byte order is 1, which is a row."""
    image, _ = images
    index = image.index()
    with pytest.raises(IndexError, match="row 16777216"):
        image.read_many(index, rows=(ctypes.c_int32.__ctype_be__ * 1)(0x01000000))
    with pytest.raises(ValueError, match="rows: -1 is negative"):
        image.read_many(index, rows=(ctypes.c_int32.__ctype_be__ * 1)(-1))


def test_rows_of_numpy_in_either_byte_order(images: tuple[kilnfs.Image, kilnfs.Image]) -> None:
    numpy = pytest.importorskip("numpy")
    image, _ = images
    index = image.index()
    for kind in ("i4", "u4", "i8", "u8"):
        for order in "<>=":
            rows = numpy.array([1, 38], order + kind)
            assert list(index.subset(rows)) == list(index.subset(array("Q", [1, 38])))
