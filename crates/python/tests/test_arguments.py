"""Arguments of calls: names from anywhere, numbers of inodes as nid=, numbers that are named where they do not fit."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

import kilnfs
from kilnfs import shards

NAMES = ["hello.txt", "many/001.txt", "train/cat/1.jpg"]


class Column:
    """A column of a table, as pandas' Series: it can be iterated over, and has places of its own."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __getitem__(self, label: str) -> str:
        raise KeyError(label)

    def __iter__(self) -> Any:
        return iter(self.names)


class Scalar:
    def __init__(self, value: str) -> None:
        self.value = value

    def as_py(self) -> str:
        return self.value


class Arrow:
    """As pyarrow's arrays: the items are no text."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __iter__(self) -> Any:
        return map(Scalar, self.names)

    def to_pylist(self) -> list[str]:
        return self.names


def ways_to_give(names: list[str], image: kilnfs.Image) -> list[Any]:
    return [
        names,
        tuple(names),
        (name for name in names),
        iter(names),
        dict.fromkeys(names),
        Column(names),
        Arrow(names),
        [name.encode() for name in names],
        [image / name for name in names],
    ]


def test_names_are_taken_from_whatever_can_be_iterated_over(image: kilnfs.Image) -> None:
    expected = [image.read(name) for name in NAMES]
    for names in ways_to_give(NAMES, image):
        assert [bytes(part) for part in image.read_many(names)] == expected
    for names in ways_to_give(NAMES, image):
        assert [bytes(view) for view in image.views(names)] == expected
    for names in ways_to_give(NAMES, image):
        assert {at: bytes(part) for at, part in image.iter_many(names)} == dict(enumerate(expected))
    for names in ways_to_give(NAMES, image):
        assert sorted(image.physical_order(names)) == [0, 1, 2] and len(image.positions(NAMES)) == 3
    assert [bytes(part) for part in image.read_many(iter(NAMES), rows=[2, 0])] == [expected[2], expected[0]]
    assert len(image.read_many(iter(()))) == 0
    for wrong in ("hello.txt", b"hello.txt", 7, None, 1.5):
        with pytest.raises(TypeError):
            image.read_many(wrong)  # type: ignore[arg-type]


def test_whole_numbers_are_no_files_by_themselves(image: kilnfs.Image) -> None:
    nid = image.stat("hello.txt").st_ino
    text = b"hello\nworld\n"
    calls: list[Any] = [
        image.read, image.view, image.stat, image.lstat, image.open, image.extents, image.explain, image.read_text,
        image.exists, image.isdir, image.listdir, image.readlink, image.listxattr,
    ]  # fmt: skip
    for call in calls:
        for number in (nid, True):
            with pytest.raises(TypeError, match="nid= takes an inode number"):
                call(number)
    for call in (image.read_many, image.views, image.iter_many, image.positions, image.physical_order, image.prefetch):
        for numbers in ([0, 1, 2], array("Q", [nid])):
            with pytest.raises(TypeError, match="nid= takes an inode number"):
                call(numbers)  # type: ignore[arg-type, operator]
    into = bytearray(5)
    assert image.read(nid=nid) == bytes(image.view(nid=nid)) == text
    assert image.read(None, 6, 8, nid=nid) == b"wo" and image.read_text(nid=nid) == text.decode()
    assert image.read_into(buffer=into, nid=nid) == 5 and into == b"hello"
    assert image.stat(nid=nid) == image.stat("hello.txt") and image.open(nid=nid).read() == text
    assert image.extents(nid=nid) == image.extents("hello.txt")
    assert image.explain(nid=nid).wanted == len(text)
    assert image.listdir(nid=image.stat("many").st_ino) == image.listdir("many")
    assert image.listxattr(nid=nid) == image.listxattr("hello.txt")
    for nids in ([nid], array("Q", [nid]), array("i", [nid])):
        assert [bytes(part) for part in image.read_many(nids=nids)] == [text]
    assert [bytes(part) for part in image.views(nids=[nid, nid], rows=[1])] == [text]
    for wrong in (lambda: image.read("a", nid=1), lambda: image.read_many(["a"], nids=[1]), image.read, image.read_many):
        with pytest.raises(TypeError, match="not both|missing"):
            wrong()


def test_numbers_that_do_not_fit_are_named(image: kilnfs.Image, image_path: Path) -> None:
    path, huge = "hello.txt", 1 << 64
    calls: dict[str, Any] = {
        "start=-5": lambda: image.read(path, -5),
        f"stop={huge}": lambda: image.read(path, 0, huge),
        "nid=-1": lambda: image.read(nid=-1),
        f"nid={huge}": lambda: image.view(nid=huge),
        "threads=-1": lambda: image.read_many([path], threads=-1),
        "threads=0": lambda: image.read_many([path], threads=0),
        "window_bytes=-1": lambda: image.iter_many([path], window_bytes=-1),
        "ranges=-3": lambda: image.read_many([path], ranges=[(-3, 1)]),
        "group=-1": lambda: image.index(group=-1),
        "cache_bytes=-1": lambda: kilnfs.open(image_path, cache_bytes=-1),
        "offset=-1": lambda: kilnfs.open(image_path, offset=-1),
    }
    for reason, call in calls.items():
        with pytest.raises(ValueError, match=reason):
            call()


def test_ranges(image: kilnfs.Image) -> None:
    for ranges in ([(2, None)], [[2, 100]], ([2, 1 << 63] for _ in "x")):
        assert bytes(image.read_many(["hello.txt"], ranges=ranges).data) == b"llo\nworld\n"
    with pytest.raises(ValueError, match="ranges: "):
        image.read_many(["hello.txt"], ranges=[(1, 2, 3)])


def test_members(image: kilnfs.Image, image_path: Path) -> None:
    names = image.namelist()
    assert list(image) == names and len(image) == len(names)
    assert all(name in image for name in names)
    assert b"hello.txt" in image and image / "hello.txt" in image and "many" in image
    assert "nothing" not in image and 5 not in image and None not in image
    with kilnfs.open(image_path) as opened:
        assert opened, "an image is true, and costs no walk"


def test_a_directory_is_no_image(tmp_path: Path) -> None:
    for path in (tmp_path, str(tmp_path), bytes(tmp_path)):
        with pytest.raises(IsADirectoryError) as raised:
            kilnfs.open(path)
        assert raised.value.filename == str(tmp_path)


def test_urls_are_no_paths_to_pack(tmp_path: Path) -> None:
    for source, image in ((tmp_path, "s3://bucket/x.erofs"), ("s3://bucket/files", tmp_path / "x.erofs")):
        with pytest.raises(ValueError, match=r"='s3://bucket/.*not a URL; kilnfs\.shards"):
            kilnfs.pack(source, image)
    with kilnfs.Builder() as tree, pytest.raises(ValueError, match="not a URL"):
        tree.write("https://host/x.erofs")


def test_shards_take_the_same(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(50):
        (source / f"{number:02}.bin").write_bytes(b"%d" % number * 300)
    plan = shards.plan(source, tmp_path / "shards", shard_bytes=4000)
    manifest = shards.finish(plan, [shards.pack(entry) for entry in plan])
    names = [f"{number:02}.bin" for number in (40, 3, 17, 3)]
    expected = [(source / name).read_bytes() for name in names]
    with kilnfs.open(manifest, window=2) as image:
        assert isinstance(image, shards.ShardedImage) and len(image.manifest) > 3
        index = image.index()
        rows = [index.find(name) for name in names]
        numbers = [index.number(row) for row in rows]
        ways: list[dict[str, Any]] = [{"files": iter(names)}, {"files": index, "rows": rows}, {"nids": numbers}]
        for way in ways[1:]:
            assert [bytes(part) for part in image.read_many(**way)] == expected
            assert [bytes(view) for view in image.views(**way)] == expected
            assert sorted((at, bytes(part)) for at, part in image.iter_many(**way)) == list(enumerate(expected))
            assert sorted(image.physical_order(**way)) == [0, 1, 2, 3]
            assert image.prefetch(**way) >= 0
        assert [bytes(view) for view in image.views(**ways[0])] == expected
        stored = [at for at, _ in image.iter_many(index)]
        assert stored == list(image.physical_order(index)) and sorted(stored) == list(range(50))
        assert image.read(nid=numbers[0]) == expected[0] and image.open(nid=numbers[1]).read() == expected[1]
        assert image.stat(nid=numbers[0]).st_size == len(expected[0])
        assert image.source_length == sum(path.stat().st_size for path in (tmp_path / "shards").glob("*.erofs"))
        assert names[0] in image and "nothing" not in image
        assert list(image) == list(index) and len(image) == 50 and image
        for call in (image.read, image.read_many, image.views):
            with pytest.raises(TypeError, match="nid= takes|no path|list of paths|not iterable"):
                call(5)  # type: ignore[arg-type, operator]
        with pytest.raises(AttributeError, match=r"image\.shard\(number\)\.info"):
            image.info  # noqa: B018
        with pytest.raises(TypeError, match=r"image\.shard\(number\)\.positions"):
            image.positions(index)
        image.extractall(tmp_path / "out")
        image.extractall(tmp_path / "out", overwrite=True)
