"""Entries of directories, in the forms of `os.scandir` and of `zipfile`."""

from __future__ import annotations

import os
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_ISDIR
from typing import AnyStr, Generic, NamedTuple

from ._names import decode, encode, joined, uuid_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from ._primitives import ImagePrimitives
    from ._names import FileRef


class DirEntry(Generic[AnyStr]):
    """Entry of a directory, as `os.DirEntry`. `is_dir`, `is_file` and `is_symlink` read no inode,
    except to follow a link. """

    __slots__ = ("_image", "_kind", "_nid", "_stats", "name", "path")

    name: AnyStr
    """Name in the directory."""
    path: AnyStr
    """Path: the path of the directory as it was given, and the name."""

    def __init__(self, image: ImagePrimitives, name: AnyStr, path: AnyStr, nid: int, kind: int) -> None:
        self.name = name
        self.path = path
        self._image = image
        self._nid = nid
        self._kind = kind
        self._stats: dict[bool, os.stat_result] = {}

    def inode(self) -> int:
        """Returns the nid."""
        return self._nid

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a directory, or a link to one."""
        return self._type(follow_symlinks) == S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a regular file, or a link to one."""
        return self._type(follow_symlinks) == S_IFREG

    def is_symlink(self) -> bool:
        """Returns true for a symbolic link."""
        return self._kind == S_IFLNK

    def is_junction(self) -> bool:
        """Returns false: only Windows has junctions."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Returns the same as `os.stat`. Read once and kept."""
        follow = follow_symlinks and self._kind == S_IFLNK
        found = self._stats.get(follow)
        if found is None:
            # Only a link must be followed by its path.
            found = os.stat_result(
                *(self._image._stat(self.path, True) if follow else self._image._stat(self._nid, False))
            )
            self._stats[follow] = found
        return found

    def _type(self, follow: bool) -> int:
        if not follow or self._kind != S_IFLNK:
            return self._kind
        try:
            return S_IFMT(self.stat().st_mode)
        except FileNotFoundError:  # and nothing else, as with os.DirEntry: a link in a loop raises
            return 0

    def __kilnfs_path__(self) -> bytes:
        return encode(self.path)

    @property
    def __kilnfs_uuid__(self) -> bytes:
        return uuid_of(self._image)

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._image, self.name, self.path, self._nid, self._kind)


class ScandirIterator(Generic[AnyStr]):
    """Iterator over the entries of a directory, in stored order; a context manager, as that of
    `os.scandir`."""

    __slots__ = ("_rest",)

    def __init__(self, image: ImagePrimitives, file: FileRef, prefix: AnyStr) -> None:
        self._rest: Iterator[DirEntry[AnyStr]] = iter(_entries(image, file, prefix))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> DirEntry[AnyStr]:
        return next(self._rest)

    def close(self) -> None:
        """Ends the iteration."""
        self._rest = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _entries(image: ImagePrimitives, file: FileRef, prefix: AnyStr) -> Iterator[DirEntry[AnyStr]]:
    # The directory is read here, so that the call of scandir raises errors, and not the first step.
    listed = image._listdir(file)
    if isinstance(prefix, bytes):
        start = prefix if not prefix or prefix.endswith(b"/") else prefix + b"/"
        return (DirEntry(image, raw, start + raw, nid, kind) for raw, nid, kind in listed)
    return (
        DirEntry(image, name, joined(prefix, name), nid, kind)
        for name, nid, kind in ((decode(raw), nid, kind) for raw, nid, kind in listed)
    )


class Entry(NamedTuple):
    """File of an image, returned by `Image.infolist`; also has the attributes of
    `zipfile.ZipInfo`."""

    path: str
    """Path from the root of the image, without leading and trailing slash."""
    size: int
    """Length in bytes; for a directory, that of its names."""
    mode: int
    """Type and permissions, as `st_mode`."""
    mtime_ns: int
    """Nanoseconds since 1970."""
    uid: int
    """User id of the owner."""
    gid: int
    """Group id."""
    nid: int
    """Inode number, the same for all names of a file."""

    @property
    def filename(self) -> str:
        """Path, as in `path`."""
        return self.path

    @property
    def file_size(self) -> int:
        """Length in bytes, as in `size`."""
        return self.size

    @property
    def date_time(self) -> tuple[int, int, int, int, int, int]:
        """Time of modification: year, month, day, hour, minute, second, UTC."""
        import time

        return time.gmtime(self.mtime_ns // 1_000_000_000)[:6]

    def is_dir(self) -> bool:
        """Returns true for a directory."""
        return S_ISDIR(self.mode)

    def __kilnfs_path__(self) -> bytes:
        return encode(self.path)


def entry(image: ImagePrimitives, path: str, nid: int) -> Entry:
    """Returns the entry of an inode."""
    numbers, named = image._stat(nid, False)
    return Entry(path, numbers[6], numbers[0], named["st_mtime_ns"], numbers[4], numbers[5], nid)
