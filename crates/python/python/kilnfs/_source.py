"""Where the bytes of an image come from, if not from a local path: file objects, and all that fsspec reads.

A source has the methods of `_native.Source`. No source starts a thread.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

from ._block_cache import BlockCache
from ._errors import target_error
from ._retry import RETRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._fsspec_source import FsspecSource

_PREAD_MAX = 1 << 30
"""Most bytes of one `os.pread`; the system reads at most 2 GiB at once."""


class FileObjectSource:
    """An image in a file object: one from `open`, an `io.BytesIO`, or any object with `seek` and `read`.

    Plain files from `open` (also within `tempfile.NamedTemporaryFile`) are read with `os.pread` of a descriptor of
    their own, in parallel: their position does not move, and they may be closed. Other objects are read with `seek` and
    `read` under a lock, by blocks of 128 KiB of which 64 MiB are kept, so their position moves, and in the process that made the source only: a forked child may share
    the position of a descriptor below with its parent.

    >>> FileObjectSource(io.BytesIO(b"0123456789")).read_ranges([(2, 3), (8, 2)])
    [b'234', b'89']
    """

    def __init__(self, fileobj: Any) -> None:
        if isinstance(fileobj, io.TextIOBase):
            raise TypeError(f"a file object opened in binary mode is needed, not {fileobj!r}")
        readable = getattr(fileobj, "readable", None)
        if callable(readable) and not readable():
            raise io.UnsupportedOperation(f"{fileobj!r} is not open for reading")
        name = getattr(fileobj, "name", None)
        self.name: str = os.fsdecode(name) if isinstance(name, (str, bytes)) else f"<{type(fileobj).__name__}>"
        self._fd = _plain_descriptor(fileobj)
        self._reader: _PreadReader | _SeekReader
        self._reader = _SeekReader(fileobj) if self._fd is None else _PreadReader(self._fd)
        try:
            self._length = self._reader.length()
        except Exception as error:
            raise target_error(error, self.name, "its length", opening=True) from error
        # The system caches what descriptors give, and memory needs no cache; how slow another object is, is not known.
        self._cache: BlockCache | None = None
        self._pid = os.getpid()
        if self._fd is None and type(fileobj) is not io.BytesIO:
            self._cache = BlockCache(self._read_each, self._length)

    def __del__(self) -> None:
        # The constructor may have failed before there was a descriptor.
        fd = getattr(self, "_fd", None)
        if fd is not None:
            self._fd = None
            os.close(fd)

    def length(self) -> int:
        """Bytes of the image."""
        return self._length

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """The bytes of each range (first byte, length). Errors name the range and the file."""
        if self._cache is None or os.getpid() != self._pid:
            # A forked child does not touch the cache, whose lock a thread of the parent may have held; the reader refuses.
            return self._read_each(ranges)
        return self._cache.read(ranges)

    @property
    def cache_length(self) -> int | None:
        """Bytes that are kept of what was read; None where the system does that."""
        return None if self._cache is None else self._cache.capacity

    def _read_each(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        out = []
        for start, length in ranges:
            try:
                out.append(self._reader.read(start, length))
            except (TypeError, MemoryError):
                raise
            except Exception as error:
                raise target_error(error, self.name, f"bytes {start}..{start + length}") from error
        return out

    def will_need(self, start: int, length: int) -> None:
        """Ask the system to read these bytes of a plain file ahead; of other objects they come with the next read."""
        if self._cache is not None:
            if os.getpid() == self._pid:
                self._cache.announce(start, length)
        elif self._fd is not None and length > 0 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, start, length, os.POSIX_FADV_WILLNEED)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an image that was opened from a file object cannot be pickled; open it by its path or URL")


class _PreadReader:
    """Reads a descriptor without moving its position."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def length(self) -> int:
        found = os.fstat(self._fd)
        if stat.S_ISREG(found.st_mode):
            return found.st_size
        # A description of its own: the end of a block device is found by seeking.
        own = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.lseek(own, 0, os.SEEK_END)
        finally:
            os.close(own)

    def read(self, start: int, length: int) -> bytes:
        data = os.pread(self._fd, min(length, _PREAD_MAX), start)
        if len(data) == length:
            return data
        parts, read = [data], len(data)
        while read < length:
            data = os.pread(self._fd, min(length - read, _PREAD_MAX), start + read)
            if not data:
                raise OSError(errno.EIO, f"the file ends after {read} of {length} bytes")
            parts.append(data)
            read += len(data)
        return b"".join(parts)


