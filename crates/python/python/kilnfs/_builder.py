"""`kilnfs.Builder`: a tree that is built call by call and written as an image."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _native
from ._pack import local_path
from ._pack_options import PackOptions, tree_path
from ._pack_result import PackResult, finish

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import IO, Self

    from typing_extensions import Buffer

    from ._pack import Progress
    from ._pack_options import HostPath, TreePath


class Builder:
    """Tree that is built call by call, and written as an image.

    Later calls override earlier ones, as members of an archive do: a directory is merged with an
    existing directory, and anything else replaces the file with its path. Missing parent
    directories are made with mode 0o755. Owners default to root and times to the start of 1970, so
    that the same calls give the same bytes.

    Contents in bytes are stored in an unnamed file in `spool_dir` (`$TMPDIR`, else /var/tmp) until
    the image is written: memory grows by some 100 bytes per file of any length. Files and trees of
    this system are read when the image is written; one that changed meanwhile is an error. No
    temporary files remain, even after an error.

    >>> import os, tempfile
    >>> tmp = tempfile.TemporaryDirectory()
    >>> with Builder() as tree:
    ...     tree.add_bytes(b"text", "docs/a.txt")
    ...     tree.symlink("a.txt", "docs/b.txt")
    ...     tree.add_many((f"train/{i}.txt", b"%d" % i) for i in range(100))
    ...     result = tree.write(os.path.join(tmp.name, "image.erofs"))
    100
    >>> result.files
    101
    >>> tmp.cleanup()
    """

    def __init__(self, *, spool_dir: HostPath | None = None) -> None:
        self._native = _native.Builder(None if spool_dir is None else os.fsencode(spool_dir))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drops the tree. Further calls raise ValueError."""
        self._native.close()

    def add_bytes(
        self,
        data: Buffer,
        at: TreePath,
        *,
        mode: int = 0o644,
        mtime: float | None = None,
        owner: tuple[int, int] = (0, 0),
    ) -> None:
        """Adds a regular file with the contents `data`: bytes, or the memory of any object with the
        buffer protocol."""
        self._native.add_bytes(tree_path(at), _bytes(data), _meta(mode, mtime, owner))

    def add_many(
        self,
        files: Iterable[tuple[TreePath, Buffer]],
        *,
        mode: int = 0o644,
        mtime: float | None = None,
        owner: tuple[int, int] = (0, 0),
    ) -> int:
        """Adds files, pairs of path and contents, and returns their number. If the iterable raises,
        the files before that stay added. """
        pairs = ((tree_path(at), _bytes(data)) for at, data in files)
        return self._native.add_many(pairs, _meta(mode, mtime, owner))

    def add_file(self, path: HostPath, at: TreePath) -> None:
        """Adds the file at `path` on this system with owner, mode, times and attributes. Symbolic
        links are followed."""
        self._native.add_file(os.fsencode(path), tree_path(at))

    def add_tree(self, source: HostPath, at: TreePath = "/", *, concatenated: bool = False) -> None:
        """Merges a directory, or any other source that `pack` takes, over the tree at `at`."""
        self._native.add_tree(os.fsencode(source), tree_path(at), concatenated)

    def from_tar(self, fileobj: IO[bytes], at: TreePath = "/", *, concatenated: bool = False) -> None:
        """Merges a tar archive (compressed or not, or another archive) from an object with
        `read(size)` over the tree at `at`. With `concatenated`, concatenated archives are read as
        one.

        The archive is read to its end, and stored in an unnamed file until the image is written.
        """
        name = getattr(fileobj, "name", None)
        label = os.fsencode(name) if isinstance(name, (str, bytes)) else b"<archive>"
        self._native.add_archive(fileobj, tree_path(at), label, concatenated)

    def mkdir(
        self, at: TreePath, *, mode: int = 0o755, mtime: float | None = None, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """Adds a directory, or sets the metadata of an existing one. Missing parents are made."""
        self._native.mkdir(tree_path(at), _meta(mode, mtime, owner))

    def symlink(
        self, target: TreePath, at: TreePath, *, mtime: float | None = None, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """Adds a symbolic link at `at` to `target`."""
        self._native.symlink(tree_path(target), tree_path(at), _meta(0o777, mtime, owner))

    def link(self, existing: TreePath, at: TreePath) -> None:
        """Adds the hard link `at` to the file `existing` of this tree."""
        self._native.link(tree_path(existing), tree_path(at))

    def setxattr(self, at: TreePath, name: str | bytes, value: Buffer) -> None:
        """Sets an extended attribute of the file at `at`, for example `"user.label"`.

        Raises OSError (EOPNOTSUPP) for an attribute that EROFS cannot store. (Those of sources are
        left out: see `PackOptions.strict_xattrs`.) """
        self._native.setxattr(tree_path(at), tree_path(name), _bytes(value))

    def write(
        self,
        image: HostPath,
        options: PackOptions | None = None,
        *,
        progress: Progress | None = None,
        **keywords: Any,
    ) -> PackResult:
        """Writes the image, with the arguments of `pack`. The tree is dropped then.

        If an error occurs before the tree is read (`image` exists, options contradict each other),
        the tree stays, and `write` may be called again. """
        options = PackOptions.of(options, keywords)
        if options.concatenated:
            raise TypeError("concatenated: an option of add_tree and from_tar, not of write")
        written = self._native.write(local_path(image, "image"), options, progress)
        return finish(written, image, options)


def _bytes(data: Buffer) -> bytes:
    return data if type(data) is bytes else memoryview(data).tobytes()


def _meta(mode: int, mtime: float | None, owner: tuple[int, int]) -> tuple[int, int, int, int]:
    if not 0 <= mode <= 0o7777:
        raise ValueError(f"mode={mode:#o}: use permissions, 0 to 0o7777")
    uid, gid = owner
    if not (0 <= uid < 0xFFFFFFFF and 0 <= gid < 0xFFFFFFFF):
        raise ValueError(f"owner={owner}: ids are 0 to 4294967294")
    nanoseconds = 0 if mtime is None else mtime * 10**9 if isinstance(mtime, int) else int(mtime * 1e9)
    return mode, uid, gid, nanoseconds
