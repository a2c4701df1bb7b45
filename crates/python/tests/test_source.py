"""Sources below an image: file objects, the block cache, and fsspec."""

from __future__ import annotations

import errno
import gzip
import io
import os
import pickle
import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec_support import CountingFileSystem, in_child, noise, range_server  # noqa: E402
from kilnfs import _source  # noqa: E402
from kilnfs._block_cache import BLOCK_LEN  # noqa: E402
from kilnfs._fsspec_source import FsspecSource, Target  # noqa: E402
from kilnfs._source import FileObjectSource, is_url, open_url  # noqa: E402

DATA = noise(3_500_000)


def joined(answers: Any) -> list[bytes]:
    return [bytes(answer) for answer in answers]


# file objects


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize("buffering", [0, -1])
def test_plain_file_is_not_seeked(file: Path, buffering: int) -> None:
    with open(file, "rb", buffering=buffering) as fileobj:
        fileobj.seek(17)
        source = FileObjectSource(fileobj)
        assert source.length() == len(DATA)
        source.will_need(0, 1000)
        assert joined(source.read_ranges([(5, 10), (0, 0), (3_000_000, 500_000)])) == [
            DATA[5:15],
            b"",
            DATA[3_000_000:],
        ]
        assert fileobj.tell() == 17
    # It has a descriptor of its own.
    assert source.read_ranges([(1, 2)]) == [DATA[1:3]]
    assert source.name == str(file)


def test_named_temporary_file_is_plain() -> None:
    with tempfile.NamedTemporaryFile() as fileobj:
        fileobj.write(DATA)
        source = FileObjectSource(fileobj)
        assert source.length() == len(DATA)
        assert source._fd is not None
        assert source.read_ranges([(9, 4)]) == [DATA[9:13]]


def test_descriptor_is_closed(file: Path) -> None:
    with open(file, "rb") as fileobj:
        source = FileObjectSource(fileobj)
    fd = source._fd
    assert fd is not None
    os.fstat(fd)
    del source
    with pytest.raises(OSError):
        os.fstat(fd)


def test_compressed_file_is_read_through_its_object(tmp_path: Path) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(DATA))
    with gzip.open(path) as fileobj:
        source = FileObjectSource(fileobj)
        assert source.length() == len(DATA)
        assert source.read_ranges([(70_000, 5), (3, 4)]) == [DATA[70_000:70_005], DATA[3:7]]


def test_seekable_object_in_threads() -> None:
    class Slow(io.RawIOBase):
        """Gives at most 7,777 bytes, and lets other threads run between seek and read."""

        def __init__(self) -> None:
            self.position = 0

        def readable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            self.position = offset if whence == 0 else len(DATA) + offset
            return self.position

        def tell(self) -> int:
            return self.position

        def read(self, size: int = -1) -> bytes:
            at = self.position
            threading.Event().wait(0.0001)
            data = DATA[at : at + min(size, 7777)]
            self.position = at + len(data)
            return data

    source = FileObjectSource(Slow())
    wrong: list[int] = []

    def reads(seed: int) -> None:
        places = random.Random(seed)
        for _ in range(5):
            start = places.randrange(len(DATA) - 40)
            if source.read_ranges([(start, 40)]) != [DATA[start : start + 40]]:
                wrong.append(start)

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_survives_a_fork_and_other_objects_refuse() -> None:
    memory = FileObjectSource(io.BytesIO(DATA))
    assert in_child(lambda: memory.read_ranges([(3, 4)])) == repr([DATA[3:7]]).encode()
    with tempfile.SpooledTemporaryFile() as spooled:
        spooled.write(DATA)
        other = FileObjectSource(spooled)
        assert other.read_ranges([(3, 4)]) == [DATA[3:7]]
        answer = in_child(lambda: other.read_ranges([(3, 4)]))
    assert b"belongs to process" in answer and b"bytes 3..7" in answer


def test_truncated_file_is_an_error_with_range_and_name(file: Path) -> None:
    with open(file, "rb") as fileobj:
        source = FileObjectSource(fileobj)
    os.truncate(file, 1000)
    with pytest.raises(OSError, match=r"bytes 900\.\.1100: the file ends after 100 of 200 bytes") as caught:
        source.read_ranges([(900, 200)])
    assert caught.value.errno == errno.EIO and caught.value.filename == str(file)


