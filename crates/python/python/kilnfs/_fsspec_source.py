"""Source that reads an image through fsspec: from object stores, web servers, other archives,
memory."""

from __future__ import annotations

import errno
import os
import time
from contextlib import nullcontext
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ._block_cache import BLOCK_LEN, BLOCKS, BlockCache
from ._errors import target_error
from ._pinned import ConditionRefused, OtherVersion, ranges_of
from ._retry import RETRIES, may_pass, pauses, retried, status_of, wait
from ._store_options import refuse_unknown
from ._urls import Redaction, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

_VERSION_KEYS: Final = (
    *("ETag", "etag", "e_tag", "Content-MD5", "content_md5", "md5Hash", "generation"),
    *("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "modified"),
)
"""Keys of a file's version in `info` of fsspec's filesystems, the most reliable first."""
CHECK_LEN: Final = 64 << 20
"""Number of bytes after which the version is checked again, if the store does not name it in each
answer."""
CHECK_SECONDS: Final = 60.0
"""Number of seconds after which the version is checked again."""
_PROBE_LEN: Final = 4096
"""Number of bytes that are compared if a store has no versions."""


class Target:
    """Location of a file: URL (or protocol and path) and options. A pickle contains nothing
    else."""

    def __init__(
        self, protocol: str | None, path: str, options: Mapping[str, Any] | None, retries: int = RETRIES
    ) -> None:
        if retries < 0:
            raise ValueError(f"retries is {retries}, but must be 0 or more")
        self.protocol = protocol
        self.path = path
        self.options: dict[str, Any] = dict(options or {})
        self.retries = retries

    @property
    def name(self) -> str:
        """URL for errors, without passwords and signatures: two URLs may have one name."""
        return redact(self._url)

    @property
    def redaction(self) -> Redaction:
        """Redaction of this URL's secrets in texts."""
        return Redaction(self._url)

    @property
    def _url(self) -> str:
        return self.path if self.protocol is None or "://" in self.path else f"{self.protocol}://{self.path}"

    def connect(self) -> tuple[Any, str]:
        """Returns the filesystem of fsspec in this process, and the path in it."""
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as error:
            raise ImportError(f"{self.name}: URLs need fsspec (pip install fsspec)") from error
        if self.protocol is None:
            fs, path = fsspec.core.url_to_fs(self.path, **self.options)
        else:
            fs = fsspec.filesystem(self.protocol, **self.options)
            path = fs._strip_protocol(self.path)
        refuse_unknown(fs, self.name)
        return fs, path

    def open(self) -> bytes | FsspecSource:
        """Returns the path of a local file, which the native module reads best, or else a
        source."""
        fs, path = self.connect()
        local: Any = import_module("fsspec.implementations.local")
        return os.fsencode(path) if type(fs) is local.LocalFileSystem else FsspecSource(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, (self.protocol, self.path, self.options, self.retries)


class _Connection:
    """Filesystem and cache of one process."""

    def __init__(self, target: Target, block_len: int, block_count: int) -> None:
        self.name = target.name
        self._redaction = target.redaction
        self._retries = target.retries
        self.fs, self.path = target.connect()
        # Synchronous filesystems may not be thread-safe (FTP is not), so only one thread at a time
        # calls them.
        self._serial: AbstractContextManager[Any] = nullcontext() if getattr(self.fs, "async_impl", False) else Lock()
        info = self._info(opening=True)
        if info.get("type") == "directory":
            raise OSError(errno.EISDIR, "a directory, not an image", self.name)
        size = info.get("size")
        if not isinstance(size, int) or size < 0:
            raise OSError(errno.EOPNOTSUPP, f"the target has no length (size is {size!r})", self.name)
        self.identity = (size, self._version(info))
        self._ranges = ranges_of(self.fs, self.path, info)
        self._stale: str | None = None
        self._unchecked, self._checked_at = 0, time.monotonic()
        # The first bytes that were read: the superblock.
        self._probe: tuple[int, bytes] | None = None
        self.cache = BlockCache(self._fetch, size, block_len=block_len, block_count=block_count)

    def _info(self, *, opening: bool = False) -> Mapping[str, Any]:
        """Reads the current metadata of the file from the store."""
        try:
            return retried(self._info_now, self._retries)
        except Exception as error:
            raise self._error(error, "opening" if opening else "looking at it again", opening=opening) from self._cause(
                error
            )

    def _info_now(self) -> Mapping[str, Any]:
        with self._serial:
            # Cached listings may be outdated.
            below: Any = getattr(self.fs, "fs", None)
            if not type(self.fs).__module__.endswith(".cached"):
                self.fs.invalidate_cache(self.path)
            if hasattr(below, "invalidate_cache"):
                below.invalidate_cache()
            try:
                info: Mapping[str, Any] = self.fs.info(self.path)
            except FileNotFoundError as error:
                # fsspec replaces any answer of a web server by "not found".
                cause = error.__cause__
                is_of_http = type(cause).__module__.startswith("aiohttp")
                is_of_http = is_of_http or isinstance(cause, (ConnectionError, TimeoutError))
                if isinstance(cause, Exception) and is_of_http and status_of(cause) != 404:
                    raise cause from None
                raise
            return info

    def _version(self, info: Mapping[str, Any]) -> str | None:
        for key in _VERSION_KEYS:
            if info.get(key) is not None:
                return f"{key} {info[key]}"
        try:
            with self._serial:
                return f"modified {self.fs.modified(self.path)}"
        except Exception:  # of any type: this filesystem does not support it
            return None

    def _error(self, error: Exception, what: str, *, opening: bool = False) -> OSError:
        """Returns an error of the store as an error of reading."""
        return target_error(error, self.name, what, opening=opening, redaction=self._redaction)

    def _cause(self, error: Exception) -> BaseException | None:
        return self._redaction.cause(error)

    def _fetch(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Reads all ranges by one call. Errors name URL and range."""
        self.refuse_stale()
        answers, are_sure = self._ask(ranges)
        data = [self._checked(answer, *place) for answer, place in zip(answers, ranges, strict=True)]
        if self._probe is None and data:
            self._probe = (ranges[0][0], data[0][:_PROBE_LEN])
        if not are_sure:
            self._unchecked += sum(map(len, data))
            if self._unchecked >= CHECK_LEN or time.monotonic() - self._checked_at >= CHECK_SECONDS:
                self.check()
        return data

    def _ask(self, ranges: list[tuple[int, int]]) -> tuple[list[Any], bool]:
        """Returns bytes or an exception for each range, after further attempts for temporary
        errors; and true if all bytes are certain to be of this version."""
        answers: list[Any] = [None] * len(ranges)
        todo, are_sure = list(range(len(ranges))), True
        for pause in (*pauses(self._retries), None):
            got, is_sure = self._ask_once([ranges[place] for place in todo])
            are_sure = are_sure and is_sure
            for place, answer in zip(todo, got, strict=True):
                answers[place] = answer
            todo = [place for place in todo if isinstance(answers[place], Exception) and may_pass(answers[place])]
            if not todo or pause is None:
                break
            wait(pause, answers[todo[0]])
        return answers, are_sure

    def _ask_once(self, ranges: list[tuple[int, int]]) -> tuple[list[Any], bool]:
        try:
            with self._serial:
                answers, are_sure = self._ranges.read(ranges)
        except MemoryError:
            raise
        except Exception as error:
            return [error] * len(ranges), True
        if len(answers) != len(ranges):
            end = ranges[-1][0] + ranges[-1][1]
            self._refuse(f"the target returned {len(answers)} answers to {len(ranges)} ranges", ranges[0][0], end)
        others = [answer for answer in answers if isinstance(answer, OtherVersion)]
        if not others:
            return answers, are_sure
        self.check()
        if not all(isinstance(other, ConditionRefused) for other in others) or not self._ranges.unconditional():
            raise self._become_stale(f"the store says {self._redaction.text(str(others[0]))}")
        # The store has refused a condition that holds.
        return self._ask_once(ranges)

    def check(self) -> None:
        """Checks the version of the target again. If it has changed, this and all later calls raise
        `OSError` (ESTALE)."""
        self.refuse_stale()
        info = self._info()
        found = (info.get("size"), self._version(info))
        if found != self.identity:
            raise self._become_stale(f"{found[0]} bytes ({found[1]}) now")
        if self.identity[1] is None and self._probe is not None:
            start, known = self._probe
            answers, _ = self._ask([(start, len(known))])
            if bytes(self._checked(answers[0], start, len(known))) != known:
                raise self._become_stale("other bytes of the same length now")
        self._unchecked, self._checked_at = 0, time.monotonic()

    def _become_stale(self, now: str) -> OSError:
        length, version = self.identity
        unsure = ""
        if self._unchecked:
            unsure = (
                f"; of the {self._unchecked} bytes read in the last {time.monotonic() - self._checked_at:.0f} s, "
                "some may be of the new version"
            )
        self._stale = f"the target has changed since it was opened: {length} bytes ({version}) then, {now}{unsure}"
        return OSError(errno.ESTALE, self._stale, self.name)

    def refuse_stale(self) -> None:
        """Raises `OSError` (ESTALE) if the target was found to have changed."""
        if self._stale is not None:
            raise OSError(errno.ESTALE, self._stale, self.name)

    def _checked(self, answer: Any, start: int, length: int) -> bytes:
        if isinstance(answer, Exception):
            if status_of(answer) in (404, 416) or isinstance(answer, FileNotFoundError):
                self.check()
            raise self._error(answer, f"bytes {start}..{start + length}") from self._cause(answer)
        if not isinstance(answer, bytes):
            try:
                answer = bytes(memoryview(answer))
            except TypeError:
                self._refuse(f"the target returned {type(answer).__name__}, not bytes", start, start + length)
        if len(answer) != length:
            hint = ""
            if len(answer) > length:
                hint = "; a server that ignores ranges can be read through simplecache::"
            elif start + length <= self.identity[0]:
                self.check()
                hint = "; it is shorter than when it was opened"
            self._refuse(f"the target returned {len(answer)} bytes, not {length}{hint}", start, start + length)
        data: bytes = answer
        return data

    def _refuse(self, why: str, start: int, end: int) -> None:
        raise OSError(errno.EIO, f"bytes {start}..{end}: {why}", self.name)


class FsspecSource:
    """Source that reads an image through fsspec, cached in memory by blocks of 128 KiB, 64 MiB in
    total.

    * A call of `read_ranges` makes at most one call of `cat_ranges`, and waits for blocks that
      another thread is fetching.
    * A forked child, and a process that unpickles a source, make their own filesystem from URL and
      options, and compare length and ETag (or time of modification) with those at the first
      opening: `OSError` (ESTALE) if the target has changed.
    * The target must not change while it is read: see `_pinned`. If the store does not guarantee
      that, the source checks after 64 MiB or 60 s.
    * Temporary errors lead to `retries` further attempts.
    * `will_need` sends nothing: announced blocks, at most 24 MiB, are added to the next fetch, so
      that no thread outlives a call. """

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
        # By process id. Connections of a parent are kept but not used: to close their sessions
        # would need the parent's threads.
        self._connections: dict[int, _Connection] = {}
        if identity is None:
            self._identity = self._here().identity

    @property
    def name(self) -> str:
        """URL, without a password."""
        return self._target.name

    @property
    def target(self) -> Target:
        """Location of the image: URL and options."""
        return self._target

    @property
    def identity(self) -> tuple[int, str | None]:
        """Length in bytes, and the version (ETag, time of modification) if the filesystem has
        one."""
        assert self._identity is not None
        return self._identity

    @property
    def cache_length(self) -> int:
        """Capacity of the cache in bytes."""
        block_len, block_count = self._sizes
        return block_len * block_count

    def length(self) -> int:
        """Returns the length of the source in bytes."""
        return self._here().identity[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
        """Returns the bytes of each range (first byte, length). Errors are `OSError` and name URL
        and range."""
        here = self._here()
        here.refuse_stale()
        return here.cache.read(ranges)

    def will_need(self, start: int, length: int) -> None:
        """Announces a read: the bytes are added to the next fetch if they are few."""
        connection = self._connections.get(os.getpid())
        # A connection takes time and may fail, so only a read makes one.
        if connection is not None:
            connection.cache.announce(start, length)

    def _here(self) -> _Connection:
        """Returns the connection of this process, and makes it if there is none."""
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
        # All threads use the connection that was stored first.
        return self._connections.setdefault(pid, connection)

    def __reduce__(self) -> tuple[Any, ...]:
        return FsspecSource, (self._target, self._identity, *self._sizes)
