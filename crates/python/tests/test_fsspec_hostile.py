"""Damaged images below `kilnfs.fs`: nothing but an OSError comes out, and every walk ends."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec")

import kilnfs  # noqa: E402
from kilnfs.fs import ErofsFileSystem  # noqa: E402

PROJECT = Path(__file__).resolve().parents[3]
IMAGES = sorted((PROJECT / "crates" / "read" / "tests" / "golden").glob("*.erofs"))
CORPUS = sorted((PROJECT / "fuzz" / "corpus" / "image").glob("*"))


def everything(fs: ErofsFileSystem) -> Iterator[Callable[[], object]]:
    """Calls of all kinds."""
    yield lambda: list(itertools.islice(fs.walk(""), 1000))
    yield lambda: fs.glob("*/*")
    found: dict[str, dict[str, object]] = {}
    try:
        found = fs.find("", withdirs=True, detail=True)
    except OSError:
        names = itertools.islice(fs.walk(""), 3)
        try:
            found = {f"{top}/{name}": {} for top, dirs, files in names for name in (dirs + files)[:20]}
        except OSError:
            pass
    for info in itertools.islice(found.values(), 60):
        yield lambda info=info: info.get("size")  # type: ignore[misc]
        yield lambda info=info: dict(info)  # type: ignore[misc]
    paths = list(itertools.islice(found, 60))
    yield lambda: fs.cat_ranges(paths, 0, 10_000)
    for path in paths:
        yield lambda path=path: fs.info(path)  # type: ignore[misc]
        yield lambda path=path: fs.ls(path)[:100]  # type: ignore[misc]
        yield lambda path=path: (fs.exists(path), fs.isfile(path), fs.lexists(path))  # type: ignore[misc]
        yield lambda path=path: fs.cat_file(path, 5, 100_000)  # type: ignore[misc]
        yield lambda path=path: fs.open(path).read(100_000)  # type: ignore[misc]
        yield lambda path=path: (fs.ukey(path), fs.modified(path))  # type: ignore[misc]


def exercise(contents: bytes) -> int:
    """Ask an image for everything; how many errors there were."""
    try:
        fs = ErofsFileSystem(io.BytesIO(contents), verify_checksum=False, skip_instance_cache=True)
    except OSError:
        return 1
    errors = 0
    for call in everything(fs):
        try:
            call()
        except OSError:
            errors += 1
    return errors


def test_corpus() -> None:
    assert len(CORPUS) > 50
    assert sum(exercise(path.read_bytes()) for path in CORPUS) > 50


@pytest.mark.parametrize("image", IMAGES[::3], ids=lambda path: path.name)
def test_flipped_bytes(image: Path) -> None:
    whole = image.read_bytes()
    # Directories are not read, files are not listed: no more errors than these.
    assert exercise(whole) < 100
    rng = random.Random(image.name)
    for _ in range(6):
        damaged = bytearray(whole)
        for _ in range(4):
            # Metadata lie in front.
            damaged[rng.randrange(1024, min(len(damaged), 16384))] = rng.randrange(256)
        exercise(bytes(damaged))
    exercise(whole[: len(whole) // 2])


def test_too_many_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec_support import make_image
    from kilnfs import _fs_walk

    fs = ErofsFileSystem(make_image(tmp_path, {f"{i}/{j}": b"" for i in range(10) for j in range(100)}))
    assert len(fs.find("")) == 1000
    monkeypatch.setattr(_fs_walk, "_ROOM", (5000, 0))
    for walked in (lambda: fs.find(""), lambda: list(fs.walk("")), lambda: fs.glob("**")):
        with pytest.raises(kilnfs.CorruptImageError, match="more names than the image can hold"):
            walked()
