"""Primitives of an image and of a set of shards, on which all other methods are built."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, SupportsIndex

    from typing_extensions import Buffer

    from ._names import FileRef, Name


class ImagePrimitives(ABC):
    """Primitives that `kilnfs._native.Image` and `kilnfs.shards.ShardedImage` implement. A file is
    a path or a nid."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str: ...
    @property
    @abstractmethod
    def closed(self) -> bool: ...
    @property
    @abstractmethod
    def uuid(self) -> bytes: ...
    @property
    @abstractmethod
    def _identity(self) -> tuple[int | str | bytes, bytes]:
        """Location and UUID, by which equal paths are recognised; also of a closed image."""

    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def _lookup(self, file: FileRef, follow: bool) -> int:
        """Returns the nid."""

    @abstractmethod
    def _stat(self, file: FileRef, follow: bool) -> tuple[tuple[int, ...], dict[str, int]]:
        """Returns the arguments of `os.stat_result`."""

    @abstractmethod
    def _listdir(self, file: FileRef) -> list[tuple[bytes, int, int]]:
        """Returns name, nid and type (`S_IFMT`) of each entry, without "." and "..", sorted by
        name."""

    @abstractmethod
    def _readlink(self, file: FileRef) -> bytes: ...
    @abstractmethod
    def _listxattr(self, file: FileRef, follow: bool) -> list[bytes]: ...
    @abstractmethod
    def _getxattr(self, file: FileRef, name: bytes, follow: bool) -> bytes: ...
    @abstractmethod
    def read(
        self, path: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> bytes: ...
    @abstractmethod
    def read_into(
        self,
        path: Name | None = None,
        buffer: Buffer | None = None,
        *,
        start: int = 0,
        nid: SupportsIndex | None = None,
    ) -> int: ...
    @abstractmethod
    def view(
        self, path: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> memoryview: ...
    @abstractmethod
    def _extract(
        self,
        members: Sequence[bytes],
        target: bytes,
        *,
        policy: str,
        overwrite: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]: ...
    @abstractmethod
    def _check(
        self, *, threads: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]: ...
    @abstractmethod
    def _extents(self, file: FileRef) -> list[dict[str, Any]]: ...
    @abstractmethod
    def _explain(self, file: FileRef, start: int | None = None, stop: int | None = None) -> dict[str, Any]: ...