class _SeekReader:
    """Reads an object by `seek` and `read`, one thread at a time."""

    def __init__(self, fileobj: Any) -> None:
        self._file = fileobj
        # Memory is nobody else's after a fork; what lies below another object is not known.
        self._pid = None if type(fileobj) is io.BytesIO else os.getpid()
        # Not held by a thread of the parent when a child is forked, as BytesIO is read without it.
        self._lock = Lock()

    def length(self) -> int:
        if self._pid is None:
            return self._memory().nbytes
        with self._lock:
            self._file.seek(0, os.SEEK_END)
            end = self._file.tell()
        if not isinstance(end, int):
            raise TypeError(f"tell() of {self._file!r} gave {type(end).__name__}, not int")
        return end

    def _memory(self) -> memoryview:
        assert isinstance(self._file, io.BytesIO)
        return self._file.getbuffer()

    def read(self, start: int, length: int) -> bytes:
        if self._pid is None:
            data = bytes(self._memory()[start : start + length])
            if len(data) < length:
                raise OSError(errno.EIO, f"the file ends after {len(data)} of {length} bytes")
            return data
        if self._pid != os.getpid():
            raise OSError(
                errno.EBADF,
                f"the file object belongs to process {self._pid}; open the image by its path or URL instead",
            )
        with self._lock:
            self._file.seek(start)
            parts, read = [], 0
            while read < length:
                data = self._file.read(length - read)
                if not isinstance(data, (bytes, bytearray, memoryview)):
                    raise TypeError(f"read() of {self._file!r} gave {type(data).__name__}, not bytes")
                if not data:
                    raise OSError(errno.EIO, f"the file ends after {read} of {length} bytes")
                if len(data) > length - read:
                    raise OSError(errno.EIO, f"read({length - read}) gave {len(data)} bytes")
                parts.append(data)
                read += len(data)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def _plain_descriptor(fileobj: Any) -> int | None:
    """A duplicate of the descriptor of a file that `open` gave, if its bytes are those of the descriptor.

    Only these types are sure: `fileno()` of a `gzip.GzipFile`, for one, is that of the compressed file.
    """
    if type(fileobj).__name__ == "_TemporaryFileWrapper":
        fileobj = getattr(fileobj, "file", fileobj)
    raw = fileobj.raw if type(fileobj) in (io.BufferedReader, io.BufferedRandom) else fileobj
    if type(raw) is not io.FileIO:
        return None
    fileobj.flush()
    mode = os.fstat(raw.fileno()).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        return None
    return os.dup(raw.fileno())


def is_url(path: str) -> bool:
    """Whether `kilnfs.open` takes this for a URL, and not for a local path.

    >>> [is_url(path) for path in ("s3://bucket/x.erofs", "simplecache::https://host/x.erofs", "a/b.erofs", "/a::b")]
    [True, True, False, False]
    """
    scheme, separator, _ = path.partition("://")
    return bool(separator) and all(part.isascii() and part[:1].isalpha() for part in scheme.split("::"))


def open_url(url: str, *, retries: int = RETRIES, **storage_options: Any) -> bytes | FsspecSource:
    """What a URL names, as the first argument of `_native.Image`: the path of a local file, or a source that reads by
    fsspec.

    All protocols of fsspec are known (`https`, `s3`, `gs`, `memory`, `file`, …), and chains of them
    (`simplecache::https://host/x.erofs`). `storage_options` go to fsspec's filesystem; for a chain those of each
    protocol stand below its name (`s3={"anon": True}`).

    >>> open_url("file:///data/x.erofs")
    b'/data/x.erofs'
    """
    from ._fsspec_source import Target

    return Target(None, url, storage_options, retries).open()
