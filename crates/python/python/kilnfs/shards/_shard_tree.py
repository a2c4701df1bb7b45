"""Tree of directories over all shards: lookup of paths, and the shards that may have files of a
directory."""

from __future__ import annotations

import errno
from bisect import bisect_right
from stat import S_IFDIR, S_IFMT, S_ISLNK
from typing import TYPE_CHECKING, Any

from .._names import decode, failure, is_absence
from ._group import group_key, hash_shard, path_key
from ._manifest import DIRECTORIES_MAX_LEN, Manifest, ManifestError
from ._plan import _digest
from ._store import store_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._image import Image
    from ._window import ShardWindow

_LINKS_MAX = 40
"""Largest number of symbolic links that are followed in a path, as on Linux."""
NID_BITS = 64
DIRECTORY = 1 << 96
"""Bit in the number of a directory, whose other bits are its position in the list of directories.
The number of a file is the number of its shard above `NID_BITS` bits of the nid there."""


class ShardTree:
    """Paths of all shards. The list of directories is read at the first access."""

    def __init__(self, place: str, manifest: Manifest, window: ShardWindow, storage_options: dict[str, Any]) -> None:
        self._place, self._manifest, self._window, self._storage_options = place, manifest, window, storage_options
        self._first_keys = [path_key(first) for first in manifest.first]
        self._listed: Directories | None = None

    @property
    def directories(self) -> Directories:
        """All directories."""
        if self._listed is None:
            manifest = self._manifest
            url, _, name = manifest.directories.rpartition("/")
            listed = store_of(url, self._storage_options).read(name, DIRECTORIES_MAX_LEN)
            if _digest(listed) != manifest.directories_digest:
                reason = f"not that of {manifest.directories}"
                raise ManifestError(f"{self._place}: directories_digest = {manifest.directories_digest!r}: {reason}")
            self._listed = Directories(listed)
        return self._listed

    def resolve(self, path: bytes, follow: bool) -> int:
        """Returns the number of the file at a path."""
        self._window.check_open()
        todo = path.split(b"/")[::-1]
        resolved: list[bytes] = []
        links = 0
        tree = self.directories
        while todo:
            name = todo.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                del resolved[-1:]
                continue
            here = b"/".join((*resolved, name))
            if tree.find(here) is not None:
                resolved.append(name)
                continue
            number, target = self._file_at(here, path)
            # A name before a slash must be a directory.
            is_last = not todo
            if target is None or (is_last and not follow):
                if is_last:
                    return number
                raise failure(errno.ENOTDIR, decode(path), self._place)
            links += 1
            if links > _LINKS_MAX:
                raise failure(errno.ELOOP, decode(path), self._place)
            if target.startswith(b"/"):
                resolved.clear()
            todo += target.split(b"/")[::-1]
        place = tree.find(b"/".join(resolved))
        assert place is not None, "each directory on the way was found"
        return DIRECTORY | place

    def _file_at(self, here: bytes, path: bytes) -> tuple[int, bytes | None]:
        """Returns the number of a file other than a directory, and its target if it is a link."""
        shard = self.shard_of(here)
        image = self._window.get(shard).image
        try:
            nid = image._lookup(b"/" + here, False)
            mode = image._stat(nid, False)[0][0]
        except OSError as error:
            if is_absence(error):
                raise failure(error.errno or errno.ENOENT, decode(path), self._place) from None
            raise
        if S_IFMT(mode) == S_IFDIR:
            # The directory is missing in the list, so shard and list do not belong together.
            raise failure(
                errno.EUCLEAN, decode(here), self._place, "a directory that is not in the list of directories"
            )
        return shard << NID_BITS | nid, image._readlink(nid) if S_ISLNK(mode) else None

    def shard_of(self, path: bytes) -> int:
        """Returns the only shard that may have the file at a path."""
        manifest = self._manifest
        if manifest.by == "hash":
            return hash_shard(group_key(path), manifest.seed, len(manifest))
        return max(0, bisect_right(self._first_keys, path_key(path)) - 1)

    def candidates(self, directory: bytes) -> Iterator[int]:
        """Yields the shards that may have files of a directory."""
        count = len(self._manifest)
        if self._manifest.by == "hash":
            yield from range(count)
            return
        key = tuple((part, b"") for part in directory.split(b"/")) if directory else ()
        first = max(0, bisect_right(self._first_keys, key) - 1)
        for number in range(first, count):
            if number > first and self._first_keys[number][: len(key)] > key:
                return
            yield number

    def images_with(self, directory: bytes) -> Iterator[Image]:
        """Yields the images that may have a directory, open ones first."""
        candidates = list(self.candidates(directory))
        # An empty directory is a file of its own.
        candidates.append(self.shard_of(directory))
        for number in sorted(candidates, key=lambda number: number not in self._window):
            yield self._window.get(number).image


class Directories:
    """Directories of a tree, by path and by number."""

    def __init__(self, listed: bytes) -> None:
        # The root comes first.
        self._paths = [b"", *listed.split(b"\0")[:-1]]
        self._places = {path: place for place, path in enumerate(self._paths)}
        self._children: dict[bytes, list[tuple[bytes, int]]] | None = None

    def find(self, path: bytes) -> int | None:
        return self._places.get(path)

    def path(self, place: int) -> bytes:
        return self._paths[place]

    def children(self, path: bytes) -> list[tuple[bytes, int]]:
        """Returns names and numbers of the directories in a directory."""
        if self._children is None:
            children: dict[bytes, list[tuple[bytes, int]]] = {}
            for place, one in enumerate(self._paths):
                if one:
                    parent, _, name = one.rpartition(b"/")
                    children.setdefault(parent, []).append((name, place))
            self._children = children
        return self._children.get(path, [])
