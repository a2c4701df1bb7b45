"""What `zipfile.ZipFile` does, for images. A name that is missing is a FileNotFoundError, and directories have no slash
at the end.
"""

from __future__ import annotations

import os

from ._names import as_text, encode, is_name, one_file, refuse_foreign
from ._verbs_os import OsVerbs

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import TextIOWrapper
    from typing import IO, Any, BinaryIO, Literal, SupportsIndex, overload

    from ._entries import Entry
    from ._file import BufferedFile, File
    from ._names import Name
    from ._reports import CheckReport
else:

    def overload(function):
        return function


class ZipVerbs(OsVerbs):
    """The methods of `zipfile.ZipFile`."""

    def namelist(self) -> list[str]:
        """Paths of all files and directories, each directory before what is in it.

        >>> image.namelist()
        ['about.txt', 'cat', 'cat/1.txt', 'cat/2.txt', 'dog', 'dog/1.txt']
        """
        from ._walk import members

        return [path for path, _, _ in members(self, "/", "")]

    def __contains__(self, path: object) -> bool:
        """Tells if there is something of this name, be it a broken link. Costs one lookup.

        >>> "cat/1.txt" in image, "cat/3.txt" in image
        (True, False)
        """
        return is_name(path) and self.lexists(path)

    def __iter__(self) -> Iterator[str]:
        """The paths of `namelist`, as they are found.

        >>> [path for path in image if path.endswith("1.txt")]
        ['cat/1.txt', 'dog/1.txt']
        """
        from ._walk import members

        return (path for path, _, _ in members(self, "/", ""))

    def __len__(self) -> int:
        """Counts the paths of `namelist`. Reads all directories.

        >>> len(image)
        6
        """
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """True: an image is there, whatever is in it."""
        return True

    def infolist(self) -> list[Entry]:
        """All files and directories, in the order of `namelist`."""
        from ._entries import entry
        from ._walk import members

        return [entry(self, path, nid) for path, nid, _ in members(self, "/", "")]

    def getinfo(self, path: Name) -> Entry:
        """Size, mode, time and owner of one file. Of a link, what it says itself.

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
        """The contents of a file as text, its line ends as they are stored.

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
        """A file object, as `builtins.open` gives it; writing modes are an OSError (EROFS).

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
        """Write one file, or a directory with all that is below it, to the same path below the directory `path`; see
        `extractall`.

        Returns the path of what was written.
        """
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
        """Write all files, or those of `members` and what is below them, to the directory `path`. Nothing is ever
        written outside of it, nor through a link that stands there already.

        `filter` is what PEP 706 means by it: "fully_trusted" keeps everything that the image says (owners if the caller
        is root), "tar" clears set-user-ID, set-group-ID and sticky bits and the right of others to write, "data"
        refuses devices, FIFOs, sockets and links that lead out of `path`, too, and keeps no owners. A
        file that is there already is a FileExistsError, or replaced with `overwrite=True`, but never a directory by
        something else; directories are used. `progress` is called with the bytes written and those to write.
        """
        from ._extract import extract

        chosen = None
        if members is not None:
            chosen = []
            for member in members:
                refuse_foreign(member, self)
                chosen.append(encode(member))
        extract(self, chosen, os.fsencode(path), filter, overwrite, threads, progress)

    def check(self, *, threads: int | None = None, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Read and decode everything, and compare it with what the format demands, and contents with their digests.
        What `testzip` is for.

        Without digests (`kilnfs.pack(content_digests=True)` stores them) damage in files that are stored as they are
        is not found: `contents` is "not verifiable" then, although nothing is wrong that can be seen.

        >>> report = image.check()
        >>> report.ok, report.contents
        (True, 'not verifiable')
        >>> print(report)
        ok; contents: not verifiable
        """
        from ._reports import CheckReport

        return CheckReport.of(self._check(threads=threads, progress=progress))
