"""Damaged images: whatever is in them, nothing but an OSError comes out, and no walk goes on for ever."""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kilnfs

PROJECT = Path(__file__).resolve().parents[3]
IMAGES = sorted((PROJECT / "fuzz" / "images").glob("*.erofs"))
CORPUS = sorted((PROJECT / "fuzz" / "corpus" / "image").glob("*"))
STEPS = 2000
"""Files of an image that are looked at, at most: a small image may have billions of names."""


def limited(found: Iterator[object]) -> list[object]:
    return list(itertools.islice(found, STEPS))


def everything(image: kilnfs.Image) -> Iterator[Callable[[], object]]:
    """Calls of all kinds."""
    yield lambda: image.info
    yield image.stats
    yield lambda: limited(image.walk())
    yield lambda: limited(image.walk(topdown=False))
    yield lambda: limited(image.walk(followlinks=True))
    yield lambda: limited(image.glob("**/*"))
    yield lambda: limited(image.root.rglob("*"))
    yield lambda: image.check(threads=1)
    yield lambda: image.index(threads=1)
    paths: list[bytes] = []
    try:
        for directory, dirs, files in itertools.islice(image.walk(b"/", onerror=lambda error: None), 100):
            paths += [os.path.join(directory, name) for name in (dirs + files)[:20]]
    except OSError:
        pass
    for path in paths[:100]:
        for verb in (
            image.lstat,
            image.stat,
            image.exists,
            image.listdir,
            image.readlink,
            image.listxattr,
            image.extents,
        ):
            yield lambda verb=verb, path=path: verb(path)
        yield lambda path=path: [image.getxattr(path, name) for name in image.listxattr(path)]
        # A file of exabytes is one hole: it is not read at once.
        yield lambda path=path: image.read(path, 0, 1 << 20)
        yield lambda path=path: bytes(image.view(path, 5, 1 << 16))
        yield lambda path=path: image.read_into(path, bytearray(10_000), start=1)
        yield lambda path=path: image.explain(path, 0, 4096)
        yield lambda path=path: image.read_many([path], ranges=[(0, 1000)], on_error="return")
        yield lambda path=path: image.open(path).read(100_000)
        yield lambda path=path: image.path(path).resolve()


def exercise(contents: bytes, *, verify_checksum: bool) -> set[type[BaseException]]:
    """Ask an image for everything. Returns the classes of the errors that it gave."""
    raised: set[type[BaseException]] = set()
    try:
        image = kilnfs.open(memoryview(contents), verify_checksum=verify_checksum, cache_bytes=1 << 20)
    except OSError as error:
        return {type(error)}
    with image:
        for call in everything(image):
            try:
                call()
            except OSError as error:
                raised.add(type(error))
                assert error.errno, error
    return raised


@pytest.mark.skipif(not CORPUS, reason="the corpus of fuzz/ is not there")
def test_corpus() -> None:
    raised: set[type[BaseException]] = set()
    for path in CORPUS:
        raised |= exercise(path.read_bytes(), verify_checksum=False)
    assert kilnfs.CorruptImageError in raised


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_damaged_at_random(path: Path) -> None:
    good = path.read_bytes()
    rng = random.Random(path.stem)
    for _ in range(15):
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 20)):
            # Most of it in the superblock and what follows, which decides what the rest means.
            place = rng.randrange(1024, min(len(damaged), 16384) if rng.random() < 0.8 else len(damaged))
            damaged[place] = rng.choice([0, 255, rng.randrange(256), damaged[place] ^ 1 << rng.randrange(8)])
        exercise(bytes(damaged), verify_checksum=False)
    for length in (0, 1, 1023, 1024, 1152, 4096, len(good) // 2, len(good) - 1):
        exercise(good[:length], verify_checksum=False)


def test_damage_says_what_and_where(image_path: Path, tmp_path: Path) -> None:
    damaged = bytearray(image_path.read_bytes())
    damaged[1024] ^= 1
    (tmp_path / "bad.erofs").write_bytes(damaged)
    with pytest.raises(kilnfs.CorruptImageError) as raised:
        kilnfs.open(tmp_path / "bad.erofs")
    error = raised.value
    assert error.errno == errno.EUCLEAN
    assert str(tmp_path / "bad.erofs") in (error.filename, error.filename2)
    assert error.strerror


def test_checksum_is_verified(image_path: Path) -> None:
    damaged = bytearray(image_path.read_bytes())
    damaged[1024 + 48] ^= 1  # in the uuid, which nothing depends on
    with pytest.raises(kilnfs.CorruptImageError):
        kilnfs.open(bytes(damaged))
    with kilnfs.open(bytes(damaged), verify_checksum=False) as image:
        assert image.read("hello.txt") == b"hello\nworld\n"


def test_a_walk_does_not_leave_out_what_is_damaged(tree: Path, tmp_path: Path) -> None:
    from conftest import pack

    path = tmp_path / "x.erofs"
    pack(tree / "train", path, "--preset", "plain")
    contents = bytearray(path.read_bytes())
    # Names of the two classes stand in the root's directory and nowhere else.
    place = contents.index(b"cat")
    contents[place : place + 3] = b"c/t"
    errors: list[OSError] = []
    with kilnfs.open(bytes(contents), verify_checksum=False) as image:
        with pytest.raises(kilnfs.CorruptImageError):
            list(image.walk())
        with pytest.raises(kilnfs.CorruptImageError):
            image.namelist()
        with pytest.raises(kilnfs.CorruptImageError):
            image.exists("dog")
        list(image.walk(onerror=errors.append))
    assert [type(error) for error in errors] == [kilnfs.CorruptImageError]


@pytest.mark.parametrize("other", ["cat", "/"])
def test_a_walk_of_a_directory_that_has_two_names_ends(tree: Path, tmp_path: Path, other: str) -> None:
    from conftest import pack

    path = tmp_path / "x.erofs"
    pack(tree / "train", path, "--preset", "plain")
    contents = path.read_bytes()
    with kilnfs.open(path) as image:
        nid, second = image.stat("dog").st_ino, image.stat(other).st_ino
    # Nids stand in entries of directories: 8 bytes, of which the first one of "dog" is in the root.
    assert nid.to_bytes(8, "little") in contents
    contents = contents.replace(nid.to_bytes(8, "little"), second.to_bytes(8, "little"))
    with kilnfs.open(memoryview(contents), verify_checksum=False) as image:
        assert image.stat("dog").st_ino == second
        for call in (image.namelist, lambda: list(image.walk()), lambda: list(image.glob("**/x"))):
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno in (errno.EUCLEAN, errno.ELOOP)
        assert len(limited(image.walk(followlinks=True))) > 3
        with pytest.raises(OSError):
            image.extractall(tmp_path / "out")
        with pytest.raises(OSError):
            image.root.copy(tmp_path / "copy")
