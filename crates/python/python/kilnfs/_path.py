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
    """A file of an image, as `pathlib.Path`. Made by `image / "name"`, `image.root` and `image.path("name")`.

    It has no path on the host and no `__fspath__`; `importlib.resources.as_file(path)` makes one for as long as it is
    needed. It is a `Traversable`, and a readable path of `pathlib.types` (Python 3.14) and `pathlib_abc`.

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
        """What is at the path; what it has said once, it says again."""
        if self._info is None:
            self._info = PathInfo(self._image, self._path)
        return self._info

    # names

    def iterdir(self) -> Iterator[Self]:
        """The files of a directory, in stored order."""
        # The directory is read now, so that an error is not raised by the first step only.
        listed = self._image._listdir(self)
        return (
            self._child(joined("" if self._path == "." else self._path, decode(raw)), kind) for raw, _, kind in listed
        )

    def _child(self, path: str, kind: int) -> Self:
        child = self.with_segments(path)
        child._info = PathInfo(self._image, path, kind)
        return child

    def glob(self, pattern: str | PurePath, *, recurse_symlinks: bool = False) -> Iterator[Self]:
        """Paths below this one that match; see `Image.glob`.

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
        """`glob` with "**/" in front of the pattern."""
        return self.glob(f"**/{pattern}", recurse_symlinks=recurse_symlinks)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """What `pathlib.Path.walk` yields: links to directories are among the files, unless they are followed."""
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

    # what is at the path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """What `os.stat` gives."""
        return self._image.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """`stat` of a symbolic link itself."""
        return self._image.lstat(self)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the path leads to something."""
        return self._image._type(self, follow_symlinks) != 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
        return self._image._type(self, follow_symlinks) == S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return self._image._type(self, follow_symlinks) == S_IFREG

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._image._type(self, False) == S_IFLNK

    def is_fifo(self) -> bool:
        """Whether it is a FIFO."""
        return self._image._type(self, True) == stat.S_IFIFO

    def is_socket(self) -> bool:
        """Whether it is a socket."""
        return self._image._type(self, True) == stat.S_IFSOCK

    def is_block_device(self) -> bool:
        """Whether it is a block device."""
        return self._image._type(self, True) == stat.S_IFBLK

    def is_char_device(self) -> bool:
        """Whether it is a character device."""
        return self._image._type(self, True) == stat.S_IFCHR

    def is_mount(self) -> bool:
        """False: nothing is mounted in an image."""
        return False

    def is_junction(self) -> bool:
        """False: only Windows has junctions."""
        return False

    def readlink(self) -> Self:
        """The target of a symbolic link."""
        return self.with_segments(decode(self._image._readlink(self)))

    def resolve(self, strict: bool = False) -> Self:
        """The path from the root without links and ".."; with `strict`, all of it must exist."""
        from ._resolve import resolve

        return self.with_segments(resolve(self._image, self._path, strict=strict))

    def samefile(self, other: str | Path) -> bool:
        """Whether both lead to one inode of one image."""
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
        """A file object, as `builtins.open` gives it; text, unless the mode says otherwise."""
        from ._file import open_file

        return open_file(self._image, self, mode, buffering, encoding, errors, newline)

    def __open_rb__(self, buffering: int = -1) -> BinaryIO:
        return self.open("rb", buffering)

    def __open_reader__(self) -> BinaryIO:
        return self.open("rb", 0)

    def read_bytes(self) -> bytes:
        """The contents."""
        return self._image.read(self)

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """The contents as text."""
        import io

        with self.open("r", -1, io.text_encoding(encoding), errors, newline) as file:
            return file.read()

    # to the host

    def copy(
        self, target: str | os.PathLike[str], *, follow_symlinks: bool = True, preserve_metadata: bool = False
    ) -> pathlib.Path:
        """Copy the file, or the directory with all that is below it, to a path of the host. A file there is replaced
        once the copy is complete; a directory there is a FileExistsError.

        `preserve_metadata` copies permissions (without set-user-ID, set-group-ID and sticky bits) and times. Returns
        the new path.
        """
        from ._path_copy import copy

        return copy(self, target, follow_symlinks=follow_symlinks, preserve_metadata=preserve_metadata)

    def copy_into(
        self, target_dir: str | os.PathLike[str], *, follow_symlinks: bool = True, preserve_metadata: bool = False
    ) -> pathlib.Path:
        """`copy` to the same name in a directory of the host."""
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
    """Let `isinstance` know, where there are abstract classes for readable paths: in Python 3.14, and in the package
    `pathlib_abc`.
    """
    from importlib import import_module

    for module, name in (("pathlib.types", "_ReadablePath"), ("pathlib_abc", "ReadablePath")):
        try:
            getattr(import_module(module), name).register(Path)
        except (ImportError, AttributeError):
            continue


_register()
