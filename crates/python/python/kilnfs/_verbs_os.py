"""What `os` and `os.path` do, for paths in an image."""

from __future__ import annotations

import os
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG

from . import _native
from ._names import as_text, decode, encode, is_absence, one_file, refuse_foreign

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import SupportsIndex, overload

    from ._entries import ScandirIterator
    from ._names import HasPath, Name
else:

    def overload(function):
        return function


class OsVerbs(_native.Image):
    """The functions of `os` as methods. Links are resolved inside the image only."""

    def stat(
        self, path: Name | None = None, *, follow_symlinks: bool = True, nid: SupportsIndex | None = None
    ) -> os.stat_result:
        """Returns the same as `os.stat`: `st_ino` is the nid, `st_dev` is 0. `nid=` takes the number of an inode
        instead of a path, here and elsewhere.

        >>> image.stat("cat/1.txt").st_size
        5
        """
        return os.stat_result(*self._stat(one_file(path, nid), follow_symlinks))

    def lstat(self, path: Name) -> os.stat_result:
        """`stat` of a symbolic link itself."""
        return os.stat_result(*self._stat(one_file(path), False))

    def exists(self, path: Name) -> bool:
        """Whether a path leads to something. An image that is damaged there raises its error."""
        return self._type(path, True) != 0

    def lexists(self, path: Name) -> bool:
        """Whether there is something of this name, be it a broken link."""
        return self._type(path, False) != 0

    def isfile(self, path: Name) -> bool:
        """Whether a path leads to a regular file."""
        return self._type(path, True) == S_IFREG

    def isdir(self, path: Name) -> bool:
        """Whether a path leads to a directory."""
        return self._type(path, True) == S_IFDIR

    def islink(self, path: Name) -> bool:
        """Whether this is a symbolic link."""
        return self._type(path, False) == S_IFLNK

    def _type(self, path: Name, follow: bool) -> int:
        """`S_IFMT` of what a path leads to, 0 if there is nothing."""
        try:
            return S_IFMT(self._stat(one_file(path), follow)[0][0])
        except OSError as error:
            if is_absence(error):
                return 0
            raise

    @overload
    def listdir(self, path: bytes) -> list[bytes]: ...
    @overload
    def listdir(self, path: str | HasPath = "/", *, nid: SupportsIndex | None = None) -> list[str]: ...
    def listdir(self, path: Name = "/", *, nid: SupportsIndex | None = None) -> list[str] | list[bytes]:
        """The names in a directory, by default the root, sorted by their bytes.

        >>> image.listdir("cat"), image.listdir(b"cat")
        (['1.txt', '2.txt'], [b'1.txt', b'2.txt'])
        """
        listed = self._listdir(one_file(path if nid is None or path != "/" else None, nid))
        return [name for name, _, _ in listed] if isinstance(path, bytes) else [decode(name) for name, _, _ in listed]

    @overload
    def scandir(self, path: bytes) -> ScandirIterator[bytes]: ...
    @overload
    def scandir(self, path: str | HasPath = "/") -> ScandirIterator[str]: ...
    def scandir(self, path: Name = "/") -> ScandirIterator[str] | ScandirIterator[bytes]:
        """The entries of a directory, with their types, for which no inode is read.

        >>> with image.scandir("cat") as entries:
        ...     [entry.path for entry in entries if entry.is_file()]
        ['cat/1.txt', 'cat/2.txt']
        """
        from ._entries import ScandirIterator

        if isinstance(path, bytes):
            return ScandirIterator[bytes](self, path, path)
        return ScandirIterator[str](self, path, as_text(path))

    @overload
    def walk(
        self,
        top: bytes,
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]: ...
    @overload
    def walk(
        self,
        top: str | HasPath = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]: ...
    def walk(
        self,
        top: Name = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]] | Iterator[tuple[bytes, list[bytes], list[bytes]]]:
        """What `os.walk` yields. Names may be removed from the list of directories while it goes top down.

        Without `onerror`, a directory that is damaged raises its error: a walk that leaves out part of a dataset would
        not be noticed.

        >>> for directory, dirs, files in image.walk("/"):
        ...     print(directory, dirs, files)
        / ['cat', 'dog'] ['about.txt']
        /cat [] ['1.txt', '2.txt']
        /dog [] ['1.txt']
        """
        from ._walk import walk

        found = walk(
            self, top, as_text(top), top_down=topdown, on_error=onerror, follow=followlinks, links_are_files=False
        )
        return _in_bytes(found) if isinstance(top, bytes) else found

    @overload
    def readlink(self, path: bytes) -> bytes: ...
    @overload
    def readlink(self, path: str | HasPath | None = None, *, nid: SupportsIndex | None = None) -> str: ...
    def readlink(self, path: Name | None = None, *, nid: SupportsIndex | None = None) -> str | bytes:
        """The target of a symbolic link, as it is stored."""
        target = self._readlink(one_file(path, nid))
        return target if isinstance(path, bytes) else decode(target)

    def listxattr(
        self, path: Name | None = None, *, follow_symlinks: bool = True, nid: SupportsIndex | None = None
    ) -> list[str]:
        """Names of the extended attributes."""
        return [decode(name) for name in self._listxattr(one_file(path, nid), follow_symlinks)]

    def getxattr(self, path: Name, attribute: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """Value of an extended attribute."""
        return self._getxattr(one_file(path), encode(attribute), follow_symlinks)

    @overload
    def glob(self, pattern: bytes, *, root: Name = "/") -> Iterator[bytes]: ...
    @overload
    def glob(self, pattern: str, *, root: Name = "/") -> Iterator[str]: ...
    def glob(self, pattern: str | bytes, *, root: Name = "/") -> Iterator[str] | Iterator[bytes]:
        """Paths that match, from `root`; `**` stands for any number of directories.

        Hidden files match as others do, and `**` does not follow links, as in `pathlib`. Names are in stored order.

        >>> list(image.glob("*/1.*")), list(image.glob("**/*.txt", root="cat"))
        (['cat/1.txt', 'dog/1.txt'], ['1.txt', '2.txt'])
        """
        from ._glob import select

        refuse_foreign(root, self)
        if isinstance(pattern, bytes):
            return (encode(path) for path in select(self, as_text(root), decode(pattern)) if path)
        return (path for path in select(self, as_text(root), pattern) if path)


def _in_bytes(
    found: Iterator[tuple[str, list[str], list[str]]],
) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
    """A walk whose names are bytes. What the caller does to the list of directories is done to the walk."""
    for directory, dirs, files in found:
        raw = [encode(name) for name in dirs]
        yield encode(directory), raw, [encode(name) for name in files]
        dirs[:] = [decode(name) for name in raw]
