"""What the tests of fsspec share: images, a web server that knows ranges, and filesystems that count or fail."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

fsspec = pytest.importorskip("fsspec")

import kilnfs  # noqa: E402
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]  # noqa: E402

if TYPE_CHECKING:
    from kilnfs._pack_options import Preset

# As the entry point does where the package is installed.
fsspec.register_implementation("erofs", "kilnfs.fs.ErofsFileSystem", clobber=True)


def pack(tree: str | os.PathLike[str], image: str | os.PathLike[str], preset: Preset = "dataset") -> str:
    """Pack a directory, and return the image's path."""
    kilnfs.pack(tree, image, preset=preset)
    return os.fspath(image)


def make_image(
    directory: Path, files: Mapping[str, bytes], name: str = "image.erofs", preset: Preset = "dataset"
) -> str:
    """An image of these files in `directory`."""
    tree = directory / (name + ".tree")
    for path, data in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    return pack(tree, directory / name, preset)


def noise(length: int, seed: int = 1) -> bytes:
    """Bytes that do not compress."""
    import random

    return random.Random(seed).randbytes(length)


def into_memory(image: str, name: str) -> str:
    """Put an image into fsspec's memory filesystem; its URL."""
    with open(image, "rb") as file:
        MemoryFileSystem().pipe(f"/{name}", file.read())
    return f"memory://{name}"


class CountingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """memory://, noting the ranges of each call; `tamper` may change what is given back."""

    protocol = "counting"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    calls: list[list[tuple[int, int]]] = []
    opened: list[int] = []
    tamper: Callable[[int, int, bytes], Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        type(self).opened.append(os.getpid())

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.removeprefix("counting://") if isinstance(path, str) else path)

    def cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return", **kw: Any
    ) -> list[Any]:
        type(self).calls.append(list(zip(starts, ends, strict=True)))
        out = super().cat_ranges(paths, starts, ends, max_gap, on_error, **kw)
        change = type(self).tamper
        return (
            out
            if change is None
            else [change(start, end, data) for start, end, data in zip(starts, ends, out, strict=True)]
        )

    @classmethod
    def reset(cls) -> None:
        cls.store.clear()
        cls.calls.clear()
        cls.opened.clear()
        cls.tamper = None
        cls.clear_instance_cache()


fsspec.register_implementation("counting", CountingFileSystem, clobber=True)


class RangeHandler(BaseHTTPRequestHandler):
    """Serves `server.files` with ranges, lengths and ETags, and notes what was asked for in `server.requests`."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._serve(False)

    def do_GET(self) -> None:
        self._serve(True)

    def _serve(self, with_body: bool) -> None:
        server: Any = self.server
        data = server.files.get(self.path)
        wanted = self.headers.get("Range")
        server.requests.append((self.command, self.path, wanted))
        condition = self.headers.get("If-Match")
        if server.failures and wanted:
            failure = server.failures.pop(0)
            if failure == "close":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                self.send_response(failure)
                self.send_header("Content-Length", "0")
                self.send_header("Retry-After", "0")
                self.end_headers()
            return
        if condition is not None:
            server.conditions.append(condition)
            if server.refuses_conditions or (server.honours_conditions and condition != server.etag(self.path)):
                self.send_error(412)
                return
        if data is None:
            self.send_error(404)
            return
        start, end, status = 0, len(data), 200
        if wanted and server.knows_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first)
            end = min(int(last) + 1 if last else len(data), len(data))
            status = 206
            if start >= len(data):
                self.send_error(416)
                return
        body = data[start:end]
        if server.endless and wanted:
            self._endless(start, len(data))
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if server.tells_version:
            self.send_header("ETag", server.etag(self.path))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.end_headers()
        if with_body:
            try:
                for at in range(0, len(body), 1 << 16):
                    self.wfile.write(body[at : at + (1 << 16)])
                    server.sent += len(body[at : at + (1 << 16)])
            except OSError:  # the client does not want the rest
                self.close_connection = True

    def _endless(self, start: int, length: int) -> None:
        """Much more than was asked for, without saying so."""
        server: Any = self.server
        self.send_response(206)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Content-Range", f"bytes {start}-{length - 1}/{length}")
        self.end_headers()
        self.close_connection = True
        try:
            for _ in range(1024):
                self.wfile.write(b"40000\r\n" + bytes(1 << 18) + b"\r\n")
                server.sent += 1 << 18
        except OSError:
            pass

    def log_message(self, format: str, *args: Any) -> None:
        pass


class RangeServer(ThreadingHTTPServer):
    """A web server on a free port of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RangeHandler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.knows_ranges = True
        self.version = 1
        self.tells_version = True
        self.honours_conditions = True
        self.refuses_conditions = False
        self.conditions: list[str] = []
        self.failures: list[Any] = []
        """Failures that the next requests for ranges get: a status each, or "close"."""
        self.endless = False
        self.sent = 0
        """Bytes of bodies."""

    def etag(self, path: str) -> str:
        return f'"{path}-{self.version}"'

    def put(self, image: str | os.PathLike[str], path: str) -> str:
        with open(image, "rb") as file:
            self.files[path] = file.read()
        return f"http://127.0.0.1:{self.server_port}{path}"

    def replace(self, image: str | os.PathLike[str], path: str) -> None:
        """Another file is uploaded there."""
        self.put(image, path)
        self.version += 1


@contextmanager
def range_server() -> Iterator[RangeServer]:
    """A server that runs in a thread until the block ends."""
    pytest.importorskip("aiohttp")
    server = RangeServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_child(work: Callable[[], object]) -> bytes:
    """What `work` gives in a forked child, as `repr`; the child ends at once after it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            try:
                told = repr(work())
            except BaseException as error:
                told = f"raised {error!r}"
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(told.encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return answer
