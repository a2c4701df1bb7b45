"""Where the images of `kilnfs.fs` come from, and who shares them: URLs, pickles, threads, forks, requests."""

from __future__ import annotations

import errno
import io
import os
import pickle
import random
import re
import shutil
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

import fsspec  # type: ignore[import-untyped]  # noqa: E402
from fsspec_support import CountingFileSystem, in_child, into_memory, make_image, noise, range_server  # noqa: E402
from fsspec_tree import FILES, fs_image  # noqa: E402, F401  # a fixture
from kilnfs import _fs_images  # noqa: E402
from kilnfs.fs import ErofsFileSystem  # noqa: E402

# Of the cache of remote images.
BLOCK_LEN = 128 << 10


def test_all_paths_with_a_chained_url(fs_image: str) -> None:
    with fsspec.open(f"erofs://a/x.txt::file://{fs_image}") as file:
        assert file.read() == b"0123456789"
    with fsspec.open(f"erofs://a/b/y.txt::{into_memory(fs_image, 'chained.erofs')}", "rt") as file:
        assert file.read(3) == "why"
    fs, path = fsspec.url_to_fs(f"erofs://a::file://{fs_image}")
    assert isinstance(fs, ErofsFileSystem) and path == "a" and fs.isdir(path)
    assert fsspec.open_files(f"erofs://a/**/*.txt::file://{fs_image}")[0].path == "a/b/y.txt"


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
def test_caches_above(fs_image: str, tmp_path: Path, cache: str) -> None:
    options = {cache: {"cache_storage": str(tmp_path)}}
    for _ in range(2):
        with fsspec.open(f"{cache}::erofs://big.bin::file://{fs_image}", **options) as file:
            assert file.read() == FILES["big.bin"]
        assert os.listdir(tmp_path)


def test_mapper(fs_image: str) -> None:
    mapper = fsspec.get_mapper(f"erofs://a::file://{fs_image}")
    assert dict(mapper) == {name.removeprefix("a/"): data for name, data in FILES.items() if name.startswith("a/")}
    assert mapper.getitems(["x.txt", "nope"], on_error="omit") == {"x.txt": FILES["a/x.txt"]}
    with pytest.raises(KeyError):
        mapper["nope"]
    with pytest.raises(OSError, match="Read-only"):
        mapper["new"] = b""


def test_an_image_in_an_image(fs_image: str, tmp_path: Path) -> None:
    outer = make_image(tmp_path, {"in/ner.erofs": Path(fs_image).read_bytes()}, "outer.erofs")
    with fsspec.open(f"erofs://a/x.txt::erofs://in/ner.erofs::file://{outer}") as file:
        assert file.read() == b"0123456789"


def test_file_objects(fs_image: str) -> None:
    with open(fs_image, "rb") as file:
        fs = ErofsFileSystem(file, skip_instance_cache=True)
        assert fs.cat_file("a/x.txt") == b"0123456789"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(fs)
    assert ErofsFileSystem(io.BytesIO(Path(fs_image).read_bytes()), skip_instance_cache=True).isfile("link")


def test_the_image_is_one_of_kilnfs(fs_image: str) -> None:
    import kilnfs

    fs = fsspec.filesystem("erofs", fo=into_memory(fs_image, "own.erofs"))
    assert isinstance(fs.image, kilnfs.Image)
    assert fs.image.read_text("a/x.txt") == "0123456789"
    again = pickle.loads(pickle.dumps(fs.image))
    assert again.read("link") == b"0123456789" and again.name == "memory://own.erofs"
    with kilnfs.open(into_memory(fs_image, "own.erofs")) as opened:
        assert opened.listdir("a") == ["b", "x.txt"]
        assert pickle.loads(pickle.dumps(opened)).read("a-b") == FILES["a-b"]


def test_which_image() -> None:
    with pytest.raises(ValueError, match="the image is missing"):
        ErofsFileSystem()
    with pytest.raises(FileNotFoundError):
        ErofsFileSystem("/nonexistent.erofs")


