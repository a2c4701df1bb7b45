"""Storage of shards: a directory, or a location that fsspec supports, such as
`s3://bucket/prefix`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from .._errors import target_error
from .._retry import RETRIES, retried
from .._urls import Redaction, redact

if TYPE_CHECKING:
    from collections.abc import Iterator


class Store(Protocol):
    """Storage of objects below a directory. Names are relative, with slashes."""

    url: str

    def read(self, name: str, limit: int) -> bytes:
        """Reads an object. Raises FileNotFoundError if there is none, ValueError if it has more
        than `limit` bytes."""

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Reads at most `length` bytes of an object."""

    def size(self, name: str) -> int | None:
        """Returns the length of an object; None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Makes or replaces an object atomically."""

    def put(self, path: str, name: str) -> None:
        """Moves a file of this system to the store. The object appears atomically."""

    def path(self, name: str) -> str | None:
        """Returns the path of an object on this system, if it has one."""

    def prepare(self) -> None:
        """Makes the directory."""


def is_remote(url: str) -> bool:
    """Returns true for a URL that needs fsspec."""
    return "://" in url and not url.startswith("file://")


def store_of(url: str, storage_options: dict[str, Any] | None = None) -> Store:
    """Returns the store at a path or URL. The options are for fsspec."""
    if is_remote(url):
        return RemoteStore(url, storage_options or {})
    return LocalStore(url.removeprefix("file://"))


class LocalStore:
    """Storage in a directory."""

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
    """Storage through fsspec. An object appears under its name by one upload, or by moving a
    complete one."""

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
        # Other processes may have written since the listing was cached.
        self._fs.invalidate_cache()
        try:
            return int(self._fs.info(self._key(name))["size"])
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(self._key(name), data)

    def put(self, path: str, name: str) -> None:
        from uuid import uuid4

        # Concurrent attempts at the same object have different names.
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
    """Returns the fsspec filesystem of a URL, and the path there. Other options come from fsspec's
    configuration."""
    try:
        import fsspec  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(f"{redact(url)}: URLs need fsspec (pip install fsspec)") from None
    fs, root = fsspec.core.url_to_fs(url, **storage_options)
    return fs, str(root).rstrip("/")


def remote_files(url: str) -> Iterator[tuple[bytes, int]]:
    """Yields relative path and length of all objects below a URL, in no order."""
    fs, root = filesystem(url)
    for key, info in fs.find(root, detail=True).items():
        name = str(key)[len(root) :].lstrip("/")
        # Skips an object with the name of the prefix itself, and markers of directories.
        if name and not name.endswith("/"):
            yield name.encode("utf-8", "surrogateescape"), int(info.get("size") or 0)


def _limited(data: bytes, limit: int, name: str) -> bytes:
    if len(data) > limit:
        raise ValueError(f"{name}: more than {limit} bytes")
    return data
