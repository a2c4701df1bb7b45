"""Extraction, with the filters of PEP 706.

The native module writes: never outside of the target, and never through an existing link. Files
that a filter refuses are found here, before anything is written. """

from __future__ import annotations

import errno
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG

from ._names import decode, failure, is_absence
from ._resolve import Escape, resolve
from ._walk import members as members_below

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ._primitives import ImagePrimitives

_FILTERS = ("fully_trusted", "tar", "data")


def extract(
    image: ImagePrimitives,
    members: Sequence[bytes] | None,
    target: bytes,
    filter: str,
    overwrite: bool,
    threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Writes these files and the trees below them to the directory `target`; `None` for all."""
    if filter not in _FILTERS:
        raise ValueError(f"filter={filter!r}: use {', '.join(map(repr, _FILTERS))}")
    chosen: list[bytes] = []
    if members is not None:
        # A member must exist under its own name, not behind a link, which is a file of its own.
        chosen = [_inside(image, member) for member in members]
        if not chosen:
            return
        if b"" in chosen:  # the root: everything
            chosen = []
    if filter == "data":
        for path, nid, kind in _all(image, chosen):
            _refuse(image, path, nid, kind)
    image._extract(chosen, target, policy=filter, overwrite=overwrite, threads=threads, progress=progress)


def _inside(image: ImagePrimitives, member: bytes) -> bytes:
    """Returns a member's path from the root. Refuses a path with "..", and one through a link,
    which is a file of its own."""
    names = [name for name in member.split(b"/") if name not in (b"", b".")]
    if b".." in names:
        raise failure(errno.EINVAL, decode(member), image.name, 'the path of a member to extract must not contain ".."')
    directory = "/" + decode(b"/".join(names[:-1]))
    if resolve(image, directory, strict=True) != directory:
        reason = "the path of a member to extract must not contain a link"
        raise failure(errno.ENOTDIR, decode(member), image.name, reason)
    path = b"/".join(names)
    image._lookup(path or b"/", False)
    return path


def _all(image: ImagePrimitives, chosen: Sequence[bytes]) -> Iterator[tuple[str, int, int]]:
    """Yields path, nid and type of all files that will be written."""
    for member in chosen or [b""]:
        nid = image._lookup(member or b"/", False)
        kind = S_IFMT(image._stat(nid, False)[0][0])
        yield decode(member), nid, kind
        if kind == S_IFDIR:
            yield from members_below(image, nid, decode(member))


def _refuse(image: ImagePrimitives, path: str, nid: int, kind: int) -> None:
    """Raises PermissionError for a file that the filter "data" refuses."""
    if kind == S_IFLNK:
        directory = path.rpartition("/")[0]
        link = decode(image._readlink(nid))
        try:
            if link.startswith("/"):
                raise Escape
            resolve(image, f"{directory}/{link}", strict=False, confined=True)
        except Escape:
            reason = f"the link leads out of the image, to {link!r}"
            raise failure(errno.EPERM, path, image.name, f'{reason}: filter="data" refuses it') from None
        except OSError as error:
            # A loop leads nowhere, so it does not lead out.
            if not is_absence(error):
                raise
    elif kind not in (S_IFDIR, S_IFREG):
        raise failure(errno.EPERM, path, image.name, 'a device, FIFO or socket: filter="data" refuses it')
