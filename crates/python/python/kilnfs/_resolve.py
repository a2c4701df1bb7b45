"""Resolution of the links in a path of an image."""

from __future__ import annotations

import errno
from stat import S_ISLNK

from ._names import decode, encode, failure, is_absence

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._primitives import ImagePrimitives

_LINKS_MAX = 40
"""Largest number of links that are followed in a path, as on Linux."""


class Escape(Exception):
    """Error of a path that leads above the root."""


def resolve(image: ImagePrimitives, path: str, *, strict: bool, confined: bool = False) -> str:
    """Returns the path from the root without links, "." and "..".

    Names that do not exist and loops stay as they are, or with `strict` raise FileNotFoundError and
    OSError (ELOOP). With `confined`, absolute targets and ".." at the root raise `Escape`: in a
    tree that is extracted to a directory, they would lead out of it. """
    resolved: list[str] = []
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        name = todo.pop()
        if not name or name == ".":
            continue
        if name == "..":
            if resolved:
                resolved.pop()
            elif confined:
                raise Escape
            continue
        here = "/" + "/".join((*resolved, name))
        try:
            target = _target(image, here)
        except OSError as error:
            if strict or not is_absence(error):
                error.filename = here
                raise
            target = None
        if target is None:
            resolved.append(name)
            continue
        links += 1
        if links > _LINKS_MAX:
            if strict or confined:
                raise failure(errno.ELOOP, path, image.name)
            return "/" + "/".join((*resolved, name, *(rest for rest in reversed(todo) if rest)))
        if target.startswith("/"):
            if confined:
                raise Escape
            resolved = []
        todo += target.split("/")[::-1]
    return "/" + "/".join(resolved)


def _target(image: ImagePrimitives, path: str) -> str | None:
    """Returns the target of a link, or `None` for other files."""
    nid = image._lookup(encode(path), False)
    return decode(image._readlink(nid)) if S_ISLNK(image._stat(nid, False)[0][0]) else None
