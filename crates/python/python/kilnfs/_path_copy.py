"""Copies of files and trees of an image to the host, by `Path.copy`."""

from __future__ import annotations

import errno
import os
import pathlib
import tempfile
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG

from ._errors import CorruptImageError
from ._names import decode, encode, failure

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._primitives import ImagePrimitives
    from ._path import Path

_CHUNK_LEN = 1 << 20
"""Length in bytes of the buffer of a copy."""


def copy(
    source: Path, target: str | os.PathLike[str], *, follow_symlinks: bool, preserve_metadata: bool
) -> pathlib.Path:
    """Implements `Path.copy`. A target that is a writable path of `pathlib.types` copies by its own
    method."""
    if not isinstance(target, (str, os.PathLike)):
        take = getattr(target, "_copy_from", None)
        if take is None:
            raise TypeError(f"the target must be a path on the host, not {type(target).__name__}")
        take(source, follow_symlinks=follow_symlinks)
        return target.joinpath()
    Copy(source.image, follow_symlinks, preserve_metadata).copy(encode(source), os.fsencode(target))
    return pathlib.Path(target)


class Copy:
    """Options of one copy."""

    def __init__(self, image: ImagePrimitives, follow: bool, metadata: bool) -> None:
        self._image = image
        self._follow = follow
        self._metadata = metadata

    def copy(self, path: bytes, target: bytes) -> None:
        """Copies a file or a tree."""
        # Each file comes with the nids of the directories above it, because a link may lead to one
        # of these, and with those that were seen since the last link, because each directory has
        # one name in a sound image. The time of a directory is set after its entries are written.
        todo = [(path, target, frozenset[int](), set[int]())]
        made: list[tuple[int, bytes]] = []
        while todo:
            path, target, above, seen = todo.pop()
            nid = self._image._lookup(path, False)
            kind = S_IFMT(self._image._stat(nid, False)[0][0])
            if kind == S_IFLNK and self._follow:
                nid, seen = self._image._lookup(path, True), set()
                kind = S_IFMT(self._image._stat(nid, False)[0][0])
            if kind == S_IFDIR:
                if nid in above:
                    raise failure(errno.ELOOP, decode(path), self._image.name, "the directory contains itself")
                if nid in seen:
                    text = f"the directory of nid {nid} has two names"
                    raise CorruptImageError(errno.EUCLEAN, text, decode(path), None, self._image.name)
                seen.add(nid)
                os.mkdir(target)
                made.append((nid, target))
                below = above | {nid}
                names = [name for name, _, _ in self._image._listdir(nid)]
                todo += [
                    (path.rstrip(b"/") + b"/" + name, target + b"/" + name, below, seen) for name in reversed(names)
                ]
            elif kind == S_IFLNK:
                os.symlink(self._image._readlink(nid), target)
            elif kind == S_IFREG:
                self._copy_file(nid, target)
            else:
                raise failure(errno.EINVAL, decode(path), self._image.name, "devices, FIFOs and sockets are not copied")
        if self._metadata:
            for nid, target in reversed(made):
                self._set_metadata(nid, target)

    def _copy_file(self, nid: int, target: bytes) -> None:
        """Writes a file under a temporary name, and renames it when it is complete."""
        directory, name = os.path.split(target)
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(target))
        fd, temporary = tempfile.mkstemp(prefix=b"." + name[:200] + b".", dir=directory or b".")
        try:
            with open(fd, "wb", buffering=0) as file:
                size = self._image._stat(nid, False)[0][6]
                buffer = memoryview(bytearray(min(size, _CHUNK_LEN)))
                start = 0
                while start < size:
                    count = self._image.read_into(buffer=buffer, nid=nid, start=start)
                    if not count:
                        raise failure(errno.EIO, None, self._image.name, f"nid {nid} ends at byte {start} of {size}")
                    written = 0
                    while written < count:  # a write may be short
                        written += file.write(buffer[written:count])
                    start += count
                # The umask applies, as for any new file; mkstemp permits only the owner to read.
                os.fchmod(fd, 0o666 & ~_umask())
            if self._metadata:
                self._set_metadata(nid, temporary)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise

    def _set_metadata(self, nid: int, target: bytes) -> None:
        numbers, named = self._image._stat(nid, False)
        os.chmod(target, numbers[0] & 0o777)
        os.utime(target, ns=(named["st_mtime_ns"], named["st_mtime_ns"]))


def _umask() -> int:
    """Returns the umask, without changing it for other threads meanwhile."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o022
