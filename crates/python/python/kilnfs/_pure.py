"""Paths of an image as text: the part of `pathlib` that reads nothing."""

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
    """An image and a path in it, absolute or relative; immutable. `kilnfs.Path` adds what reads the image.

    "//" and "." are left out of a path, ".." is kept, as it may follow a link. Only paths of one image are ordered.
    """

    __slots__ = ("_image", "_path")

    parser: ModuleType = posixpath
    """How paths are taken apart."""

    def __init__(self, image: ImageVerbs, *segments: str | PurePath | os.PathLike[str]) -> None:
        self._image = image
        self._path = normal(posixpath.join("", *map(_segment, segments)))

    @property
    def image(self) -> ImageVerbs:
        """The image that the path is in."""
        return self._image

    def with_segments(self, *segments: str | PurePath | os.PathLike[str]) -> Self:
        """A path of the same image and class."""
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
        """The path as text."""
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
        """What to compare, or `None` if there is no order."""
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
        """The names, with "/" in front of those of an absolute path."""
        names = tuple(name for name in self._path.split("/") if name and name != ".")
        return ("/", *names) if self._path.startswith("/") else names

    @property
    def drive(self) -> str:
        """ "": only Windows has drives."""
        return ""

    @property
    def root(self) -> str:
        """ "/" of an absolute path, else ""."""
        return "/" if self._path.startswith("/") else ""

    @property
    def anchor(self) -> str:
        """ "/" of an absolute path, else ""."""
        return self.root

    @property
    def name(self) -> str:
        """The last name; "" of the root.

        >>> (image / "cat/1.txt").name
        '1.txt'
        """
        return "" if self._path == "." else posixpath.basename(self._path)

    @property
    def suffix(self) -> str:
        """What follows the last dot of the name, with the dot."""
        return posixpath.splitext(self.name)[1]

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name."""
        found: list[str] = []
        stem, suffix = posixpath.splitext(self.name)
        while suffix:
            found.append(suffix)
            stem, suffix = posixpath.splitext(stem)
        return found[::-1]

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> Self:
        """The directory, by the text alone."""
        return self if self._path == "/" else self.with_segments(posixpath.dirname(self._path))

    @property
    def parents(self) -> tuple[Self, ...]:
        """The directories, from the nearest up."""
        found: list[Self] = []
        path = self._path
        while path not in ("/", "."):
            path = posixpath.dirname(path) or "."
            found.append(self.with_segments(path))
        return tuple(found)

    def is_absolute(self) -> bool:
        """Whether the path begins at the root. The files of an image are found either way."""
        return self._path.startswith("/")

    def absolute(self) -> Self:
        """The path from the root."""
        return self if self.is_absolute() else self.with_segments("/", self._path)

    def joinpath(self, *segments: str | PurePath | os.PathLike[str]) -> Self:
        """The path of names below this one."""
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
        """The same directory, another name."""
        if not self.name:
            raise ValueError(f"{self!r} has an empty name")
        if not name or "/" in name or name == ".":
            raise ValueError(f"Invalid name {name!r}")
        return self.with_segments(posixpath.dirname(self._path), name)

    def with_stem(self, stem: str) -> Self:
        """The same suffix, another stem."""
        if not stem and self.suffix:
            raise ValueError(f"{self!r} has a non-empty suffix")
        return self.with_name(stem + self.suffix)

    def with_suffix(self, suffix: str) -> Self:
        """The same stem, another suffix; "" for none."""
        if not self.stem:
            raise ValueError(f"{self!r} has an empty name")
        if suffix and (not suffix.startswith(".") or suffix == "." or "/" in suffix):
            raise ValueError(f"Invalid suffix {suffix!r}")
        return self.with_name(self.stem + suffix)

    def relative_to(self, other: str | PurePath | os.PathLike[str], *, walk_up: bool = False) -> Self:
        """The path from a directory; with `walk_up` also by "..".

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
        """Whether the path begins with another."""
        above = self.with_segments(other)
        return self.root == above.root and self.parts[: len(above.parts)] == above.parts

    def match(self, pattern: str | PurePath) -> bool:
        """Whether the path ends with what the pattern says; an absolute pattern is for the whole path. `**` is `*`
        here.
        """
        from ._glob import matcher

        wanted = self.with_segments(pattern).parts
        if not wanted:
            raise ValueError("empty pattern")
        parts = self.parts
        if len(wanted) > len(parts) or (wanted[0] == "/" and len(wanted) != len(parts)):
            return False
        return all(matcher(part)(name) for part, name in zip(wanted, parts[-len(wanted) :], strict=True))

    def full_match(self, pattern: str | PurePath) -> bool:
        """Whether the whole path is what the pattern says; `**` stands for any number of names.

        >>> (image / "cat/1.txt").full_match("/**/*.txt")
        True
        """
        from ._glob import matches

        wanted = self.with_segments(pattern)
        # "**" in front stands for the root, too.
        if self.root != wanted.root and (wanted.root or wanted.parts[:1] != ("**",)):
            return False
        return matches(self.parts[len(self.root) :], wanted.parts[len(wanted.root) :])


def normal(path: str) -> str:
    """A path without "//" and "."; "." for a relative path of no names."""
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
    raise TypeError(f"a segment of a path is str or a path, not {type(segment).__name__}")
