"""Pure paths of an image: the part of `pathlib` that reads nothing."""

from __future__ import annotations

import os
import posixpath

from ._names import decode, encode

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Self

    from ._verbs import ImageVerbs


class PurePath:
    """Immutable path in an image, absolute or relative. `kilnfs.Path` adds the methods that read
    the image.

    "//" and "." are removed from a path, ".." stays, as it may follow a link. Only paths of one
    image are ordered. """

    __slots__ = ("_image", "_path")

    parser: ModuleType = posixpath
    """Module that parses paths."""

    def __init__(self, image: ImageVerbs, *segments: str | PurePath | os.PathLike[str]) -> None:
        self._image = image
        self._path = normal(posixpath.join("", *map(_segment, segments)))

    @property
    def image(self) -> ImageVerbs:
        """Image of the path."""
        return self._image

    def with_segments(self, *segments: str | PurePath | os.PathLike[str]) -> Self:
        """Makes a path of the same image and class."""
        return type(self)(self._image, *segments)

    def __str__(self) -> str:
        return self._path

    def __vfspath__(self) -> str:
        return self._path

    def __kilnfs_path__(self) -> bytes:
        return encode(self._path)

    @property
    def __kilnfs_uuid__(self) -> bytes:
        return self._image._identity[1]

    def __bytes__(self) -> bytes:
        return encode(self._path)

    def as_posix(self) -> str:
        """Returns the path as text."""
        return self._path

    def __repr__(self) -> str:
        return f"<kilnfs.{type(self).__name__} {self._path!r} of {self._image.name!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._image, self._path)

    def __hash__(self) -> int:
        return hash((self._path, self._image._identity))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PurePath):
            return NotImplemented
        return self._path == other._path and self._image._identity == other._image._identity

    def _order(self, other: object) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Returns the parts to compare, or `None` if there is no order."""
        if not isinstance(other, PurePath) or self._image._identity != other._image._identity:
            return None
        return self.parts, other.parts

    def __lt__(self, other: object) -> bool:
        parts = self._order(other)
        return NotImplemented if parts is None else parts[0] < parts[1]

    def __le__(self, other: object) -> bool:
        parts = self._order(other)
        return NotImplemented if parts is None else parts[0] <= parts[1]

    def __gt__(self, other: object) -> bool:
        parts = self._order(other)
        return NotImplemented if parts is None else parts[0] > parts[1]

    def __ge__(self, other: object) -> bool:
        parts = self._order(other)
        return NotImplemented if parts is None else parts[0] >= parts[1]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the path, after "/" for an absolute path."""
        names = tuple(name for name in self._path.split("/") if name and name != ".")
        return ("/", *names) if self._path.startswith("/") else names

    @property
    def drive(self) -> str:
        """Empty text: only Windows has drives."""
        return ""

    @property
    def root(self) -> str:
        """Text "/" for an absolute path, else ""."""
        return "/" if self._path.startswith("/") else ""

    @property
    def anchor(self) -> str:
        """Text "/" for an absolute path, else ""."""
        return self.root

    @property
    def name(self) -> str:
        """Last name; "" for the root.

        >>> (image / "cat/1.txt").name
        '1.txt'
        """
        return "" if self._path == "." else posixpath.basename(self._path)

    @property
    def suffix(self) -> str:
        """End of the name from the last dot on."""
        return posixpath.splitext(self.name)[1]

    @property
    def suffixes(self) -> list[str]:
        """List of all suffixes of the name."""
        found: list[str] = []
        stem, suffix = posixpath.splitext(self.name)
        while suffix:
            found.append(suffix)
            stem, suffix = posixpath.splitext(stem)
        return found[::-1]

    @property
    def stem(self) -> str:
        """Name without its last suffix."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Self:
        """Directory of the path, derived from the text alone."""
        return self if self._path == "/" else self.with_segments(posixpath.dirname(self._path))

    @property
    def parents(self) -> tuple[Self, ...]:
        """Directories above the path, from the nearest up."""
        found: list[Self] = []
        path = self._path
        while path not in ("/", "."):
            path = posixpath.dirname(path) or "."
            found.append(self.with_segments(path))
        return tuple(found)

    def is_absolute(self) -> bool:
        """Returns true if the path begins at the root. Relative paths are resolved from the root,
        too."""
        return self._path.startswith("/")

    def absolute(self) -> Self:
        """Returns the path from the root."""
        return self if self.is_absolute() else self.with_segments("/", self._path)

    def joinpath(self, *segments: str | PurePath | os.PathLike[str]) -> Self:
        """Returns the path with more segments."""
        return self.with_segments(self._path, *segments)

    def __truediv__(self, name: str | PurePath | os.PathLike[str]) -> Self:
        try:
            return self.with_segments(self._path, name)
        except TypeError:
            return NotImplemented

    def __rtruediv__(self, name: str | PurePath | os.PathLike[str]) -> Self:
        try:
            return self.with_segments(name, self._path)
        except TypeError:
            return NotImplemented

    def with_name(self, name: str) -> Self:
        """Returns the path with another name."""
        if not self.name:
            raise ValueError(f"{self!r} has an empty name")
        if not name or "/" in name or name == ".":
            raise ValueError(f"Invalid name {name!r}")
        return self.with_segments(posixpath.dirname(self._path), name)

    def with_stem(self, stem: str) -> Self:
        """Returns the path with another stem and the same suffix."""
        if not stem and self.suffix:
            raise ValueError(f"{self!r} has a non-empty suffix")
        return self.with_name(stem + self.suffix)

    def with_suffix(self, suffix: str) -> Self:
        """Returns the path with another suffix, or without one for ""."""
        if not self.stem:
            raise ValueError(f"{self!r} has an empty name")
        if suffix and (not suffix.startswith(".") or suffix == "." or "/" in suffix):
            raise ValueError(f"Invalid suffix {suffix!r}")
        return self.with_name(self.stem + suffix)

    def relative_to(self, other: str | PurePath | os.PathLike[str], *, walk_up: bool = False) -> Self:
        """Returns the path relative to a directory; with `walk_up` also by "..".

        >>> str((image / "cat/1.txt").relative_to("/cat"))
        '1.txt'
        """
        base = self.with_segments(other)
        up: list[str] = []
        for above in (base, *base.parents):
            if self.is_relative_to(above):
                return self.with_segments(*up, *self.parts[len(above.parts) :])
            if not walk_up:
                raise ValueError(f"{self._path!r} is not in the subpath of {base._path!r}")
            if above.name == "..":
                raise ValueError(f"'..' segment in {base._path!r} cannot be walked")
            up.append("..")
        raise ValueError(f"{self._path!r} and {base._path!r} have different anchors")

    def is_relative_to(self, other: str | PurePath | os.PathLike[str]) -> bool:
        """Returns true if the path begins with another path."""
        above = self.with_segments(other)
        return self.root == above.root and self.parts[: len(above.parts)] == above.parts

    def match(self, pattern: str | PurePath) -> bool:
        """Returns true if the end of the path matches a pattern; an absolute pattern must match the
        whole path. `**` is the same as `*` here. """
        from ._glob import matcher

        wanted = self.with_segments(pattern).parts
        if not wanted:
            raise ValueError("empty pattern")
        parts = self.parts
        if len(wanted) > len(parts) or (wanted[0] == "/" and len(wanted) != len(parts)):
            return False
        return all(matcher(part)(name) for part, name in zip(wanted, parts[-len(wanted) :], strict=True))

    def full_match(self, pattern: str | PurePath) -> bool:
        """Returns true if the whole path matches a pattern; `**` matches any number of names.

        >>> (image / "cat/1.txt").full_match("/**/*.txt")
        True
        """
        from ._glob import matches

        wanted = self.with_segments(pattern)
        # A leading "**" also matches the root.
        if self.root != wanted.root and (wanted.root or wanted.parts[:1] != ("**",)):
            return False
        return matches(self.parts[len(self.root) :], wanted.parts[len(wanted.root) :])


def normal(path: str) -> str:
    """Returns a path without "//" and "."; "." for an empty relative path."""
    names = "/".join(name for name in path.split("/") if name and name != ".")
    return "/" + names if path.startswith("/") else names or "."


def _segment(segment: object) -> str:
    if isinstance(segment, str):
        return segment
    if isinstance(segment, PurePath):
        return segment._path
    raw = getattr(type(segment), "__kilnfs_path__", None)
    if raw is not None:
        return decode(raw(segment))
    if isinstance(segment, os.PathLike):
        text = os.fspath(segment)
        if isinstance(text, str):
            return text
    raise TypeError(f"a segment of a path must be str or a path, not {type(segment).__name__}")
