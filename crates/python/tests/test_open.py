"""What `kilnfs.open` takes."""

from __future__ import annotations

import errno
import io
import mmap
import os
import pickle
import shutil
from pathlib import Path

import pytest
from conftest import pack

import kilnfs

HELLO = b"hello\nworld\n"


def test_paths(image_path: Path) -> None:
    for given in (str(image_path), os.fsencode(image_path), image_path):
        with kilnfs.open(given) as image:
            assert image.read("hello.txt") == HELLO
            assert image.name == str(image_path)
            assert image_path.name in repr(image)
            assert image.source_length == image_path.stat().st_size


def test_paths_of_any_name(image_path: Path, tmp_path: Path) -> None:
    for name in (b"\xff\xfe.erofs", b"with::colons", b"http:", b" "):
        copy = os.path.join(os.fsencode(tmp_path), name)
        shutil.copy(image_path, copy)
        for given in (copy, os.fsdecode(copy)):
            with kilnfs.open(given) as image:
                assert image.read("hello.txt") == HELLO
                with pytest.raises(FileNotFoundError) as raised:
                    image.read("missing")
                assert raised.value.filename2 == os.fsdecode(copy)
                assert pickle.loads(pickle.dumps(image)).read("hello.txt") == HELLO


def test_memory(image_path: Path) -> None:
    contents = image_path.read_bytes()
    with open(image_path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for given in (contents, bytearray(contents), memoryview(contents)):
            with kilnfs.open(given) as image:
                assert image.read("hello.txt") == HELLO
                assert image.name == "<memory>"
        image = kilnfs.open(mapped)
        assert image.read("hello.txt") == HELLO
        image.close()
        del image


def test_memory_is_kept_alive(image_path: Path) -> None:
    image = kilnfs.open(bytearray(image_path.read_bytes()))
    assert image.read("hello.txt") == HELLO


def test_file_objects(image_path: Path) -> None:
    pytest.importorskip("kilnfs._source")
    with open(image_path, "rb") as file, kilnfs.open(file) as image:
        assert image.read("hello.txt") == HELLO
    with kilnfs.open(io.BytesIO(image_path.read_bytes())) as image:
        assert image.read("hello.txt") == HELLO


def test_an_image_in_an_image(image_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("kilnfs._source")
    (tmp_path / "source").mkdir()
    shutil.copy(image_path, tmp_path / "source" / "inner.erofs")
    pack(tmp_path / "source", tmp_path / "outer.erofs")
    with kilnfs.open(tmp_path / "outer.erofs") as outer, outer.open("inner.erofs") as file:
        assert kilnfs.open(file).read("hello.txt") == HELLO
        assert kilnfs.open(outer.view("inner.erofs")).read("hello.txt") == HELLO


def test_offset(image_path: Path, tmp_path: Path) -> None:
    shifted = tmp_path / "shifted"
    shifted.write_bytes(bytes(8192) + image_path.read_bytes())
    with kilnfs.open(shifted, offset=8192) as image:
        assert image.read("hello.txt") == HELLO
        assert pickle.loads(pickle.dumps(image)).read("hello.txt") == HELLO


@pytest.mark.parametrize(
    "options", [{"mmap": True}, {"cache_bytes": 0}, {"cache_bytes": 1 << 30}, {"verify_checksum": False}]
)
def test_options(image_path: Path, options: dict[str, int]) -> None:
    with kilnfs.open(image_path, **options) as image:
        assert image.read("hello.txt") == HELLO
        again = pickle.loads(pickle.dumps(image))
        assert again._options == image._options and again._options.items() >= options.items()


@pytest.mark.parametrize("wrong", [None, 3, 1.5, ["x"], object()])
def test_what_is_no_image_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError):
        kilnfs.open(wrong)


def test_options_that_are_none(image_path: Path) -> None:
    with pytest.raises(TypeError, match="cache_byte"):
        kilnfs.open(image_path, cache_byte=1)


def test_files_that_are_no_images(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        kilnfs.open(tmp_path / "missing")
    assert str(tmp_path / "missing") in (raised.value.filename, raised.value.filename2)
    with pytest.raises(OSError):
        kilnfs.open(tmp_path)
    for contents in (b"", b"x" * 5000, bytes(5000)):
        (tmp_path / "bad").write_bytes(contents)
        with pytest.raises(OSError):
            kilnfs.open(tmp_path / "bad")
    with pytest.raises(kilnfs.ImageError):
        kilnfs.open(bytes(5000))


class Mine(kilnfs.Image):
    """An image of the caller's own class."""


def test_made_by_the_class(image_path: Path) -> None:
    with Mine(image_path) as image:
        assert image.read("hello.txt") == HELLO
        assert type(pickle.loads(pickle.dumps(image))) is Mine


def test_pickled_image_is_opened_again(image_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(image_path.parent)
    with kilnfs.open(image_path.name) as image:
        data = pickle.dumps(image)
    monkeypatch.chdir(tmp_path)
    with pickle.loads(data) as again:
        assert again.read("hello.txt") == HELLO
    assert len(data) < 1000


def test_pickled_image_must_be_the_same(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.erofs"
    pack(tree / "many", path)
    with kilnfs.open(path) as image:
        data = pickle.dumps(image)
        os.unlink(path)
        pack(tree / "train", path)
        with pytest.raises(OSError) as raised:
            pickle.loads(data)
        assert raised.value.errno == errno.ESTALE
        assert str(path) in str(raised.value)
        os.unlink(path)
        with pytest.raises(FileNotFoundError):
            pickle.loads(data)


def test_what_another_process_does_not_have_is_not_pickled(image_path: Path) -> None:
    image = kilnfs.open(image_path.read_bytes())
    for thing in (image, image.root, image.open("hello.txt"), next(image.scandir())):
        with pytest.raises(TypeError, match="open"):
            pickle.dumps(thing)
    closed = kilnfs.open(image_path)
    closed.close()
    with pytest.raises(ValueError):
        pickle.dumps(closed)


def test_info(image: kilnfs.Image) -> None:
    info = image.info
    assert info.block_size == 4096
    assert info.inodes > 300
    assert info.root_nid == image.stat("/").st_ino
    assert len(image.uuid) == 16
    assert "block_size=4096" in repr(info) and info == image.info


def test_index(image: kilnfs.Image, tree: Path) -> None:
    index = image.index()
    files = [name for name in image.namelist() if os.path.isfile(tree / name) and not os.path.islink(tree / name)]
    assert set(files) <= set(index)
    for row, path in enumerate(index):
        assert (index.nids[row], index.sizes[row]) == (image.stat(path).st_ino, image.stat(path).st_size)


def test_index_of_classes(image: kilnfs.Image) -> None:
    jpegs = image.index("train", extensions=".jpg", group=1)
    assert len(jpegs) == 10 and jpegs.classes == ["cat", "dog"] and list(jpegs.labels) == [0] * 5 + [1] * 5
    assert list(image.index("train", extensions=[".jpg"], group="parent").labels) == list(jpegs.labels)
    parents = image.index("train", group="parent")
    assert parents.classes == ["cat", "dog", "sub"]
    assert [parents.classes[label] for label in parents.labels] == [path.split("/")[-2] for path in parents]
    odd = image.index(image / "train", extensions=[b".jpg"], group=lambda path: "odd" if int(path[-5]) % 2 else "even")
    assert odd.classes == ["even", "odd"] and list(odd.labels) == [0, 1, 0, 1, 0] * 2
    assert [bytes(part) for part in image.read_many(jpegs)] == [image.read(path) for path in jpegs]
    with pytest.raises(ValueError):
        image.index(group="children")
    with pytest.raises(FileNotFoundError):
        image.index("missing")


def test_index_of_a_pattern(image: kilnfs.Image) -> None:
    assert list(image.index("train", glob="*/*.jpg")) == [
        f"train/{path}" for path in image.glob("*/*.jpg", root="train")
    ]
    assert list(image.index("train", glob="**/*.png")) == ["train/cat/sub/0.png", "train/dog/sub/0.png"]
