"""Links of an image, followed by name: where a path really is."""

from __future__ import annotations

import errno
from stat import S_ISLNK

from ._names import decode, encode, failure, is_absence

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._primitives import ImagePrimitives

_LINKS_MAX = 40
"""As many as Linux follows."""


class Escape(Exception):
    """A path leads above the root."""


def resolve(image: ImagePrimitives, path: str, *, strict: bool, confined: bool = False) -> str:
    """The path without links, "." and "..", from the root.

    What does not exist is kept as it is, or with `strict` a FileNotFoundError; a loop is an OSError (ELOOP) with
    `strict`, and else stays. With `confined`, absolute targets and ".." at the root are an `Escape`: outside of this
    image, as a tree in some directory, they would lead elsewhere.
    """
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
    """The target of a link, `None` of what is none."""
    nid = image._lookup(encode(path), False)
    return decode(image._readlink(nid)) if S_ISLNK(image._stat(nid, False)[0][0]) else None
