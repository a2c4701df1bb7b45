"""Local files that `kilnfs.fs` writes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def appearing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file for writing that appears under its name when the block ends without an error.
    Makes missing directories.

    A device or a FIFO is written to, not replaced.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:
            yield device
        return
    # Symbolic links are followed, as by `open`.
    target = os.path.realpath(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    half = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.part"
    try:
        with open(half, "xb") as file:
            yield file
        os.replace(half, target)
    except BaseException:
        if os.path.exists(half):
            os.unlink(half)
        raise
