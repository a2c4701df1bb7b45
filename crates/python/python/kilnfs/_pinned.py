"""Ranges of one version of a remote file.

If a store supports it, each request names the version: by `If-Match` (HTTP), `IfMatch` (S3), the
generation (Google Cloud Storage), the version (Azure, if it keeps versions). `Ranges.read` returns
true with its answers if they are certain to be of that version; if not, the caller must check from
time to time. """

from __future__ import annotations

import asyncio
import errno
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ._retry import status_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_AT_ONCE: Final = 64
"""Largest number of concurrent requests."""


class OtherVersion(Exception):
    """Error of a file that has changed in the store."""


class ConditionRefused(OtherVersion):
    """Error of a request whose condition the store has refused, without further information."""


class Ranges:
    """Reader of ranges by `cat_ranges`, which all filesystems of fsspec have."""

    def __init__(self, fs: Any, path: str, info: Mapping[str, Any]) -> None:
        self.fs, self.path = fs, path
        self._more: dict[str, Any] = {}
        self._is_pinned = False
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        if protocols & {"gs", "gcs"} and info.get("generation") is not None:
            # Zonal buckets are read without a generation; only the older class never has any.
            self._more = {"generation": info["generation"]}
            self._is_pinned = type(fs).__module__ == "gcsfs.core"
        elif protocols & {"abfs", "az", "abfss"} and fs.version_aware and info.get("version_id") is not None:
            self.path, self._is_pinned = f"{path.partition('?')[0]}?versionid={info['version_id']}", True
        elif type(fs).__name__ == "SimpleCacheFileSystem":
            # A local copy of the whole file, which is not replaced.
            self._is_pinned = True

    def read(self, ranges: Sequence[tuple[int, int]]) -> tuple[list[Any], bool]:
        """Returns the bytes of each range (first byte, length), or an exception; and true if they
        are certain to be of this version."""
        starts, ends = [start for start, _ in ranges], [start + length for start, length in ranges]
        answers = self.fs.cat_ranges([self.path] * len(ranges), starts, ends, on_error="return", **self._more)
        return list(answers), self._is_pinned

    def unconditional(self) -> bool:
        """Drops the condition of later requests, after the store has refused one that holds.
        Returns false if there was none."""
        return False


