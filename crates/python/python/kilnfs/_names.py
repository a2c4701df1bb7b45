"""Paths in an image: `str` is UTF-8 with surrogateescape, `bytes` are the bytes in the image."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Protocol, SupportsIndex, TypeGuard

    class HasPath(Protocol):
        """Object that represents a path in an image: `kilnfs.Path`, `DirEntry`, `Entry`, `File`."""

        # It may have `__kilnfs_uuid__`, the UUID of its image: other images refuse it.
        def __kilnfs_path__(self) -> bytes: ...

    Name = str | bytes | HasPath
    """Path in an image, absolute or from its root."""
    FileRef = str | bytes | int | HasPath
    """Reference to a file: its path or its nid."""


def decode(raw: bytes) -> str:
    """Returns a name of the image as `str`."""
    return raw.decode("utf-8", "surrogateescape")


def encode(name: Name) -> bytes:
    """Returns a path as bytes.

    Raises TypeError for other objects.
    """
    if isinstance(name, str):
        return name.encode("utf-8", "surrogateescape")
    if isinstance(name, bytes):
        return name
    raw = getattr(type(name), "__kilnfs_path__", None)
    if raw is None:
        raise TypeError(f"a path in an image is str, bytes or kilnfs.Path, not {type(name).__name__}")
    found: bytes = raw(name)
    return found


def name_file(error: OSError, path: str | bytes | None, image: Any) -> None:
    """Adds the file to an error that names only the image."""
    if path is not None and error.filename2 is None:
        error.filename, error.filename2 = path, image.name if error.filename is None else error.filename


def note_sample(error: BaseException, row: int, path: str | None, image: Any) -> None:
    """Adds a note with the sample to an error."""
    where = "" if path is None else f", {path!r}"
    error.add_note(f"sample {row}{where} of {image.name!r}")


def uuid_of(image: Any) -> bytes:
    """Returns the UUID of an image, which may be closed."""
    uuid: bytes = image._identity[1]
    return uuid


def refuse_foreign(file: object, image: Any) -> None:
    """Raises OSError (ESTALE) for a path or an index of another image."""
    uuid = getattr(file, "__kilnfs_uuid__", None)
    if uuid is not None and uuid != uuid_of(image):
        text = f"{file!r} belongs to an image with UUID {uuid.hex()}, and this one has {uuid_of(image).hex()}"
        raise failure(errno.ESTALE, None, image.name, text)


def one_file(path: Name | None, nid: SupportsIndex | None = None) -> FileRef:
    """Returns the file of a call that takes a path or `nid=`."""
    if nid is not None:
        if path is not None:
            raise TypeError("a path or nid=, not both")
        number = nid.__index__()
        if number < 0:
            raise ValueError(f"nid={number}: use 0 or more")
        return number
    if path is None:
        raise TypeError("a path is missing, or nid=")
    if hasattr(type(path), "__index__"):
        raise TypeError(
            f"a path (str, bytes, kilnfs.Path), not {type(path).__name__}: nid= takes an inode number"
        )
    return path


def is_name(value: object) -> TypeGuard[Name]:
    """Returns true for an object that may be a path in an image."""
    return isinstance(value, (str, bytes)) or hasattr(type(value), "__kilnfs_path__")


def as_text(name: Name) -> str:
    """Returns a path as `str`."""
    return name if isinstance(name, str) else decode(encode(name))


def joined(directory: str, name: str) -> str:
    """Returns the path of a name in a directory, which may be empty text."""
    return directory + name if not directory or directory.endswith("/") else f"{directory}/{name}"


def is_absence(error: OSError) -> bool:
    """Returns true for an error that means that there is no file with this name."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def failure(number: int, path: str | bytes | None, image: str, text: str | None = None) -> OSError:
    """Returns the OSError for an errno and a path in an image, of the subclass that Python has for
    the errno."""
    message = text or os.strerror(number)
    # Python drops the second name if there is no first.
    return OSError(number, message, image) if path is None else OSError(number, message, path, None, image)


def read_only(path: str | bytes, image: str) -> OSError:
    """Returns the error for an attempt to write."""
    return failure(errno.EROFS, path, image)
