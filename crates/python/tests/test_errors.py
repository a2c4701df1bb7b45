"""Errors say which file of which image they are about, however it is read; errors of decoders say which sample."""

from __future__ import annotations

import errno
import io
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kilnfs
import packing
import pytest
from conftest import pack
from kilnfs import shards

BAD = "k/007.txt"
ROW = 7


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with one file whose pclusters are damaged."""
    base = tmp_path_factory.mktemp("errors")
    (base / "tree" / "k").mkdir(parents=True)
    for number in range(12):
        (base / "tree" / "k" / f"{number:03}.txt").write_bytes(packing.text(300_000, number))
    path = base / "damaged.erofs"
    pack(base / "tree", path, "-z", "zstd")
    damage(path, BAD)
    return path


def damage(path: Path, name: str) -> None:
    with kilnfs.open(path) as image:
        extents = [extent for extent in image.extents(name) if extent.kind in ("compressed", "uncompressed", "plain")]
    data = bytearray(path.read_bytes())
    for extent in extents:
        assert extent.address is not None
        data[extent.address : extent.address + extent.stored] = b"\xff" * extent.stored
    path.write_bytes(data)


@pytest.fixture
def image(damaged: Path) -> Iterator[kilnfs.Image]:
    with kilnfs.open(damaged) as opened:
        yield opened


def bound(image: kilnfs.Image) -> Any:
    return image.index()


BY_NAME: dict[str, Callable[[kilnfs.Image], object]] = {
    "read": lambda image: image.read(BAD),
    "read_into": lambda image: image.read_into(BAD, bytearray(10)),
    "view": lambda image: image.view(BAD),
    "read_text": lambda image: image.read_text(BAD),
    "read_many, paths": lambda image: image.read_many([BAD]),
    "read_many, index": lambda image: image.read_many(bound(image)),
    "read_many, rows": lambda image: image.read_many(bound(image), rows=[3, ROW]),
    "read_many, part of an index": lambda image: image.read_many(bound(image).subset([9, ROW])),
    "read_many, loaded index": lambda image: image.read_many(saved(image)),
    "errors of a batch": lambda image: raised(image.read_many(bound(image), on_error="return").errors[ROW]),
    "an item of a batch": lambda image: image.read_many(bound(image), on_error="return")[ROW],
    "views": lambda image: image.views(bound(image), rows=[ROW]),
    "iter_many": lambda image: list(image.iter_many(bound(image))),
    "iter_many, small windows": lambda image: list(image.iter_many(bound(image), window_bytes=1)),
    "file": lambda image: image.open(BAD).read(),
    "file without a buffer": lambda image: image.open(BAD, buffering=0).readinto(bytearray(10)),
    "text file": lambda image: image.open(BAD, "r", encoding="utf-8").read(),
    "Path": lambda image: (image / BAD).read_bytes(),
    "text of a Path": lambda image: (image / BAD).read_text(encoding="utf-8"),
    "Samples, one": lambda image: kilnfs.Samples(image)[ROW],
    "Samples, one buffer": lambda image: kilnfs.Samples(image, decode="buffer")[ROW],
    "Samples, several": lambda image: kilnfs.Samples(image)[5:],
    "Samples, all": lambda image: list(kilnfs.Samples(image)),
}


def raised(error: BaseException) -> None:
    raise error


def saved(image: kilnfs.Image) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        image.index().save(f"{directory}/index")
        return kilnfs.Index.load(f"{directory}/index")


@pytest.mark.parametrize("way", BY_NAME)
def test_errors_name_the_file_and_the_image(image: kilnfs.Image, damaged: Path, way: str) -> None:
    with pytest.raises(kilnfs.CorruptImageError) as caught:
        BY_NAME[way](image)
    name = "/" + BAD if "Path" in way else BAD
    assert (caught.value.filename, caught.value.filename2) == (name, str(damaged))
    assert caught.value.path == name
    assert str(caught.value).endswith(f"'{name}' -> '{damaged}'")


@pytest.mark.parametrize("way", ["read", "view", "read_many", "iter_many", "open"])
def test_errors_of_a_nid_name_it_and_the_image(image: kilnfs.Image, damaged: Path, way: str) -> None:
    nid = image.stat(BAD).st_ino
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: image.read(nid=nid),
        "view": lambda: image.view(nid=nid),
        "read_many": lambda: image.read_many(nids=[nid]),
        "iter_many": lambda: list(image.iter_many(nids=[nid])),
        "open": lambda: image.open(nid=nid).read(),
    }
    with pytest.raises(kilnfs.CorruptImageError) as caught:
        calls[way]()
    assert f"nid {nid}: " in str(caught.value) and caught.value.filename == str(damaged)
    assert caught.value.nid == nid and caught.value.path is None
    # Of those that the image is not to blame for, too.
    directory = image.stat("k").st_ino
    with pytest.raises(IsADirectoryError, match=f"nid {directory}: ") as is_directory:
        image.read_many(nids=[directory])
    assert is_directory.value.filename == str(damaged)


def test_errors_of_a_source_name_the_file(tmp_path: Path) -> None:
    class Failing(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.data, self.position, self.fails = data, 0, False

        def readable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            self.position = offset if whence == 0 else len(self.data) + offset
            return self.position

        def tell(self) -> int:
            return self.position

        def read(self, size: int = -1) -> bytes:
            if self.fails:
                raise ConnectionResetError("lost")
            self.position += size
            return self.data[self.position - size : self.position]

    (tmp_path / "tree" / "k").mkdir(parents=True)
    for number in range(40):
        (tmp_path / "tree" / "k" / f"{number:03}.txt").write_bytes(random.Random(number).randbytes(100_000))
    pack(tmp_path / "tree", tmp_path / "plain.erofs", "--preset", "plain")
    file = Failing((tmp_path / "plain.erofs").read_bytes())
    image = kilnfs.open(file)  # type: ignore[arg-type]
    index = image.index()
    file.fails = True
    for call in (lambda: image.read("k/030.txt"), lambda: image.read_many(index, rows=[30])):
        with pytest.raises(OSError, match="ConnectionResetError: lost") as caught:
            call()
        assert (caught.value.filename, caught.value.filename2) == ("k/030.txt", "<Failing>")
        assert isinstance(caught.value.__cause__, ConnectionResetError)
    # Those that were fetched together share an error, and each has a name.
    errors = image.read_many(index, rows=[30, 31], on_error="return").errors
    assert [errors[place].filename for place in sorted(errors)] == ["k/030.txt", "k/031.txt"]


def test_errors_of_shards_name_the_file_and_the_shard(tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / "tree" / "k" / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packing.text(300_000, number))
    plan = shards.plan(str(tmp_path / "tree"), str(tmp_path / "s"), shard_bytes=1_000_000, by="path", compress="zstd")
    image = shards.open(shards.finish(plan, [shards.pack(entry) for entry in plan]))
    row = image.index().find(BAD)
    shard = image.shard(image.locate(row)[0]).name
    damage(Path(shard), BAD)
    image = shards.open(image.name)
    calls: list[Callable[[], object]] = [
        lambda: image.read(BAD),
        lambda: image.view(BAD),
        lambda: image.read_sample(row),
        lambda: image.read_samples([0, row]),
        lambda: image.read_many(image.index()),
        lambda: image.read_many([BAD]),
        lambda: image.open(BAD).read(),
        lambda: (image / BAD).read_bytes(),
    ]
    for call in calls:
        with pytest.raises(kilnfs.CorruptImageError) as caught:
            call()
        assert (caught.value.filename.lstrip("/"), caught.value.filename2) == (BAD, shard)


def refuse(data: Any) -> Any:
    raise ValueError("no picture")


@pytest.mark.parametrize("what", ["decode", "transform"])
@pytest.mark.parametrize("way", ["one", "several"])
def test_what_a_decoder_raises_has_a_note(image: kilnfs.Image, damaged: Path, what: str, way: str) -> None:
    samples = kilnfs.Samples(image, extensions="003.txt", **{what: refuse})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no picture") as caught:
        samples[0] if way == "one" else samples[0:1]
    note = f"sample 0, 'k/003.txt' of '{damaged}'"
    assert caught.value.__notes__ == [note]
    assert note in "".join(traceback.format_exception(caught.value))


def test_what_a_target_transform_raises_has_a_note(image: kilnfs.Image, damaged: Path) -> None:
    samples = kilnfs.Samples(image, extensions="003.txt", target_transform=refuse)
    with pytest.raises(ValueError) as caught:
        samples[0]
    assert caught.value.__notes__ == [f"sample 0, 'k/003.txt' of '{damaged}'"]


def test_errors_of_attributes_name_the_file_and_the_image(damaged: Path) -> None:
    with kilnfs.open(damaged) as image:
        with pytest.raises(OSError) as missing:
            image.getxattr(BAD, "user.nope")
        assert missing.value.errno == errno.ENODATA
        assert (missing.value.filename, missing.value.filename2) == (BAD, str(damaged))
