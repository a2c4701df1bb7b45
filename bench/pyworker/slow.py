"""A file object as a store far away would be: each request takes a while more, and requests and bytes are counted."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO, cast


class Store:
    """Opens files as slow ones, and counts requests and bytes of all of them."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s, self.requests, self.fetched = delay_s, 0, 0
        self.lock = threading.Lock()

    def __call__(self, path: Path) -> BinaryIO:
        return cast(BinaryIO, SlowFile(path, self))

    def count(self, fetched: int) -> None:
        """Takes the time of a request, and counts it."""
        time.sleep(self.delay_s)
        with self.lock:
            self.requests += 1
            self.fetched += fetched


class SlowFile(io.FileIO):
    """A file, read-only, of which each read is a request of its store."""

    def __init__(self, path: Path, store: Store) -> None:
        super().__init__(str(path))
        self.store = store

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self.store.count(len(data))
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self.store.count(count)
        return count

    def fileno(self) -> int:
        raise io.UnsupportedOperation("it is far away")


def slow_url(path: Path, store: Store) -> str:
    """Returns the URL by which fsspec reads a file as `store` does. All URLs of a process share one store."""
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
                file.seek(start or 0)
                return file.read(-1 if end is None else end - (start or 0))

    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    return f"slow://{path}"
