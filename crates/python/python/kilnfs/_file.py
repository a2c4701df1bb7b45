"""Files of an image as file objects of Python."""

from __future__ import annotations

import errno
import io
import os
from _thread import RLock
from stat import S_ISDIR, S_ISREG

from ._names import as_text, encode, failure, name_file, read_only, uuid_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import BinaryIO

    from typing_extensions import Buffer

    from ._primitives import ImagePrimitives
    from ._names import FileRef

    class _RawIO(io.RawIOBase, BinaryIO):  # as io.FileIO is for type checkers
        pass

else:
    _RawIO = io.RawIOBase

# Identity of the process. A forked child gets a new one and new locks, because the thread that held
# a lock at the fork does not exist there.
_process = object()


def _enter_child() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_enter_child)


class File(_RawIO):
    """Regular file of an image without a buffer, as from `open(…, "rb", buffering=0)`. Several
    threads may use it at once. """

    mode = "rb"

    def __init__(self, image: ImagePrimitives, ref: FileRef) -> None:
        super().__init__()
        path = _shown(ref)
        nid = image._lookup(ref, True)
        numbers = image._stat(nid, True)[0]
        if S_ISDIR(numbers[0]):
            raise failure(errno.EISDIR, path, image.name)
        if not S_ISREG(numbers[0]):
            raise failure(errno.EINVAL, path, image.name, "devices, FIFOs and sockets have no contents")
        self.image = image
        """Image with the file."""
        self.nid = nid
        """Inode number."""
        self._path = path
        self._size = numbers[6]
        self._position = 0
        self._locks: dict[object, RLock] = {}

    @property
    def name(self) -> str | bytes | int:
        """Path as it was given, or the nid of a file that was opened by nid."""
        return self.nid if self._path is None else self._path

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def readable(self) -> bool:
        """Returns true. Raises ValueError if the file is closed."""
        self._check()
        return True

    def seekable(self) -> bool:
        """Returns true. Raises ValueError if the file is closed."""
        self._check()
        return True

    def tell(self) -> int:
        """Returns the position in bytes, where the next read begins."""
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to a position in bytes from the start, from the current position (1) or from the
        end (2), and returns it. It may be behind the end, but not before the start (OSError,
        EINVAL). """
        self._check()
        with self._moving():
            if whence == os.SEEK_CUR:
                offset += self._position
            elif whence == os.SEEK_END:
                offset += self._size
            elif whence != os.SEEK_SET:
                raise ValueError(f"whence={whence!r}: use 0, 1 or 2")
            if offset < 0:
                raise failure(errno.EINVAL, self._path, self.image.name)
            self._position = offset
        return offset

    def readinto(self, buffer: Buffer, /) -> int:
        """Reads into a writable buffer without a copy, and returns the number of bytes read: 0 at
        the end."""
        with memoryview(buffer) as view, view.cast("B") as into:
            start, stop = self._claim(len(into))
            if start < stop:
                with into[: stop - start] as part, self._restoring(start, stop):
                    self.image.read_into(buffer=part, nid=self.nid, start=start)
        return stop - start

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns `size` bytes from the position on, all by default; fewer only at the end."""
        start, stop = self._claim(self._size if size is None or size < 0 else size)
        if start >= stop:
            return b""
        with self._restoring(start, stop):
            return self.image.read(None, start, stop, nid=self.nid)

    def readall(self) -> bytes:
        """Returns all bytes from the position on."""
        return self.read()

    def _moving(self) -> RLock:
        """Returns the lock of the position. It is held for a few instructions, never during a read,
        and is reentrant, because a signal handler may read the same file."""
        return self._locks.get(_process) or self._locks.setdefault(_process, RLock())

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _claim(self, size: int) -> tuple[int, int]:
        """Returns first byte and end of the range that this thread reads, and moves the position
        behind it."""
        self._check()
        with self._moving():
            start = self._position
            stop = max(start, min(start + size, self._size))
            self._position = stop
        return start, stop

    def _restoring(self, start: int, stop: int) -> _Restoring:
        return _Restoring(self, start, stop)

    def __kilnfs_path__(self) -> bytes:
        if self._path is None:
            raise TypeError("this file was opened by nid and has no path")
        return encode(self._path)

    @property
    def __kilnfs_uuid__(self) -> bytes:
        return uuid_of(self.image)

    def __repr__(self) -> str:
        return f"<kilnfs.File {self.name!r} of {self.image.name!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (type(self), self.image, self.name, self.tell())

    def __reduce_ex__(self, protocol: object, /) -> tuple[object, ...]:
        return self.__reduce__()


