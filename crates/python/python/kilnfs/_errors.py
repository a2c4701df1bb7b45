"""Errors of images. Everything else that can go wrong has a built-in exception: FileNotFoundError, IsADirectoryError,
ValueError, …
"""

from __future__ import annotations


class ImageError(OSError):
    """An image contradicts the format, or uses what kilnfs does not read.

    `filename` is the path in the image, and `filename2` the image; where no path is known, `filename` is the image.
    """

    nid: int | None = None
    """The inode that it is about."""
    offset: int | None = None
    """The byte of the record, or of the pcluster."""
    field: str | None = None
    """The kernel's name of the field."""

    @property
    def path(self) -> str | None:
        """The path in the image, where it is known."""
        path: str | None = None if self.filename2 is None else self.filename
        return path


class CorruptImageError(ImageError):
    """The image is damaged, or hostile (`errno.EUCLEAN`)."""


class UnsupportedImageError(ImageError):
    """The image may be right, but uses a feature that kilnfs does not know (`errno.EOPNOTSUPP`)."""
