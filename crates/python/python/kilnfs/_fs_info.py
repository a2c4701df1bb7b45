"""Metadata of files for `kilnfs.fs`: the dictionaries of `info`, `ls` and `find`."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

from ._names import decode, is_absence

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView

    from ._image import Image

_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def type_name(mode: int) -> str:
    """Returns the name of an inode's type in fsspec."""
    return _TYPES.get(stat.S_IFMT(mode), "other")


def info_of(image: Image, name: str, nid: int) -> dict[str, Any]:
    """Returns the metadata of a directory entry. A symbolic link has type "link", and the size of
    the file that it leads to (0 if there is none)."""
    numbers, more = image._stat(nid, False)
    info = _info(name, numbers, more)
    if stat.S_ISLNK(numbers[0]):
        info["destination"] = decode(image._readlink(nid))
        info["islink"] = True
        info["size"] = _size_behind(image, name)
    return info


def followed_info_of(image: Image, name: str) -> dict[str, Any]:
    """Returns the metadata of the file that a path leads to. `islink` and `destination` are those
    of the path itself."""
    nid = image._lookup(name, False)
    numbers, more = image._stat(nid, False)
    if not stat.S_ISLNK(numbers[0]):
        return _info(name, numbers, more)
    info = _info(name, *image._stat(name, True))
    info["destination"] = decode(image._readlink(nid))
    info["islink"] = True
    return info


def _info(name: str, numbers: tuple[int, ...], more: dict[str, int]) -> dict[str, Any]:
    mode, ino, _, nlink, uid, gid, size = numbers[:7]
    return {
        "name": name,
        # As in archives: the stored length of a directory says nothing about its files.
        "size": 0 if stat.S_ISDIR(mode) else size,
        "type": type_name(mode),
        "mode": mode,
        "uid": uid,
        "gid": gid,
        "mtime": more["st_mtime_ns"] / 1e9,
        "nlink": nlink,
        "ino": ino,
        "islink": False,
    }


def _size_behind(image: Image, link: str) -> int:
    try:
        numbers = image._stat(link, True)[0]
    except OSError as error:
        if not is_absence(error):
            raise
        return 0
    return 0 if stat.S_ISDIR(numbers[0]) else numbers[6]


class Sizes:
    """Lengths in bytes of all regular files below a directory, read by one pass over the metadata
    at the first access.

    `of` returns `None` for files that the pass did not find.
    """

    def __init__(self, image: Image, root: str) -> None:
        self._image = image
        self._root = root
        self._sizes: dict[int, int] | None = None

    def of(self, nid: int) -> int | None:
        if self._sizes is None:
            try:
                index = self._image._index(self._root)
            except OSError:
                # One inode is damaged: only access to that one should fail.
                self._sizes = {}
            else:
                self._sizes = dict(zip(index.nids, index.sizes, strict=True))
        return self._sizes.get(nid)


class FoundInfo(dict[str, Any]):
    """Metadata of a file from `find`: name, type and ino at once, the rest at the first access.

    A search through a million names therefore reads only the directories. Methods that see more
    than one key see all. """

    __slots__ = ("_image", "_nid", "_sizes")

    def __init__(self, image: Image, name: str, nid: int, mode: int, sizes: Sizes | None) -> None:
        super().__init__(name=name, type=type_name(mode), ino=nid, islink=stat.S_ISLNK(mode))
        self._image: Image | None = image
        self._nid = nid
        self._sizes = sizes
        if stat.S_ISDIR(mode):
            super().__setitem__("size", 0)

    def _whole(self) -> None:
        image = self._image
        if image is not None:
            known = info_of(image, super().__getitem__("name"), self._nid)
            for key, value in known.items():
                super().setdefault(key, value)
            self._image = self._sizes = None

    def __missing__(self, key: str) -> Any:
        if self._image is None:
            raise KeyError(key)
        if key == "size" and self._sizes is not None and super().__getitem__("type") == "file":
            size = self._sizes.of(self._nid)
            if size is not None:
                super().__setitem__("size", size)
                return size
        self._whole()
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key):
            self._whole()
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._whole()
        return super().__iter__()

    def __len__(self) -> int:
        self._whole()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FoundInfo):
            other._whole()
        self._whole()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        self._whole()
        return super().__repr__()

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self._whole()
        return super().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._whole()
        return super().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._whole()
        return super().items()

    def pop(self, *args: Any) -> Any:
        self._whole()
        return super().pop(*args)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._whole()
        return super().setdefault(key, default)

    def copy(self) -> dict[str, Any]:
        self._whole()
        return dict(super().items())

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return dict, (self.copy(),)
