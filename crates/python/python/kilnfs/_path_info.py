"""Type of the file at a path, as in `pathlib.types.PathInfo`."""

from __future__ import annotations

from stat import S_IFDIR, S_IFLNK, S_IFREG

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._verbs import ImageVerbs


class PathInfo:
    """Type of the file at a path, as `pathlib.types.PathInfo`; taken from the entry of a directory
    if the path comes from one. Read once and kept. """

    __slots__ = ("_image", "_kinds", "_path")

    def __init__(self, image: ImageVerbs, path: str, kind: int | None = None) -> None:
        self._image = image
        self._path = path
        # Type of the file itself (False), and of the file that it leads to (True).
        self._kinds: dict[bool, int] = {}
        if kind is not None:
            self._kinds[False] = kind
            if kind != S_IFLNK:
                self._kinds[True] = kind

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true if there is a file of any type."""
        return self._kind(follow_symlinks) != 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a directory."""
        return self._kind(follow_symlinks) == S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Returns true for a regular file."""
        return self._kind(follow_symlinks) == S_IFREG

    def is_symlink(self) -> bool:
        """Returns true for a symbolic link."""
        return self._kind(False) == S_IFLNK

    def _kind(self, follow: bool) -> int:
        kind = self._kinds.get(follow)
        if kind is None:
            kind = self._kinds[follow] = self._image._type(self._path, follow)
        return kind

    def __repr__(self) -> str:
        return f"<kilnfs.PathInfo of {self._path!r}>"
