"""An image that is read through fsspec: from object stores, web servers, other archives, memory."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ._block_cache import BLOCK_LEN, BLOCKS, BlockCache
from ._source import target_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION_KEYS: Final = (
    *("ETag", "etag", "e_tag", "Content-MD5", "content_md5", "md5Hash", "generation"),
    *("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "modified"),
)
"""What filesystems of fsspec call that which changes with the contents of a file, the surest first."""


class Target:
    """How a file is reached: URL (or protocol and path) and options. This is all that pickles carry."""

    def __init__(self, protocol: str | None, path: str, options: Mapping[str, Any] | None) -> None:
        self.protocol = protocol
        self.path = path
        self.options: dict[str, Any] = dict(options or {})

    @property
    def name(self) -> str:
        """The URL as errors show it, without a password."""
        path = self.path if self.protocol is None or "://" in self.path else f"{self.protocol}://{self.path}"
        scheme, separator, rest = path.rpartition("://")
        host, slash, tail = rest.partition("/")
        user, at, server = host.rpartition("@")
        if at and ":" in user:
            host = f"{user.partition(':')[0]}:***@{server}"
        return scheme + separator + host + slash + tail

    def connect(self) -> tuple[Any, str]:
        """The filesystem, as fsspec makes it in this process, and the path in it."""
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as error:
            raise ImportError(f"{self.name}: fsspec reads URLs; install it (pip install fsspec)") from error
        if self.protocol is None:
            found: tuple[Any, str] = fsspec.core.url_to_fs(self.path, **self.options)
            return found
        fs = fsspec.filesystem(self.protocol, **self.options)
        return fs, fs._strip_protocol(self.path)

    def open(self) -> bytes | FsspecSource:
        """The path, if it is a local file: nothing reads that better than the native module. Else a source."""
        fs, path = self.connect()
        local: Any = import_module("fsspec.implementations.local")
        return os.fsencode(path) if type(fs) is local.LocalFileSystem else FsspecSource(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, (self.protocol, self.path, self.options)


class _Connection:
    """The filesystem and the cache of one process."""

    def __init__(self, target: Target, block_len: int, block_count: int) -> None:
        self.name = target.name
        self.fs, self.path = target.connect()
        # Synchronous filesystems need not be safe for threads (FTP is not), so they are called by one at a time.
        self.serial: Lock | None = None if getattr(self.fs, "async_impl", False) else Lock()
        try:
            info = self.fs.info(self.path)
        except Exception as error:
            raise target_error(error, self.name, "opening", opening=True) from error
        if info.get("type") == "directory":
            raise OSError(errno.EISDIR, "a directory, not an image", self.name)
        size = info.get("size")
        if not isinstance(size, int) or size < 0:
            raise OSError(errno.EOPNOTSUPP, f"the target does not tell its length (size is {size!r})", self.name)
        self.identity = (size, self._version(info))
        self.cache = BlockCache(self._fetch, size, block_len=block_len, block_count=block_count)

    def _version(self, info: Mapping[str, Any]) -> str | None:
        for key in _VERSION_KEYS:
            if info.get(key) is not None:
                return f"{key} {info[key]}"
        try:
            return f"modified {self.fs.modified(self.path)}"
        except Exception:  # whatever it is: this filesystem does not know
            return None

    def _fetch(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """One `cat_ranges` of the target for all ranges. An error names URL and range."""
        starts, ends = [start for start, _ in ranges], [start + length for start, length in ranges]
        try:
            if self.serial is None:
                answers = self.fs.cat_ranges([self.path] * len(ranges), starts, ends, on_error="return")
            else:
                with self.serial:
                    answers = self.fs.cat_ranges([self.path] * len(ranges), starts, ends, on_error="return")
            answers = list(answers)
        except MemoryError:
            raise
        except Exception as error:
            what = ", ".join(f"{start}..{end}" for start, end in zip(starts[:3], ends, strict=False))
            more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
            raise target_error(error, self.name, f"bytes {what}{more}") from error
        if len(answers) != len(ranges):
            self._refuse(f"the target gave {len(answers)} answers to {len(ranges)} ranges", starts[0], ends[-1])
        return [self._checked(answer, *place) for answer, place in zip(answers, ranges, strict=True)]

    def _checked(self, answer: Any, start: int, length: int) -> bytes:
        if isinstance(answer, Exception):
            raise target_error(answer, self.name, f"bytes {start}..{start + length}") from answer
        if not isinstance(answer, bytes):
            try:
                answer = bytes(memoryview(answer))
            except TypeError:
                self._refuse(f"the target gave {type(answer).__name__}, not bytes", start, start + length)
        if len(answer) != length:
            hint = ""
            if len(answer) > length:
                hint = "; a server that ignores ranges can be read through simplecache::"
            elif start + length <= self.identity[0]:
                hint = "; it is shorter than when it was opened"
            self._refuse(f"the target gave {len(answer)} bytes, not {length}{hint}", start, start + length)
        data: bytes = answer
        return data

    def _refuse(self, why: str, start: int, end: int) -> None:
        raise OSError(errno.EIO, f"bytes {start}..{end}: {why}", self.name)


class FsspecSource:
    """An image that fsspec reads, cached in memory by blocks of 128 KiB, 64 MiB in all.

    * A call of `read_ranges` makes at most one call of `cat_ranges`; blocks that another thread is fetching are waited
      for.
    * After a fork the child makes a filesystem of its own from URL and options, as does the process that unpickles a
      source, and compares length and ETag (or time of modification) with those at the first opening: `OSError` (ESTALE)
      if the target is another file now.
    * `will_need` sends nothing: announced blocks, at most 24 MiB, ride along with the next fetch. So no thread outlives
      a call.
    """

    def __init__(
        self,
        target: Target,
        identity: tuple[int, str | None] | None = None,
        block_len: int = BLOCK_LEN,
        block_count: int = BLOCKS,
    ) -> None:
        self._target = target
        self._identity = identity
        self._sizes = (block_len, block_count)
        # By process id. What a parent made is kept, but not used: the end of its sessions would need the parent's
        # threads.
        self._connections: dict[int, _Connection] = {}
        if identity is None:
            self._identity = self._here().identity

    @property
    def name(self) -> str:
        """The URL, without a password."""
        return self._target.name

    @property
    def target(self) -> Target:
        """URL and options."""
        return self._target

    @property
    def identity(self) -> tuple[int, str | None]:
        """Length in bytes, and what changes with the contents (ETag, time of modification), where the filesystem
        tells."""
        assert self._identity is not None
        return self._identity

    @property
    def cache_length(self) -> int:
        """Bytes that are kept of what was fetched."""
        block_len, block_count = self._sizes
        return block_len * block_count

    def length(self) -> int:
        """Bytes of the image."""
        return self._here().identity[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
        """The bytes of each range (first byte, length). Errors are `OSError` and name URL and range."""
        return self._here().cache.read(ranges)

    def will_need(self, start: int, length: int) -> None:
        """These bytes will be read soon: they ride along with the next fetch, if they are few."""
        connection = self._connections.get(os.getpid())
        # To connect would take time, and may fail: that is for a read.
        if connection is not None:
            connection.cache.announce(start, length)

    def _here(self) -> _Connection:
        """The connection of this process."""
        pid = os.getpid()
        connection = self._connections.get(pid)
        if connection is not None:
            return connection
        connection = _Connection(self._target, *self._sizes)
        if self._identity is not None and connection.identity != self._identity:
            length, version = self._identity
            now_length, now = connection.identity
            raise OSError(
                errno.ESTALE,
                f"the target has changed since it was opened: {length} bytes ({version}) then, "
                f"{now_length} bytes ({now}) now",
                self.name,
            )
        for other in list(self._connections.values()):
            other.cache.forget()
        # Another thread may have been faster; all use the same.
        return self._connections.setdefault(pid, connection)

    def __reduce__(self) -> tuple[Any, ...]:
        return FsspecSource, (self._target, self._identity, *self._sizes)
