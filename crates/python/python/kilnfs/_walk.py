"""Trees of an image, by their directories alone: no inode of a file is read.

No directory has two names in a sound image. In one that is hostile it may, its own ancestors included; a walk that
follows them would not end, so it stops with an error.
"""

from __future__ import annotations

import errno
from stat import S_IFDIR, S_IFLNK, S_IFMT

from ._errors import CorruptImageError
from ._names import decode, is_absence, joined

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._primitives import ImagePrimitives
    from ._names import FileRef

_PATH_MAX = 1 << 16
"""Longest path of a walk that follows links, in characters: links may lead in circles."""


def members(image: ImagePrimitives, top: FileRef, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Path (with `prefix` in front), nid and type (`S_IFMT`) of all that is below a directory, each directory before
    what is in it.

    Names are in stored order. Links are not followed.
    """
    nid = image._lookup(top, True)
    seen = {nid}
    stack = [(prefix, iter(_listed(image, nid, prefix)))]
    while stack:
        directory, rest = stack[-1]
        for name, nid, kind in rest:
            path = joined(directory, decode(name))
            yield path, nid, kind
            if kind == S_IFDIR:
                _visit(image, seen, nid, path)
                stack.append((path, iter(_listed(image, nid, path))))
                break
        else:
            stack.pop()


def walk(
    image: ImagePrimitives,
    top: FileRef,
    prefix: str,
    *,
    top_down: bool,
    on_error: Callable[[OSError], object] | None,
    follow: bool,
    links_are_files: bool,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """What `os.walk` yields: path of a directory, names of its directories, names of all else.

    Names of links to directories stand among those of directories, or with `links_are_files` of files, unless they are
    followed.
    """
    seen: set[int] = set()
    stack: list[tuple[str, FileRef] | tuple[str, list[str], list[str]]] = [(prefix, top)]
    while stack:
        item = stack.pop()
        if len(item) == 3:
            yield item
            continue
        path, what = item
        try:
            if not follow:
                what = what if isinstance(what, int) else image._lookup(what, True)
                _visit(image, seen, what, path)
            elif len(path) > _PATH_MAX:
                raise OSError(errno.ELOOP, "directories lead in a circle", path, None, image.name)
            listed = _listed(image, what, path)
        except OSError as error:
            if on_error is not None:
                on_error(error)
            elif not is_absence(error):
                raise
            continue
        found: dict[str, FileRef] = {}
        dirs: list[str] = []
        others: list[str] = []
        for raw, nid, kind in listed:
            name = decode(raw)
            if kind == S_IFDIR:
                dirs.append(name)
                found[name] = nid
            elif (
                kind == S_IFLNK
                and not (links_are_files and not follow)
                and leads_to_directory(image, joined(path, name))
            ):
                dirs.append(name)
                if follow:
                    found[name] = joined(path, name)
            else:
                others.append(name)
        if top_down:
            yield path, dirs, others
            # The caller may have removed names, changed their order, and added some.
            known = {decode(raw) for raw, _, _ in listed}
            stack += [
                (joined(path, name), found.get(name, joined(path, name)))
                for name in reversed(dirs)
                if name in found or name not in known
            ]
        else:
            stack.append((path, dirs, others))
            stack += [(joined(path, name), found[name]) for name in reversed(dirs) if name in found]


def leads_to_directory(image: ImagePrimitives, path: FileRef) -> bool:
    """Whether there is a directory behind a link."""
    try:
        return S_IFMT(image._stat(path, True)[0][0]) == S_IFDIR
    except OSError as error:
        if is_absence(error):
            return False
        raise


def _listed(image: ImagePrimitives, what: FileRef, path: str) -> list[tuple[bytes, int, int]]:
    """The entries of a directory; errors name `path`."""
    try:
        return image._listdir(what)
    except OSError as error:
        error.filename = path
        raise


def _visit(image: ImagePrimitives, seen: set[int], nid: int, path: str) -> None:
    if nid in seen:
        raise CorruptImageError(errno.EUCLEAN, f"the directory of nid {nid} has two names", path, None, image.name)
    seen.add(nid)
