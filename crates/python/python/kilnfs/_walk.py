"""Walks over the trees of an image, which read directories only, never inodes of files.

In a sound image each directory has one name. In a hostile one a directory may have several, even
below itself: a walk stops with an error then, because it would not end. """

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
"""Length in characters of the longest path of a walk that follows links, which may form circles."""


def members(image: ImagePrimitives, top: FileRef, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Yields path (after `prefix`), nid and type (`S_IFMT`) of all files below a directory, each
    directory before its entries.

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
    """Yields the same as `os.walk`: path of a directory, names of its directories, names of its
    other files.

    Links to directories are among the directories, or with `links_are_files` among the files,
    unless they are followed. """
    seen: set[int] = set()
    stack: list[tuple[str, FileRef] | tuple[str, list[str], list[str]]] = [(prefix, top)]
    while stack:
        item = stack.pop()
        if len(item) == 3:
            yield item
            continue
        path, file = item
        try:
            if not follow:
                file = file if isinstance(file, int) else image._lookup(file, True)
                _visit(image, seen, file, path)
            elif len(path) > _PATH_MAX:
                raise OSError(errno.ELOOP, "directories form a circle", path, None, image.name)
            listed = _listed(image, file, path)
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
            # The caller may have removed, reordered and added names.
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
    """Returns true if a path leads to a directory."""
    try:
        return S_IFMT(image._stat(path, True)[0][0]) == S_IFDIR
    except OSError as error:
        if is_absence(error):
            return False
        raise


def _listed(image: ImagePrimitives, file: FileRef, path: str) -> list[tuple[bytes, int, int]]:
    """Returns the entries of a directory. Errors name `path`."""
    try:
        return image._listdir(file)
    except OSError as error:
        error.filename = path
        raise


def _visit(image: ImagePrimitives, seen: set[int], nid: int, path: str) -> None:
    if nid in seen:
        raise CorruptImageError(errno.EUCLEAN, f"the directory of nid {nid} has two names", path, None, image.name)
    seen.add(nid)
