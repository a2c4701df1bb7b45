"""`kilnfs.Path`: `pathlib.Path` for the files of an image."""

from __future__ import annotations

import os
import stat
from stat import S_IFDIR, S_IFLNK, S_IFREG

from ._names import decode, joined
from ._path_info import PathInfo
from ._pure import PurePath

TYPE_CHECKING = False

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator
    from io import TextIOWrapper
    from typing import IO, Any, BinaryIO, Literal, Self, overload

    from ._file import BufferedFile, File
    from ._verbs import ImageVerbs
else:

    def overload(function):
        return function


class Path(PurePath):
    """Path in an image, as `pathlib.Path`. Made by `image / "name"`, `image.root` and
    `image.path("name")`.

    It is not a path on the host and has no `__fspath__`; `importlib.resources.as_file(path)` makes
    a temporary file on the host. It is a `Traversable`, and a readable path of `pathlib.types`
    (Python 3.14) and `pathlib_abc`.

    >>> [path.name for path in (image / "cat").iterdir()]
    ['1.txt', '2.txt']
    >>> (image / "cat" / "1.txt").read_text()
    'meow\\n'
    """

    __slots__ = ("_info",)

    def __init__(self, image: ImageVerbs, *segments: str | PurePath | os.PathLike[str]) -> None:
        super().__init__(image, *segments)
        self._info: PathInfo | None = None

    @property
    def info(self) -> PathInfo:
        """Type of the file at the path, read once and kept."""
        if self._info is None:
            self._info = PathInfo(self._image, self._path)
        return self._info

    # names

    def iterdir(self) -> Iterator[Self]:
        """Yields the files of a directory, in stored order."""
        # The directory is read here, so that the call raises errors, and not the first step.
        listed = self._image._listdir(self)
        return (
            self._child(joined("" if self._path == "." else self._path, decode(raw)), kind) for raw, _, kind in listed
        )

    def _child(self, path: str, kind: int) -> Self:
        child = self.with_segments(path)
        child._info = PathInfo(self._image, path, kind)
        return child

    def glob(self, pattern: str | PurePath, *, recurse_symlinks: bool = False) -> Iterator[Self]:
        """Yields the matching paths below this one; see `Image.glob`.

        >>> [str(path) for path in image.root.glob("**/1.txt")]
        ['/cat/1.txt', '/dog/1.txt']
        """
        from ._glob import select

        if recurse_symlinks:
            raise NotImplementedError("recurse_symlinks=True: ** does not follow links")
        text = pattern if isinstance(pattern, str) else str(pattern)
        if text.startswith("/"):
            raise NotImplementedError("Non-relative patterns are unsupported")
        if not text:
            raise ValueError(f"Unacceptable pattern: {text!r}")
        return (self.joinpath(found) for found in select(self._image, self._path, text))

    def rglob(self, pattern: str | PurePath, *, recurse_symlinks: bool = False) -> Iterator[Self]:
        """Yields the same as `glob` with "**/" before the pattern."""
        return self.glob(f"**/{pattern}", recurse_symlinks=recurse_symlinks)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Yields the same as `pathlib.Path.walk`: links to directories are among the files, unless
        they are followed."""
        from ._walk import walk

        found = walk(
            self._image,
            self,
            self._path,
            top_down=top_down,
            on_error=on_error,
            follow=follow_symlinks,
            links_are_files=True,
        )
        return ((self.with_segments(path), dirs, files) for path, dirs, files in found)

    # metadata

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Returns the same as `os.stat`."""
        return self._image.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """Returns the `stat` of a symbolic link itself."""
        return self._image.lstat(self)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true if the path leads to a file of any type."""
        return self._image._type(self, follow_symlinks) != 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a directory."""
        return self._image._type(self, follow_symlinks) == S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a regular file."""
        return self._image._type(self, follow_symlinks) == S_IFREG

    def is_symlink(self) -> bool:
        """Returns true for a symbolic link."""
        return self._image._type(self, False) == S_IFLNK

    def is_fifo(self) -> bool:
        """Returns true for a FIFO."""
        return self._image._type(self, True) == stat.S_IFIFO

    def is_socket(self) -> bool:
        """Returns true for a socket."""
        return self._image._type(self, True) == stat.S_IFSOCK

    def is_block_device(self) -> bool:
        """Returns true for a block device."""
        return self._image._type(self, True) == stat.S_IFBLK

    def is_char_device(self) -> bool:
        """Returns true for a character device."""
        return self._image._type(self, True) == stat.S_IFCHR

    def is_mount(self) -> bool:
        """Returns false: nothing is mounted in an image."""
        return False

    def is_junction(self) -> bool:
        """Returns false: only Windows has junctions."""
        return False

    def readlink(self) -> Self:
        """Returns the target of a symbolic link."""
        return self.with_segments(decode(self._image._readlink(self)))

    def resolve(self, strict: bool = False) -> Self:
        """Returns the path from the root without links and ".."; with `strict`, all of it must
        exist."""
        from ._resolve import resolve

        return self.with_segments(resolve(self._image, self._path, strict=strict))

    def samefile(self, other: str | Path) -> bool:
        """Returns true if both paths lead to the same inode of the same image."""
        path = self.with_segments(other) if isinstance(other, str) else other
        if self._image._identity != path._image._identity:
            return False
        return self._image._lookup(self, True) == path._image._lookup(path, True)

    # contents

    # fmt: off
    @overload
    def open(self, mode: Literal["r", "rt", "tr"] = "r", buffering: int = -1, encoding: str | None = None,
             errors: str | None = None, newline: str | None = None) -> TextIOWrapper: ...
    @overload
    def open(self, mode: Literal["rb", "br"], buffering: Literal[0], encoding: None = None, errors: None = None,
             newline: None = None) -> File: ...
    @overload
    def open(self, mode: Literal["rb", "br"], buffering: Literal[-1, 1] = -1, encoding: None = None,
             errors: None = None, newline: None = None) -> BufferedFile: ...
    @overload
    def open(self, mode: Literal["rb", "br"], buffering: int, encoding: None = None, errors: None = None,
             newline: None = None) -> BinaryIO: ...
    @overload
    def open(self, mode: str, buffering: int = -1, encoding: str | None = None, errors: str | None = None,
             newline: str | None = None) -> IO[Any]: ...
    # fmt: on
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> object:
        """Opens the file, as `builtins.open` does, by default as text."""
        from ._file import open_file

        return open_file(self._image, self, mode, buffering, encoding, errors, newline)

    def __open_rb__(self, buffering: int = -1) -> BinaryIO:
        return self.open("rb", buffering)

    def __open_reader__(self) -> BinaryIO:
        return self.open("rb", 0)

    def read_bytes(self) -> bytes:
        """Returns the contents."""
        return self._image.read(self)

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Returns the contents as text."""
        import io

        with self.open("r", -1, io.text_encoding(encoding), errors, newline) as file:
            return file.read()

    # to the host

    def copy(
        self, target: str | os.PathLike[str], *, follow_symlinks: bool = True, preserve_metadata: bool = False
    ) -> pathlib.Path:
        """Copies the file, or the directory with its whole tree, to a path on the host, and returns
        that path. An existing file is replaced once the copy is complete; an existing directory
        raises FileExistsError.

        `preserve_metadata` also copies permissions (without set-user-ID, set-group-ID and sticky
        bits) and times. """
        from ._path_copy import copy

        return copy(self, target, follow_symlinks=follow_symlinks, preserve_metadata=preserve_metadata)

    def copy_into(
        self, target_dir: str | os.PathLike[str], *, follow_symlinks: bool = True, preserve_metadata: bool = False
    ) -> pathlib.Path:
        """Copies to the same name in a directory on the host; see `copy`."""
        from ._path_copy import copy

        if not self.name:
            raise ValueError(f"{self!r} has an empty name")
        target: str | os.PathLike[str]
        if isinstance(target_dir, (str, os.PathLike)):
            target = os.path.join(target_dir, self.name)
        else:
            target = target_dir / self.name
        return copy(self, target, follow_symlinks=follow_symlinks, preserve_metadata=preserve_metadata)


def _register() -> None:
    """Registers `Path` with the abstract classes of readable paths, in Python 3.14 and in the
    package `pathlib_abc`."""
    from importlib import import_module

    for module, name in (("pathlib.types", "_ReadablePath"), ("pathlib_abc", "ReadablePath")):
        try:
            getattr(import_module(module), name).register(Path)
        except (ImportError, AttributeError):
            continue


_register()