class _Requests(Ranges):
    """Reader of ranges by own requests, over the connections of the filesystem."""

    def __init__(self, fs: Any, path: str, info: Mapping[str, Any]) -> None:
        super().__init__(fs, path, info)
        self._size: int = info["size"]
        self._is_conditional = True

    def read(self, ranges: Sequence[tuple[int, int]]) -> tuple[list[Any], bool]:
        sync = import_module("fsspec.asyn").sync
        answers: list[Any] = sync(self.fs.loop, self._read, ranges)
        pairs = [answer if isinstance(answer, tuple) else (answer, True) for answer in answers]
        return [data for data, _ in pairs], all(is_sure for _, is_sure in pairs)

    def unconditional(self) -> bool:
        was, self._is_conditional = self._is_conditional, False
        return was

    async def _read(self, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(start: int, length: int) -> tuple[bytes, bool]:
            if length == 0:
                return b"", True
            async with turns:
                return await self._request(start, length)

        return await asyncio.gather(*(one(*each) for each in ranges), return_exceptions=True)

    async def _request(self, start: int, length: int) -> tuple[bytes, bool]:
        raise NotImplementedError


class HttpRanges(_Requests):
    """Reader of ranges from a web server.

    Each request has `If-Match` if the ETag is a strong one, else `If-Unmodified-Since` if there is
    a time. Servers that ignore both name the version in the headers of each answer. A body that is
    not the range is not fetched. """

    def __init__(self, fs: Any, path: str, info: Mapping[str, Any]) -> None:
        super().__init__(fs, path, info)
        self._version = {name: info[name] for name in ("ETag", "Last-Modified") if info.get(name)}
        etag: str | None = info.get("ETag")
        self._condition: dict[str, str] = {}
        if etag is not None and not etag.startswith("W/"):
            self._condition = {"If-Match": etag}
        elif info.get("Last-Modified"):
            self._condition = {"If-Unmodified-Since": info["Last-Modified"]}

    async def _request(self, start: int, length: int) -> tuple[bytes, bool]:
        options = dict(self.fs.kwargs)
        headers = {
            # A compressed answer has another ETag, and a range of it is useless.
            "Accept-Encoding": "identity",
            **(options.pop("headers", None) or {}),
            "Range": f"bytes={start}-{start + length - 1}",
            **(self._condition if self._is_conditional else {}),
        }
        session = await self.fs.set_session()
        async with session.get(self.fs.encode_url(self.path), headers=headers, **options) as response:
            if response.status == 412:
                raise ConditionRefused("412 Precondition Failed")
            if response.status == 404:
                raise FileNotFoundError(self.path)
            response.raise_for_status()
            is_sure = self._is_sure(response.headers)
            self._check_length(response, start, length)
            return await self._body(response, length), is_sure

    def _is_sure(self, headers: Mapping[str, str]) -> bool:
        """Returns true if the answer names the version. Raises `OtherVersion` if it is another
        one."""
        is_sure = False
        for name, expected in self._version.items():
            found = headers.get(name)
            if found is not None and found.removeprefix("W/") != expected.removeprefix("W/"):
                raise OtherVersion(f"{name} {found}, not {expected}")
            is_sure = is_sure or found is not None
        _, _, total = headers.get("Content-Range", "").rpartition("/")
        if total.isdecimal() and int(total) != self._size:
            raise OtherVersion(f"{total} bytes, not {self._size}")
        return is_sure

    async def _body(self, response: Any, length: int) -> bytes:
        """Reads the body, up to the requested length, as not all servers announce its length."""
        if "Content-Length" in response.headers:
            data: bytes = await response.read()
            return data
        parts, found = [], 0
        async for part in response.content.iter_any():
            parts.append(part)
            found += len(part)
            if found > length:
                response.close()
                raise OSError(errno.EIO, f"the server returned more than {length} bytes")
        return b"".join(parts)

    def _check_length(self, response: Any, start: int, length: int) -> None:
        if response.headers.get("Content-Encoding", "identity") not in ("", "identity"):
            response.close()
            raise OSError(errno.EIO, f"the server compresses ranges ({response.headers['Content-Encoding']})")
        stated = response.headers.get("Content-Length", "")
        found = int(stated) if stated.isdecimal() else None
        place = response.headers.get("Content-Range", f"bytes {start}-")
        if response.status == 206:
            if not place.startswith(f"bytes {start}-"):
                response.close()
                raise OSError(errno.EIO, f"the server returned another range: {place}")
            if found is None or found <= length:
                return
        elif found == length and start == 0:
            # The whole file, as requested.
            return
        response.close()
        size = "an unknown number of" if found is None else found
        raise OSError(
            errno.EIO,
            f"the server returned {size} bytes, not {length}; "
            "a server that ignores ranges can be read through simplecache::",
        )


class S3Ranges(_Requests):
    """Reader of ranges of an object in S3, by s3fs: with `IfMatch`, and with the version if the URL
    or s3fs has one."""

    def __init__(self, fs: Any, path: str, info: Mapping[str, Any]) -> None:
        super().__init__(fs, path, info)
        self._bucket, self._key, version = fs.split_path(path)
        version = version or (info.get("VersionId") if fs.version_aware else None)
        self._named = {"VersionId": version} if version not in (None, "null") else {}
        self._etag: str | None = info.get("ETag") or None

    async def _request(self, start: int, length: int) -> tuple[bytes, bool]:
        condition = {"IfMatch": self._etag} if self._etag is not None and self._is_conditional else {}
        place = f"bytes={start}-{start + length - 1}"
        try:
            answer = await self.fs._call_s3(
                "get_object", Bucket=self._bucket, Key=self._key, Range=place, **condition, **self._named
            )
        except Exception as error:
            if status_of(error) == 412:
                raise ConditionRefused(str(error)) from error
            raise
        body = answer["Body"]
        try:
            etag = answer.get("ETag")
            if self._etag is not None and etag not in (None, self._etag):
                raise OtherVersion(f"ETag {etag}, not {self._etag}")
            if answer.get("ContentLength", 0) > length:
                raise OSError(errno.EIO, f"the server returned {answer['ContentLength']} bytes, not {length}")
            return await body.read(), etag is not None and self._etag is not None
        finally:
            body.close()


def ranges_of(fs: Any, path: str, info: Mapping[str, Any]) -> Ranges:
    """Returns a reader of the version of a file that `info` describes."""
    kinds = {"fsspec.implementations.http.HTTPFileSystem": HttpRanges, "s3fs.core.S3FileSystem": S3Ranges}
    own: Any = type(fs)
    base: Any
    for base in own.__mro__:
        kind = kinds.get(f"{base.__module__}.{base.__name__}")
        # A subclass with its own way of reading keeps it.
        if kind is not None and own._cat_file is base._cat_file and own._cat_ranges is base._cat_ranges:
            return kind(fs, path, info)
    return Ranges(fs, path, info)
