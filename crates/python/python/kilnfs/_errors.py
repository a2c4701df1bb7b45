"""Errors of images. All other errors are built-in exceptions: FileNotFoundError, IsADirectoryError,
ValueError, …"""

from __future__ import annotations

import errno

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._urls import Redaction


class ImageError(OSError):
    """Error of an image that is damaged, or uses an unsupported feature.

    `filename` is the path in the image, and `filename2` the image; if no path is known, `filename`
    is the image. """

    nid: int | None = None
    """Inode with the error."""
    offset: int | None = None
    """Offset in bytes of the record, or of the pcluster."""
    field: str | None = None
    """Name of the field, as in the kernel."""

    @property
    def path(self) -> str | None:
        """Path in the image, if it is known."""
        path: str | None = None if self.filename2 is None else self.filename
        return path


class CorruptImageError(ImageError):
    """Error of an image that is damaged or hostile (`errno.EUCLEAN`)."""


class UnsupportedImageError(ImageError):
    """Error of an image that uses a feature that kilnfs does not support (`errno.EOPNOTSUPP`)."""


_ABOUT_PATHS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENODATA}


def target_error(
    error: Exception, name: str, what: str, *, opening: bool = False, redaction: Redaction | None = None
) -> OSError:
    """Returns an `OSError` that names the target (`name`) and the bytes or the step (`what`) of a
    failed read.

    Except during opening, an error about a path becomes ESTALE (the target is gone) or EIO: it is
    not about a path in the image, for which `exists()` would return False.

    >>> target_error(ConnectionError("reset"), "https://host/x.erofs", "bytes 0..512")
    OSError(5, 'bytes 0..512: ConnectionError: reset')
    """
    number = (error.errno if isinstance(error, OSError) else None) or errno.EIO
    if isinstance(error, FileNotFoundError):
        number = errno.ENOENT
    if not opening and number in _ABOUT_PATHS:
        number = errno.ESTALE if number == errno.ENOENT else errno.EIO
    if type(error) is OSError and error.strerror:
        reason = error.strerror
    else:
        reason = f"{type(error).__name__}: {error}"
    if redaction is not None:
        reason = redaction.text(reason)
    return OSError(number, f"{what}: {reason}", name)
