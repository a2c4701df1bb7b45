"""Sources of the bytes of an image other than local paths: file objects, and URLs that fsspec
reads.

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
"""Largest length in bytes of one `os.pread`; the system reads at most 2 GiB at once."""


class FileObjectSource:
    """Source that reads a file object: one from `open`, an `io.BytesIO`, or any object with `seek`
    and `read`.

    Plain files from `open` (also within `tempfile.NamedTemporaryFile`) are read with `os.pread` of
    a duplicated descriptor, in parallel: their position does not move, and they may be closed.
    Other objects are read with `seek` and `read` under a lock, by blocks of 128 KiB, of which 64
    MiB are cached. Their position moves, and only the process that made the source may read: a
    forked child may share the position of the underlying descriptor with its parent.

    >>> FileObjectSource(io.BytesIO(b"0123456789")).read_ranges([(2, 3), (8, 2)])
    [b'234', b'89']
    """

    def __init__(self, fileobj: Any) -> None:
        if isinstance(fileobj, io.TextIOBase):
            raise TypeError(f"{fileobj!r} must be opened in binary mode")
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
        # The system caches data of descriptors, and memory needs no cache; other objects may be
        # slow.
        self._cache: BlockCache | None = None
        self._pid = os.getpid()
        if self._fd is None and type(fileobj) is not io.BytesIO:
            self._cache = BlockCache(self._read_each, self._length)

    def __del__(self) -> None:
        # The constructor may have failed before the descriptor was made.
        fd = getattr(self, "_fd", None)
        if fd is not None:
            self._fd = None
            os.close(fd)

    def length(self) -> int:
        """Returns the length of the source in bytes."""
        return self._length

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """Returns the bytes of each range (first byte, length). Errors name the range and the
        file."""
        if self._cache is None or os.getpid() != self._pid:
            # A forked child must not use the cache, whose lock a thread of the parent may have
            # held. The reader raises.
            return self._read_each(ranges)
        return self._cache.read(ranges)

    @property
    def cache_length(self) -> int | None:
        """Capacity of the cache in bytes; None if the system caches."""
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
        """Announces a read: the system reads ahead in plain files, and of other objects the bytes
        come with the next read."""
        if self._cache is not None:
            if os.getpid() == self._pid:
                self._cache.announce(start, length)
        elif self._fd is not None and length > 0 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, start, length, os.POSIX_FADV_WILLNEED)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an image that was opened from a file object cannot be pickled; open it by its path or URL")


class _PreadReader:
    """Reader of a descriptor, which does not move its position."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def length(self) -> int:
        found = os.fstat(self._fd)
        if stat.S_ISREG(found.st_mode):
            return found.st_size
        # A separate file description, as the end of a block device is found by seeking.
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
    """Reader of an object by `seek` and `read`, for one thread at a time."""

    def __init__(self, fileobj: Any) -> None:
        self._file = fileobj
        # Memory is private after a fork; other objects may share a descriptor.
        self._pid = None if type(fileobj) is io.BytesIO else os.getpid()
        # BytesIO is read without the lock, so a forked child never waits for it.
        self._lock = Lock()

    def length(self) -> int:
        if self._pid is None:
            return self._memory().nbytes
        with self._lock:
            self._file.seek(0, os.SEEK_END)
            end = self._file.tell()
        if not isinstance(end, int):
            raise TypeError(f"tell() of {self._file!r} returned {type(end).__name__}, not int")
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
                    raise TypeError(f"read() of {self._file!r} returned {type(data).__name__}, not bytes")
                if not data:
                    raise OSError(errno.EIO, f"the file ends after {read} of {length} bytes")
                if len(data) > length - read:
                    raise OSError(errno.EIO, f"read({length - read}) returned {len(data)} bytes")
                parts.append(data)
                read += len(data)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def _plain_descriptor(fileobj: Any) -> int | None:
    """Duplicates the descriptor of a file from `open`; None if the bytes of the object may be
    others.

    Only a few types are certain: `fileno()` of a `gzip.GzipFile`, for example, is that of the
    compressed file. """
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
    """Returns true for a URL, false for a local path.

    >>> [is_url(path) for path in ("s3://bucket/x.erofs", "simplecache::https://host/x.erofs", "a/b.erofs", "/a::b")]
    [True, True, False, False]
    """
    scheme, separator, _ = path.partition("://")
    return bool(separator) and all(part.isascii() and part[:1].isalpha() for part in scheme.split("::"))


def open_url(url: str, *, retries: int = RETRIES, **storage_options: Any) -> bytes | FsspecSource:
    """Returns the first argument of `_native.Image` for a URL: the path of a local file, or a
    source that reads by fsspec.

    All protocols of fsspec are supported (`https`, `s3`, `gs`, `memory`, `file`, …), and chains of
    them (`simplecache::https://host/x.erofs`). `storage_options` are passed to the filesystem of
    fsspec; in a chain, those of each protocol are below its name (`s3={"anon": True}`).

    >>> open_url("file:///data/x.erofs")
    b'/data/x.erofs'
    """
    from ._fsspec_source import Target

    return Target(None, url, storage_options, retries).open()
