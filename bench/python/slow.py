"""A file object as a store far away would be: each request takes a while more, and requests and bytes are counted."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import BinaryIO, cast


class SlowFile(io.RawIOBase):
    """A file, read-only, of which each read that reaches it takes `delay_s` longer. Safe for threads, each call for
    itself.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"0123456789"), file.flush()
    ...     slow = SlowFile(Path(file.name), 0.0)
    ...     slow.seek(2), slow.read(3), slow.requests, slow.fetched
    (2, b'234', 1, 3)
    """

    def __init__(self, path: Path, delay_s: float) -> None:
        super().__init__()
        self.fd = os.open(path, os.O_RDONLY)
        self.length = os.fstat(self.fd).st_size
        self.name = str(path)
        self.delay_s = delay_s
        self.position = 0
        self.requests = 0
        self.fetched = 0
        self.lock = threading.Lock()

    def pread(self, count: int, position: int) -> bytes:
        """`count` bytes at `position`, fewer at the end: one request."""
        time.sleep(self.delay_s)
        data = os.pread(self.fd, max(0, count), position)
        with self.lock:
            self.requests += 1
            self.fetched += len(data)
        return data

    def read(self, size: int | None = -1) -> bytes:
        """From the position on, and moves it."""
        left = max(0, self.length - self.position)
        data = self.pread(left if size is None or size < 0 else min(size, left), self.position)
        self.position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: object) -> int:
        with memoryview(buffer).cast("B") as view:  # type: ignore[arg-type]
            data = self.read(len(view))
            view[: len(data)] = data
            return len(data)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self.position = position + {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.length}[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self.fd)
        super().close()


class Store:
    """Opens files as slow ones, and knows all that it opened."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.files: list[SlowFile] = []

    def __call__(self, path: Path) -> BinaryIO:
        self.files.append(SlowFile(path, self.delay_s))
        return cast(BinaryIO, self.files[-1])

    def counted(self) -> tuple[int, int]:
        """Requests and bytes so far, of all files."""
        return sum(file.requests for file in self.files), sum(file.fetched for file in self.files)
