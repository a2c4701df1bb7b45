"""What is at a path, as `pathlib.types.PathInfo` has it."""

from __future__ import annotations

from stat import S_IFDIR, S_IFLNK, S_IFREG

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._verbs import ImageVerbs


class PathInfo:
    """What is at a path, as `pathlib.types.PathInfo`; from a directory's entry, if the path comes from one. Asked once,
    and kept.
    """

    __slots__ = ("_image", "_kinds", "_path")

    def __init__(self, image: ImageVerbs, path: str, kind: int | None = None) -> None:
        self._image = image
        self._path = path
        # Type of the file itself (False) and of what it leads to (True).
        self._kinds: dict[bool, int] = {}
        if kind is not None:
            self._kinds[False] = kind
            if kind != S_IFLNK:
                self._kinds[True] = kind

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is something."""
        return self._kind(follow_symlinks) != 0

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
        return self._kind(follow_symlinks) == S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return self._kind(follow_symlinks) == S_IFREG

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._kind(False) == S_IFLNK

    def _kind(self, follow: bool) -> int:
        kind = self._kinds.get(follow)
        if kind is None:
            kind = self._kinds[follow] = self._image._type(self._path, follow)
        return kind

    def __repr__(self) -> str:
        return f"<kilnfs.PathInfo of {self._path!r}>"
