"""Methods that an image and a set of shards share: those of `os` and `os.path`, and of
`zipfile.ZipFile`."""

from __future__ import annotations

import os
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG

from ._names import as_text, decode, encode, is_absence, is_name, one_file, refuse_foreign
from ._primitives import ImagePrimitives

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import TextIOWrapper
    from types import TracebackType
    from typing import IO, Any, BinaryIO, Literal, Self, SupportsIndex, overload

    from ._entries import Entry, ScandirIterator
    from ._file import BufferedFile, File
    from ._names import HasPath, Name
    from ._path import Path
    from ._reports import CheckReport, Cost, Extent
else:

    def overload(function):
        return function


class ImageVerbs(ImagePrimitives):
    """Methods of `kilnfs.Image` and `kilnfs.shards.ShardedImage`, made of a few primitives. Links
    are resolved inside the image only. A missing name is a FileNotFoundError, and directories have
    no slash at the end. """

    __slots__ = ()

    # The image as a whole.

    def __enter__(self) -> Self:
        if self.closed:
            raise ValueError(f"the image {self.name!r} is closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __bool__(self) -> bool:
        """Returns true, also for an empty image."""
        return True

    @property
    def root(self) -> Path:
        """Root directory, as a path."""
        return self.path("/")

    def path(self, path: Name = "/") -> Path:
        """Returns a path of the image, from its root.

        >>> image.path("cat/1.txt").read_bytes()
        b'meow\\n'
        """
        from ._path import Path

        refuse_foreign(path, self)
        return Path(self, "/", as_text(path))

    def __truediv__(self, name: Name) -> Path:
        return self.path(name) if is_name(name) else NotImplemented

    # os and os.path

    def stat(
        self, path: Name | None = None, *, follow_symlinks: bool = True, nid: SupportsIndex | None = None
    ) -> os.stat_result:
        """Returns the same as `os.stat`: `st_ino` is the nid, `st_dev` is 0. Here and elsewhere,
        `nid=` takes an inode number instead of a path.

        >>> image.stat("cat/1.txt").st_size
        5
        """
        return os.stat_result(*self._stat(one_file(path, nid), follow_symlinks))

    def lstat(self, path: Name) -> os.stat_result:
        """Returns the `stat` of a symbolic link itself."""
        return os.stat_result(*self._stat(one_file(path), False))

    def exists(self, path: Name) -> bool:
        """Returns true if a path leads to a file of any type. A damaged image raises its error."""
        return self._type(path, True) != 0

    def lexists(self, path: Name) -> bool:
        """Returns true if there is a file of any type with this name, even a broken link."""
        return self._type(path, False) != 0

    def isfile(self, path: Name) -> bool:
        """Returns true if a path leads to a regular file."""
        return self._type(path, True) == S_IFREG

    def isdir(self, path: Name) -> bool:
        """Returns true if a path leads to a directory."""
        return self._type(path, True) == S_IFDIR

    def islink(self, path: Name) -> bool:
        """Returns true for a symbolic link."""
        return self._type(path, False) == S_IFLNK

    def _type(self, path: Name, follow: bool) -> int:
        """Returns the `S_IFMT` bits of the file that a path leads to, 0 if there is none."""
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
        """Returns the names in a directory, by default the root, sorted by their bytes.

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
        """Returns the entries of a directory with their types, without reading their inodes.

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
        """Yields the same as `os.walk`. In a top-down walk, names may be removed from the list of
        directories.

        Without `onerror`, a damaged directory raises its error, so that a walk does not silently
        leave out part of a dataset.

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
        """Returns the target of a symbolic link, as it is stored."""
        target = self._readlink(one_file(path, nid))
        return target if isinstance(path, bytes) else decode(target)

    def listxattr(
        self, path: Name | None = None, *, follow_symlinks: bool = True, nid: SupportsIndex | None = None
    ) -> list[str]:
        """Returns the names of the extended attributes."""
        return [decode(name) for name in self._listxattr(one_file(path, nid), follow_symlinks)]

    def getxattr(self, path: Name, attribute: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """Returns the value of an extended attribute."""
        return self._getxattr(one_file(path), encode(attribute), follow_symlinks)

    @overload
    def glob(self, pattern: bytes, *, root: Name = "/") -> Iterator[bytes]: ...
    @overload
    def glob(self, pattern: str, *, root: Name = "/") -> Iterator[str]: ...
    def glob(self, pattern: str | bytes, *, root: Name = "/") -> Iterator[str] | Iterator[bytes]:
        """Yields the matching paths, relative to `root`; `**` matches any number of directories.

        As in `pathlib`, hidden files match like others, and `**` does not follow links. Names are
        in stored order.

        >>> list(image.glob("*/1.*")), list(image.glob("**/*.txt", root="cat"))
        (['cat/1.txt', 'dog/1.txt'], ['1.txt', '2.txt'])
        """
        from ._glob import select

        refuse_foreign(root, self)
        if isinstance(pattern, bytes):
            return (encode(path) for path in select(self, as_text(root), decode(pattern)) if path)
        return (path for path in select(self, as_text(root), pattern) if path)

    # zipfile

    def namelist(self) -> list[str]:
        """Returns the paths of all files and directories, each directory before its entries.

        >>> image.namelist()
        ['about.txt', 'cat', 'cat/1.txt', 'cat/2.txt', 'dog', 'dog/1.txt']
        """
        from ._walk import members

        return [path for path, _, _ in members(self, "/", "")]

    def __contains__(self, path: object) -> bool:
        """Returns true if there is a file of any type with this name, even a broken link. Costs one
        lookup.

        >>> "cat/1.txt" in image, "cat/3.txt" in image
        (True, False)
        """
        return is_name(path) and self.lexists(path)

    def __iter__(self) -> Iterator[str]:
        """Yields the paths of `namelist` while it finds them.

        >>> [path for path in image if path.endswith("1.txt")]
        ['cat/1.txt', 'dog/1.txt']
        """
        from ._walk import members

        return (path for path, _, _ in members(self, "/", ""))

    def __len__(self) -> int:
        """Returns the number of paths of `namelist`. Reads all directories.

        >>> len(image)
        6
        """
        return sum(1 for _ in self)

    def infolist(self) -> list[Entry]:
        """Returns all files and directories, in the order of `namelist`."""
        from ._entries import entry
        from ._walk import members

        return [entry(self, path, nid) for path, nid, _ in members(self, "/", "")]

    def getinfo(self, path: Name) -> Entry:
        """Returns size, mode, time and owner of one file. Links are not followed.

        >>> image.getinfo("cat/2.txt").size
        5
        """
        from ._entries import entry

        return entry(self, as_text(path).strip("/"), self._lookup(path, False))

    def read_text(
        self,
        path: Name | None = None,
        encoding: str = "utf-8",
        errors: str = "strict",
        *,
        nid: SupportsIndex | None = None,
    ) -> str:
        """Returns the contents of a file as text, with line ends as they are stored.

        >>> image.read_text("about.txt")
        'cats and dogs\\n'
        """
        return self.read(path, nid=nid).decode(encoding, errors)

    # fmt: off
    @overload
    def open(self, path: Name | None = None, mode: Literal["rb", "br"] = "rb", *, buffering: Literal[0],
             encoding: None = None, errors: None = None, newline: None = None,
             nid: SupportsIndex | None = None) -> File: ...
    @overload
    def open(self, path: Name | None = None, mode: Literal["rb", "br"] = "rb", *, buffering: Literal[-1, 1] = -1,
             encoding: None = None, errors: None = None, newline: None = None,
             nid: SupportsIndex | None = None) -> BufferedFile: ...
    @overload
    def open(self, path: Name | None, mode: Literal["r", "rt", "tr"], *, buffering: int = -1,
             encoding: str | None = None, errors: str | None = None, newline: str | None = None,
             nid: SupportsIndex | None = None) -> TextIOWrapper: ...
    @overload
    def open(self, path: Name | None = None, *, mode: Literal["r", "rt", "tr"], buffering: int = -1,
             encoding: str | None = None, errors: str | None = None, newline: str | None = None,
             nid: SupportsIndex | None = None) -> TextIOWrapper: ...
    @overload
    def open(self, path: Name | None = None, mode: Literal["rb", "br"] = "rb", *, buffering: int,
             encoding: None = None, errors: None = None, newline: None = None,
             nid: SupportsIndex | None = None) -> BinaryIO: ...
    @overload
    def open(self, path: Name | None, mode: str, *, buffering: int = -1, encoding: str | None = None,
             errors: str | None = None, newline: str | None = None,
             nid: SupportsIndex | None = None) -> IO[Any]: ...
    # fmt: on
    def open(
        self,
        path: Name | None = None,
        mode: str = "rb",
        *,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        nid: SupportsIndex | None = None,
    ) -> object:
        """Opens a file, as `builtins.open` does. Modes for writing raise OSError (EROFS).

        >>> with image.open("about.txt") as file:
        ...     file.read(4), file.seek(9), file.read()
        (b'cats', 9, b'dogs\\n')
        >>> [line for line in image.open("about.txt", "r", encoding="utf-8")]
        ['cats and dogs\\n']
        """
        from ._file import open_file

        return open_file(self, one_file(path, nid), mode, buffering, encoding, errors, newline)

    def extract(
        self,
        member: Name,
        path: str | os.PathLike[str] | None = None,
        *,
        filter: str = "data",
        overwrite: bool = False,
    ) -> str:
        """Writes one file, or a directory with its whole tree, to the same path below the directory
        `path`. Returns the path on this system. See `extractall`. """
        from ._extract import extract

        refuse_foreign(member, self)
        target = os.curdir if path is None else os.fspath(path)
        extract(self, [encode(member)], os.fsencode(target), filter, overwrite, None, None)
        return os.path.join(target, as_text(member).strip("/"))

    def extractall(
        self,
        path: str | bytes | os.PathLike[str] = ".",
        members: Iterable[Name] | None = None,
        *,
        filter: str = "data",
        overwrite: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Writes all files, or those of `members` and the trees below them, to the directory
        `path`. Never writes outside of it, nor through an existing link.

        `filter` is that of PEP 706: "fully_trusted" restores all metadata of the image (owners if
        the caller is root); "tar" clears set-user-ID, set-group-ID and sticky bits and write
        permission of group and others; "data" also refuses devices, FIFOs, sockets and links that
        lead out of `path`, and restores no owners. An existing file raises FileExistsError, or is
        replaced with `overwrite=True`; existing directories are used, never replaced. `progress` is
        called with the number of bytes written and the total. """
        from ._extract import extract

        chosen = None
        if members is not None:
            chosen = []
            for member in members:
                refuse_foreign(member, self)
                chosen.append(encode(member))
        extract(self, chosen, os.fsencode(path), filter, overwrite, threads, progress)

    def check(self, *, threads: int | None = None, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Reads and decodes everything, checks it against the format, and compares contents with
        their digests. Corresponds to `testzip`. Shards are checked in order: the report is that of
        the first one with problems, or else of the last, and `progress` starts again for each
        shard.

        Without digests (`kilnfs.pack(content_digests=True)` stores them), damage in uncompressed
        files is not found: `contents` is "not verifiable" then, even if no problem was found.

        >>> report = image.check()
        >>> report.ok, report.contents
        (True, 'not verifiable')
        >>> print(report)
        ok; contents: not verifiable
        """
        from ._reports import CheckReport

        return CheckReport.of(self._check(threads=threads, progress=progress))

    # storage

    def extents(self, path: Name | None = None, *, nid: SupportsIndex | None = None) -> list[Extent]:
        """Returns the extents of a file: where its contents are stored.

        >>> [(extent.start, extent.length) for extent in image.extents("cat/1.txt")]
        [(0, 5)]
        """
        from ._reports import Extent

        return [Extent.of(extent) for extent in self._extents(one_file(path, nid))]

    def explain(
        self,
        path: Name | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        nid: SupportsIndex | None = None,
    ) -> Cost:
        """Returns the cost of reading a range of a file: bytes fetched, bytes decoded.

        >>> image.explain("cat/1.txt").wanted
        5
        """
        from ._reports import Cost

        return Cost.of(self._explain(one_file(path, nid), start, stop))


def _in_bytes(
    found: Iterator[tuple[str, list[str], list[str]]],
) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
    """Yields a walk with names in bytes. Changes of the list of directories are applied to the
    walk."""
    for directory, dirs, files in found:
        raw = [encode(name) for name in dirs]
        yield encode(directory), raw, [encode(name) for name in files]
        dirs[:] = [decode(name) for name in raw]
