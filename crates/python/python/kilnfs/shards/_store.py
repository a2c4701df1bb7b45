"""Where shards lie: a directory, or a place that fsspec knows, as `s3://bucket/prefix`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from .._errors import target_error
from .._retry import RETRIES, retried
from .._urls import Redaction, redact

if TYPE_CHECKING:
    from collections.abc import Iterator


class Store(Protocol):
    """Objects below a directory. Names are relative, with slashes."""

    url: str

    def read(self, name: str, limit: int) -> bytes:
        """An object. FileNotFoundError where there is none, ValueError where it has more than `limit` bytes."""

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes of an object."""

    def size(self, name: str) -> int | None:
        """The length of an object; None: there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Make or replace an object in one step."""

    def put(self, path: str, name: str) -> None:
        """Move a file of this system there: the object appears in one step."""

    def path(self, name: str) -> str | None:
        """The object's path on this system, if it has one."""

    def prepare(self) -> None:
        """Make the directory."""


def is_remote(url: str) -> bool:
    """Whether fsspec is needed."""
    return "://" in url and not url.startswith("file://")


def store_of(url: str, storage_options: dict[str, Any] | None = None) -> Store:
    """The store at a path or URL. The options are for fsspec."""
    if is_remote(url):
        return RemoteStore(url, storage_options or {})
    return LocalStore(url.removeprefix("file://"))


class LocalStore:
    """A directory."""

    def __init__(self, directory: str) -> None:
        self.url = os.path.abspath(directory)

    def read(self, name: str, limit: int) -> bytes:
        with open(self.path(name), "rb") as file:
            data = file.read(limit + 1)
        return _limited(data, limit, self.path(name))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with open(self.path(name), "rb") as file:
            return os.pread(file.fileno(), length, start)

    def size(self, name: str) -> int | None:
        try:
            return os.stat(self.path(name)).st_size
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        import tempfile

        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".kilnfs-", dir=os.path.dirname(path))
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    def put(self, path: str, name: str) -> None:
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        os.replace(path, self.path(name))

    def path(self, name: str) -> str:
        return os.path.join(self.url, name)

    def prepare(self) -> None:
        os.makedirs(self.url, exist_ok=True)


class RemoteStore:
    """A place that fsspec knows. An object appears under its name by one upload, or by moving one that is
    complete.
    """

    def __init__(self, url: str, storage_options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self._fs, self._root = filesystem(self.url, **storage_options)

    def read(self, name: str, limit: int) -> bytes:
        url = f"{self.url}/{name}"
        try:
            data: bytes = retried(lambda: self._fs.cat_file(self._key(name), end=limit + 1), RETRIES)
        except Exception as error:
            hidden = Redaction(url)
            raise target_error(error, redact(url), "reading", opening=True, redaction=hidden) from hidden.cause(error)
        return _limited(data, limit, redact(url))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        data: bytes = self._fs.cat_file(self._key(name), start=start, end=start + length)
        return data

    def size(self, name: str) -> int | None:
        # What others have put there since this process listed it.
        self._fs.invalidate_cache()
        try:
            return int(self._fs.info(self._key(name))["size"])
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(self._key(name), data)

    def put(self, path: str, name: str) -> None:
        from uuid import uuid4

        # Another attempt at the same object has a name of its own.
        temporary = f"{self._key(name)}.{uuid4().hex}.part"
        try:
            self._fs.put_file(path, temporary)
            self._fs.mv(temporary, self._key(name))
        except BaseException:
            if self._fs.exists(temporary):
                self._fs.rm_file(temporary)
            raise
        os.unlink(path)

    def path(self, name: str) -> None:
        return None

    def prepare(self) -> None:
        self._fs.makedirs(self._root, exist_ok=True)

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}"


def filesystem(url: str, **storage_options: Any) -> tuple[Any, str]:
    """The fsspec filesystem of a URL, and the path there. What the options do not say comes from fsspec's own
    configuration.
    """
    try:
        import fsspec  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(f"{redact(url)}: places other than directories need fsspec: pip install fsspec") from None
    fs, root = fsspec.core.url_to_fs(url, **storage_options)
    return fs, str(root).rstrip("/")


def remote_files(url: str) -> Iterator[tuple[bytes, int]]:
    """All objects below a URL: path from there, and length. In no order."""
    fs, root = filesystem(url)
    for key, info in fs.find(root, detail=True).items():
        name = str(key)[len(root) :].lstrip("/")
        # An object called as the prefix itself, or a mark of a directory.
        if name and not name.endswith("/"):
            yield name.encode("utf-8", "surrogateescape"), int(info.get("size") or 0)


def _limited(data: bytes, limit: int, name: str) -> bytes:
    if len(data) > limit:
        raise ValueError(f"{name}: more than {limit} bytes")
    return data
