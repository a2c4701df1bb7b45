"""A file object as a store far away would be: each request takes a while more, and requests and bytes are counted."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import BinaryIO, cast


class Store:
    """Opens files as slow ones, and counts requests and bytes of all of them."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.requests = 0
        self.fetched = 0
        self.lock = threading.Lock()

    def __call__(self, path: Path) -> BinaryIO:
        return cast(BinaryIO, SlowFile(path, self))

    def count(self, fetched: int) -> None:
        """Count one request."""
        with self.lock:
            self.requests += 1
            self.fetched += fetched


class SlowFile(io.RawIOBase):
    """A file, read-only, of which each read that reaches it takes longer by its store. Safe for threads, each call for
    itself.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"0123456789"), file.flush()
    ...     store = Store(0.0)
    ...     slow = store(Path(file.name))
    ...     slow.seek(2), slow.read(3), store.requests, store.fetched
    (2, b'234', 1, 3)
    """

    def __init__(self, path: Path, store: Store) -> None:
        super().__init__()
        self.fd = os.open(path, os.O_RDONLY)
        self.length = os.fstat(self.fd).st_size
        self.name = str(path)
        self.store = store
        self.position = 0

    def pread(self, count: int, position: int) -> bytes:
        """`count` bytes at `position`, fewer at the end: one request."""
        time.sleep(self.store.delay_s)
        data = os.pread(self.fd, max(0, count), position)
        self.store.count(len(data))
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


def slow_url(path: Path, store: Store) -> str:
    """The URL by which fsspec reads a file as `store` does. Needs fsspec. All URLs of a process share one store."""
    import fsspec
    from fsspec.spec import AbstractFileSystem

    class SlowFileSystem(AbstractFileSystem):  # type: ignore[misc]
        """Ranges are fetched one after the other, each a request."""

        protocol = "slow"
        cachable = False

        def info(self, path: str, **_: object) -> dict[str, object]:
            path = self._strip_protocol(path)
            return {"name": path, "size": os.stat(path).st_size, "type": "file"}

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
            with store(Path(self._strip_protocol(path))) as file:
                first = start or 0
                file.seek(first)
                return file.read(-1 if end is None else end - first)

    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    return f"slow://{path}"