class _Restoring:
    """Restores a position if the bytes before it could not be read."""

    __slots__ = ("_file", "_start", "_stop")

    def __init__(self, file: File, start: int, stop: int) -> None:
        self._file, self._start, self._stop = file, start, stop

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            name_file(error, self._file._path, self._file.image)
        if kind is not None:
            with self._file._moving():
                if self._file._position == self._stop:
                    self._file._position = self._start


class BufferedFile(io.BufferedReader):
    """Regular file of an image, as from `open(…, "rb")`: an `io.BufferedReader` that can be
    pickled."""

    raw: File
    """File without the buffer."""

    def __init__(self, raw: File, buffer_size: int) -> None:
        super().__init__(raw, buffer_size)
        self._buffer_size = buffer_size

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.raw.size

    def __kilnfs_path__(self) -> bytes:
        return self.raw.__kilnfs_path__()

    @property
    def __kilnfs_uuid__(self) -> bytes:
        return self.raw.__kilnfs_uuid__

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuffered, (type(self), self.raw, self._buffer_size, self.tell())

    def __reduce_ex__(self, protocol: object, /) -> tuple[object, ...]:
        return self.__reduce__()


def _reopened(cls: type[File], image: ImagePrimitives, ref: FileRef, position: int) -> File:
    file = cls(image, ref)
    file.seek(position)
    return file


def _rebuffered(cls: type[BufferedFile], raw: File, buffer_size: int, position: int) -> BufferedFile:
    file = cls(raw, buffer_size)
    file.seek(position)
    return file


def open_file(
    image: ImagePrimitives,
    ref: FileRef,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> File | BufferedFile | io.TextIOWrapper:
    """Opens a file of an image, as `builtins.open` does."""
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    letters = set(mode)
    if letters - set("axrwb+t") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if {"t", "b"} <= letters:
        raise ValueError("can't have text and binary mode at once")
    if len(letters & set("axrw")) > 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    if letters & set("axw"):
        raise read_only(ref if isinstance(ref, (str, bytes)) else str(ref), image.name)
    if "b" in letters:
        for name, value in (("an encoding", encoding), ("an errors", errors), ("a newline", newline)):
            if value is not None:
                raise ValueError(f"binary mode doesn't take {name} argument")
        if buffering == 1:
            import warnings

            message = "line buffering (buffering=1) isn't supported in binary mode, the default size will be used"
            warnings.warn(message, RuntimeWarning, 3)
    if "r" not in letters:
        raise ValueError("must have exactly one of create/read/write/append mode")
    if "+" in letters:
        raise read_only(ref if isinstance(ref, (str, bytes)) else str(ref), image.name)
    if buffering == 0 and "b" not in letters:
        raise ValueError("can't have unbuffered text I/O")
    raw = File(image, ref)
    if buffering == 0:
        return raw
    # A file that fits is read by one call.
    size = buffering if buffering > 1 else min(max(raw.size, 4 << 10), 128 << 10)
    buffered = BufferedFile(raw, size)
    if "b" in letters:
        return buffered
    text = io.TextIOWrapper(buffered, io.text_encoding(encoding, 3), errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]  # as builtins.open does
    return text


def _shown(ref: FileRef) -> str | bytes | None:
    """Returns the path for errors and `name`; `None` for a nid."""
    if isinstance(ref, (str, bytes)):
        return ref
    return None if isinstance(ref, int) else as_text(ref)