def test_pickle(fs_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = ErofsFileSystem(fs_image)
    again = pickle.loads(pickle.dumps(fs))
    assert again == fs and again.image is fs.image and again.cat_file("a-b") == FILES["a-b"]
    # A relative path is that of the process that pickled.
    monkeypatch.chdir(Path(fs_image).parent)
    stored = pickle.dumps(ErofsFileSystem("image.erofs"))
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(stored).isfile("a-b")
    changing = make_image(tmp_path, {"x": b"1"}, "changing.erofs")
    stored = pickle.dumps(ErofsFileSystem(changing))
    make_image(tmp_path, {"y": b"2"}, "other.erofs")
    os.replace(tmp_path / "other.erofs", changing)
    ErofsFileSystem.clear_instance_cache()
    with pytest.raises(OSError, match="has changed since it was pickled") as caught:
        pickle.loads(stored)
    assert caught.value.errno == errno.ESTALE


def test_threads_share_one_image(fs_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One that no other test has open.
    fs_image = str(shutil.copy(fs_image, tmp_path / "shared.erofs"))
    made: list[Any] = []
    constructor = _fs_images.FsImage

    def counted(*args: Any) -> Any:
        made.append(args)
        return constructor(*args)

    monkeypatch.setattr(_fs_images, "FsImage", counted)
    barrier = threading.Barrier(16)
    systems: list[ErofsFileSystem] = []
    wrong: list[object] = []

    def work() -> None:
        barrier.wait()
        fs = ErofsFileSystem(fs_image)
        systems.append(fs)
        for name, data in FILES.items():
            if fs.cat_file(name) != data:
                wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(made) == 1
    assert len({id(fs) for fs in systems}) == 16 and len({id(fs.image) for fs in systems}) == 1
    # The table holds no image by itself.
    import gc

    ErofsFileSystem.clear_instance_cache()
    systems.clear()
    gc.collect()
    ErofsFileSystem(fs_image)
    assert len(made) == 2


def test_a_new_version_is_another_image(tmp_path: Path) -> None:
    first = ErofsFileSystem(make_image(tmp_path, {"x": b"1"}))
    other = make_image(tmp_path, {"x": b"22"}, "other.erofs")
    os.replace(other, first.image.name)
    second = ErofsFileSystem(first.image.name, skip_instance_cache=True)
    assert (first.cat_file("x"), second.cat_file("x")) == (b"1", b"22")


@pytest.mark.parametrize("where", ["local", "memory"])
def test_forked_child(fs_image: str, where: str) -> None:
    fs = ErofsFileSystem(fs_image if where == "local" else into_memory(fs_image, "forked.erofs"))
    file = fs.open("big.bin")
    file.read(10)
    answer = in_child(lambda: (fs.cat_file("a-b"), file.read(5), fs.find("a")))
    assert answer == repr((FILES["a-b"], FILES["big.bin"][10:15], ["a/b/empty", "a/b/y.txt", "a/x.txt"])).encode()
    assert file.read(5) == FILES["big.bin"][10:15]


@pytest.fixture
def counting() -> Iterator[type[CountingFileSystem]]:
    CountingFileSystem.reset()
    # fsspec would give the filesystem of the test before.
    ErofsFileSystem.clear_instance_cache()
    yield CountingFileSystem
    CountingFileSystem.reset()


def test_a_hundred_files_are_few_requests(counting: type[CountingFileSystem], tmp_path: Path) -> None:
    files = {f"{i:03}": noise(2000 + i, i) for i in range(100)}
    counting().pipe("/x", Path(make_image(tmp_path, files)).read_bytes())
    fs = ErofsFileSystem("counting://x")
    opening = len(counting.calls)
    assert fs.cat_ranges(list(files), 0, None) == list(files.values())
    assert 1 <= len(counting.calls) <= 3 + opening and opening <= 3


def test_threads_fetch_each_block_once(tmp_path: Path) -> None:
    """16 threads read a remote image at random places: all bytes are right, and no block is asked for twice."""
    files = {f"{i:02}": noise(400_000, i) for i in range(20)}
    image = make_image(tmp_path, files, preset="plain")
    with range_server() as server:
        url = server.put(image, "/threads.erofs")
        wrong: list[str] = []

        def work(seed: int) -> None:
            fs = ErofsFileSystem(url)
            places = random.Random(seed)
            for _ in range(40):
                name = places.choice(sorted(files))
                start = places.randrange(400_000)
                if fs.cat_file(name, start, start + 50_000) != files[name][start : start + 50_000]:
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        fetched = [0] * (os.path.getsize(image) // BLOCK_LEN + 1)
        for command, _, ranges in server.requests:
            if command == "GET":
                assert ranges is not None
                first, _, last = ranges.removeprefix("bytes=").partition("-")
                for block in range(int(first) // BLOCK_LEN, int(last) // BLOCK_LEN + 1):
                    fetched[block] += 1
        assert max(fetched) == 1


def test_children_are_forked_while_threads_read(tmp_path: Path) -> None:
    files = {f"{i:02}": noise(400_000, i) for i in range(20)}
    image = make_image(tmp_path, files, preset="plain")
    with range_server() as server:
        fs = ErofsFileSystem(server.put(image, "/forks.erofs"), cache_bytes=0)
        stop = threading.Event()
        wrong: list[str] = []

        def work(seed: int) -> None:
            places = random.Random(seed)
            while not stop.is_set():
                name = places.choice(sorted(files))
                if fs.cat_file(name) != files[name]:
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                answer = in_child(
                    lambda: fs.cat_ranges(["03", "17"], 0, 1000) == [files["03"][:1000], files["17"][:1000]]
                )
                assert answer == b"True"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not wrong


def test_the_entry_point_names_the_class() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["fsspec.specs"]["erofs"].partition(":")
    from importlib import import_module

    assert getattr(import_module(module), name) is ErofsFileSystem
    assert name in ErofsFileSystem.__name__ and ErofsFileSystem.protocol == "erofs"


def told(error: BaseException) -> str:
    """An error with all that it says about its causes."""
    return "".join(traceback.format_exception(error))


def lost(start: int, end: int, data: Any) -> Any:
    return ConnectionResetError("lost")


def short(start: int, end: int, data: Any) -> Any:
    return data[:100]


def gone(start: int, end: int, data: Any) -> Any:
    return FileNotFoundError("x")


@pytest.mark.parametrize("tamper", [lost, short, gone])
def test_a_target_that_fails(counting: type[CountingFileSystem], tmp_path: Path, tamper: Any) -> None:
    """Every way to read tells URL and range, none takes it for a file that is not there, and all works again
    afterwards."""
    files = {f"{i}": noise(3_000_000, i) for i in range(3)}
    counting().pipe("/x", Path(make_image(tmp_path, files, preset="plain")).read_bytes())
    fs = ErofsFileSystem("counting://x", cache_bytes=0)
    assert fs.cat_file("0", 0, 10) == files["0"][:10]
    counting.tamper = tamper
    for read in (
        lambda: fs.cat_file("1"),
        lambda: fs.open("1").read(),
        lambda: fs.cat_ranges(["1", "2"], 0, None, on_error="raise"),
        lambda: fs.image.read("2"),
        lambda: fs.get_file("1", str(tmp_path / "copy")),
    ):
        with pytest.raises(OSError) as caught:
            read()
        assert not isinstance(caught.value, FileNotFoundError)
        assert re.search(r"bytes \d+\.\.\d+", told(caught.value)) and "counting://x" in told(caught.value)
    answers = fs.cat_ranges(["1", "2"], 0, None)
    assert all(isinstance(answer, OSError) and "counting://x" in told(answer) for answer in answers)
    assert not (tmp_path / "copy").exists()
    counting.tamper = None
    assert fs.cat_file("1") == files["1"]


def test_a_target_that_is_cut_short(counting: type[CountingFileSystem], tmp_path: Path) -> None:
    image = Path(make_image(tmp_path, {"a": noise(3_000_000)}, preset="plain")).read_bytes()
    counting().pipe("/x", image)
    fs = ErofsFileSystem("counting://x")
    counting().pipe("/x", image[: len(image) // 2])
    with pytest.raises(OSError) as caught:
        fs.cat_file("a")
    assert "has changed since it was opened" in told(caught.value) and "counting://x" in told(caught.value)
    assert b"has changed since it was opened" in in_child(lambda: fs.cat_file("a"))
    # An image that was cut before it is opened: refused, or read up to the cut.
    with pytest.raises(OSError):
        ErofsFileSystem("counting://x", skip_instance_cache=True).cat_file("a")


@pytest.mark.parametrize("data", [b"", b"x", bytes(4096), noise(100_000)])
def test_targets_that_are_no_images(counting: type[CountingFileSystem], data: bytes) -> None:
    counting().pipe("/x", data)
    with pytest.raises(OSError) as caught:
        ErofsFileSystem("counting://x")
    assert "counting://x" in told(caught.value)