def test_refused_file_objects(file: Path) -> None:
    with open(file) as text, pytest.raises(TypeError, match="binary mode"):
        FileObjectSource(text)
    with open(file, "ab") as writing, pytest.raises(io.UnsupportedOperation, match="not open for reading"):
        FileObjectSource(writing)
    reading, written = os.pipe()
    os.close(written)
    with open(reading, "rb") as pipe, pytest.raises(OSError, match="its length"):
        FileObjectSource(pipe)
    with pytest.raises(TypeError, match="by its path or URL"):
        pickle.dumps(FileObjectSource(io.BytesIO(b"x")))


def test_what_is_a_url() -> None:
    assert open_url("file:///data/a b.erofs") == b"/data/a b.erofs"
    assert [is_url(text) for text in ("s3://a", "simplecache::s3://a", "x", "1://x", "a::b", "://")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


# fsspec


@pytest.fixture
def counting() -> Iterator[type[CountingFileSystem]]:
    CountingFileSystem.reset()
    CountingFileSystem().pipe("/x", DATA)
    yield CountingFileSystem
    CountingFileSystem.reset()


def test_one_call_for_each_read(counting: type[CountingFileSystem]) -> None:
    source = open_url("counting://x")
    assert isinstance(source, FsspecSource)
    assert source.length() == len(DATA)
    assert not counting.calls
    assert joined(source.read_ranges([(0, 10), (3_400_000, 10)])) == [DATA[:10], DATA[3_400_000:3_400_010]]
    first = 3_400_000 // BLOCK_LEN * BLOCK_LEN
    assert counting.calls == [[(0, BLOCK_LEN), (first, first + BLOCK_LEN)]]
    source.read_ranges([(100, 10)])
    assert len(counting.calls) == 1


def test_pickle_is_url_and_options_and_checks_the_version(counting: type[CountingFileSystem]) -> None:
    source = open_url("counting://x")
    assert isinstance(source, FsspecSource)
    source.read_ranges([(0, 10)])
    stored = pickle.dumps(source)
    assert len(stored) < 500
    assert joined(pickle.loads(stored).read_ranges([(5, 5)])) == [DATA[5:10]]
    counting().pipe("/x", DATA[:-1])
    with pytest.raises(OSError, match="has changed since it was opened") as caught:
        pickle.loads(stored).length()
    assert caught.value.errno == errno.ESTALE and caught.value.filename == "counting://x"


def test_forked_child_has_a_filesystem_of_its_own(counting: type[CountingFileSystem]) -> None:
    source = open_url("counting://x")
    assert isinstance(source, FsspecSource)
    source.read_ranges([(0, 10)])
    parent = os.getpid()

    def work() -> tuple[bool, bool]:
        right = joined(source.read_ranges([(7, 3)])) == [DATA[7:10]]
        return right, counting.opened[-1] == os.getpid() != parent

    assert in_child(work) == b"(True, True)"


def test_child_that_is_forked_during_a_read(counting: type[CountingFileSystem]) -> None:
    """A thread of the parent holds all locks; the child does not wait for it."""
    source = open_url("counting://x")
    assert isinstance(source, FsspecSource)
    entered, leave = threading.Event(), threading.Event()
    parent = os.getpid()

    def hold(start: int, end: int, data: Any) -> Any:
        if os.getpid() == parent:
            entered.set()
            assert leave.wait(60)
        return data

    counting.tamper = hold
    thread = threading.Thread(target=lambda: source.read_ranges([(0, 10)]))
    thread.start()
    assert entered.wait(60)
    try:
        assert in_child(lambda: joined(source.read_ranges([(0, 10)])) == [DATA[:10]]) == b"True"
    finally:
        leave.set()
        thread.join()


def lost(start: int, end: int, data: Any) -> Any:
    return ConnectionResetError("lost")


def short(start: int, end: int, data: Any) -> Any:
    return data[:-3]


def whole(start: int, end: int, data: Any) -> Any:
    return DATA


def text(start: int, end: int, data: Any) -> Any:
    return "text"


def gone(start: int, end: int, data: Any) -> Any:
    return FileNotFoundError("x")


@pytest.mark.parametrize(
    ("tamper", "number", "message"),
    [
        (lost, errno.EIO, "ConnectionResetError: lost"),
        (short, errno.EIO, "returned 131069 bytes, not 131072; it is shorter than when it was opened"),
        (whole, errno.EIO, "a server that ignores ranges can be read through simplecache::"),
        (text, errno.EIO, "returned str, not bytes"),
        (gone, errno.ESTALE, "FileNotFoundError: x"),
    ],
)
def test_what_a_target_does_wrong_names_url_and_range(
    counting: type[CountingFileSystem], tamper: Any, number: int, message: str
) -> None:
    source = open_url("counting://x")
    assert isinstance(source, FsspecSource)
    counting.tamper = tamper
    with pytest.raises(OSError) as caught:
        source.read_ranges([(1 << 20, 5)])
    assert caught.value.errno == number
    assert caught.value.filename == "counting://x"
    assert "bytes 1048576..1179648: " in str(caught.value) and message in str(caught.value)
    counting.tamper = None
    assert joined(source.read_ranges([(1 << 20, 5)])) == [DATA[1 << 20 : (1 << 20) + 5]]


def test_a_target_that_raises_from_the_call(
    counting: type[CountingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_url("counting://x")
    assert isinstance(source, FsspecSource)

    def cat_ranges(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no session")

    monkeypatch.setattr(counting, "cat_ranges", cat_ranges)
    with pytest.raises(OSError, match=r"bytes 0\.\.131072: RuntimeError: no session: 'counting://x'"):
        source.read_ranges([(0, 5)])


def test_missing_target_directory_and_unknown_protocol(counting: type[CountingFileSystem]) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        open_url("counting://nope")
    assert missing.value.filename == "counting://nope"
    counting().mkdir("/d")
    with pytest.raises(IsADirectoryError):
        open_url("counting://d")
    with pytest.raises(ValueError, match="nowhere"):
        open_url("nowhere://x")


def test_passwords_are_not_shown() -> None:
    assert Target(None, "https://user:secret@host/x?a=b@c", {}).name == "https://***@host/x?a=***"
    assert Target("s3", "bucket/x", {}).name == "s3://bucket/x"


def test_options_reach_the_filesystem_in_a_chain(counting: type[CountingFileSystem], tmp_path: Path) -> None:
    source = open_url("simplecache::counting://x", simplecache={"cache_storage": str(tmp_path / "cache")})
    assert isinstance(source, FsspecSource)
    assert joined(source.read_ranges([(5, 5)])) == [DATA[5:10]]
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert joined(pickle.loads(pickle.dumps(source)).read_ranges([(5, 5)])) == [DATA[5:10]]


def test_web_server(tmp_path: Path) -> None:
    with range_server() as server:
        server.files["/x"] = DATA
        url = f"http://127.0.0.1:{server.server_port}/x"
        source = open_url(url)
        assert isinstance(source, FsspecSource)
        assert source.identity == (len(DATA), 'ETag "/x-1"')
        server.requests.clear()
        assert joined(source.read_ranges([(5, 5), (3_450_000, 7)])) == [DATA[5:10], DATA[3_450_000:3_450_007]]
        assert sorted(ranges or "" for _, _, ranges in server.requests) == [
            "bytes=0-131071",
            f"bytes=3407872-{len(DATA) - 1}",
        ]
        assert in_child(lambda: joined(source.read_ranges([(9, 3)])) == [DATA[9:12]]) == b"True"
        server.version = 2
        assert b"has changed since it was opened" in in_child(lambda: source.read_ranges([(9, 3)]))
        server.knows_ranges = False
        other = open_url(url)
        assert isinstance(other, FsspecSource)
        with pytest.raises(OSError, match="ignores ranges") as caught:
            other.read_ranges([(5, 5)])
        assert caught.value.filename == url
        server.files.clear()
        with pytest.raises(FileNotFoundError):
            open_url(url)


def test_doctests() -> None:
    import doctest

    assert doctest.testmod(_source).failed == 0
