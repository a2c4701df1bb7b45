"""Walks over the directories of an image, for `kilnfs.fs`: one call of the image for each
directory, none for files."""

from __future__ import annotations

import errno
import stat
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from ._errors import CorruptImageError
from ._fs_info import FoundInfo
from ._names import decode, is_absence, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._image import Image

    Level = tuple[str, list[tuple[str, int]], list[tuple[str, int, int]]]


_ROOM = (64 << 20, 64)
"""Largest length in bytes of all directories: a constant, and a factor for each byte of the image,
as directories may be compressed. An image with more is hostile: its directories share blocks, and
would fill all memory with names."""


def levels(image: Image, top: str, maxdepth: int | None) -> Iterator[Level]:
    """Yields the directories from `top` down: path; directories in it (path, nid), which come next
    and which the caller may change; and all entries (path, nid, type as in `st_mode`), sorted by
    name."""
    nid = image._lookup(top, True)
    seen = {nid}
    room = _ROOM[0] + _ROOM[1] * image.source_length
    stack = [(top, nid, 1)]
    while stack:
        path, nid, depth = stack.pop()
        entries = sorted((joined(path, decode(name)), below, kind) for name, below, kind in image._listdir(nid))
        room -= sum(12 + len(name) - len(path) for name, _, _ in entries)
        if room < 0:
            raise CorruptImageError(errno.EUCLEAN, "more names than the image can hold", path, None, image.name)
        dirs = [(name, nid) for name, nid, kind in entries if stat.S_ISDIR(kind)]
        yield path, dirs, entries
        if maxdepth is not None and depth >= maxdepth:
            continue
        for name, nid in reversed(dirs):
            # In a hostile image a directory may contain itself, and the walk would not end.
            if nid in seen:
                raise CorruptImageError(errno.EUCLEAN, f"directory {nid} is in two places", name, None, image.name)
            seen.add(nid)
            stack.append((name, nid, depth + 1))


def walk(
    image: Image,
    top: str,
    maxdepth: int | None,
    topdown: bool,
    on_error: Literal["omit", "raise"] | Callable[[OSError], object],
    detail: bool,
) -> Iterator[tuple[str, Any, Any]]:
    """Implements `walk` of fsspec. `on_error` applies to missing directories; a damaged image
    always raises its error."""
    below = levels(image, top, maxdepth)
    try:
        first = next(below)
    except OSError as error:
        if on_error == "raise" or not is_absence(error):
            raise
        if callable(on_error):
            on_error(error)
        return
    if not topdown:
        # Parents come after their children: the whole tree in reverse, and its directories, too.
        order = []
        for level in chain([first], below):
            level[1].reverse()
            order.append(level)
        for level in reversed(order):
            yield _shown(image, level, detail)
        return
    for level in chain([first], below):
        path, dirs, files = _shown(image, level, detail)
        yield path, dirs, files
        # The caller may have removed or reordered directories.
        places = {_last(name): (name, nid) for name, nid in level[1]}
        level[1][:] = [places[name] for name in dirs if name in places]


def _shown(image: Image, level: Level, detail: bool) -> tuple[str, Any, Any]:
    path, _, entries = level
    if not detail:
        dirs = [_last(name) for name, _, kind in entries if stat.S_ISDIR(kind)]
        return path, dirs, [_last(name) for name, _, kind in entries if not stat.S_ISDIR(kind)]
    infos = [(FoundInfo(image, name, nid, kind, None), stat.S_ISDIR(kind)) for name, nid, kind in entries]
    return (
        path,
        {_last(i["name"]): i for i, is_dir in infos if is_dir},
        {_last(i["name"]): i for i, is_dir in infos if not is_dir},
    )


def _last(path: str) -> str:
    return path.rpartition("/")[2]
