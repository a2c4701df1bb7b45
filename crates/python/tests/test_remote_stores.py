"""Images in object stores that are replaced while they are open: S3 (s3fs, moto), Google Cloud Storage (gcsfs)."""

from __future__ import annotations

import errno
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

fsspec = pytest.importorskip("fsspec")

import kilnfs  # noqa: E402
from kilnfs import _block_cache, _fsspec_source  # noqa: E402

FILES = 300


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A data set, and the same packed again in another order."""
    base = tmp_path_factory.mktemp("stores")
    (base / "tree").mkdir()
    numbers = random.Random(1)
    for number in range(FILES):
        (base / "tree" / f"{number:03}.jpg").write_bytes(numbers.randbytes(6000))
    for seed in (1, 2):
        kilnfs.pack(base / "tree", base / f"{seed}.erofs", preset="dataset", order="shuffle", seed=seed)
    first, second = ((base / f"{seed}.erofs").read_bytes() for seed in (1, 2))
    assert len(first) == len(second) and first != second
    return first, second


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fsspec_source.FsspecSource.__init__, "__defaults__", (None, _block_cache.BLOCK_LEN, 4))


def reads(image: kilnfs.Image, expected: dict[str, bytes]) -> tuple[int, OSError | None]:
    """Read files in random order: how many were right before the error, if there was one. None may be wrong."""
    names = random.Random(2).sample(sorted(expected), len(expected))
    for count, name in enumerate(names):
        try:
            assert image.read(name) == expected[name]
        except OSError as error:
            return count, error
    return len(names), None


def expected_of(image: bytes) -> dict[str, bytes]:
    with kilnfs.open(image) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server_of = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
    try:
        fs = s3fs.S3FileSystem(**options)
        fs.makedirs("sets", exist_ok=True)
        yield fs, options
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


def test_s3(s3: Any, images: tuple[bytes, bytes]) -> None:
    fs, options = s3
    fs.pipe_file("sets/x.erofs", images[0])
    expected = expected_of(images[0])
    with kilnfs.open("s3://sets/x.erofs", **options) as image:
        assert reads(image, expected) == (FILES, None)
        fs.pipe_file("sets/x.erofs", images[1])
        read, error = reads(image, expected)
        assert error is not None and error.errno == errno.ESTALE and read < FILES
        assert "has changed since it was opened" in str(error) and "s3://sets/x.erofs" in str(error)
        assert image._source_cache == 4 * _block_cache.BLOCK_LEN
    with kilnfs.open("s3://sets/x.erofs", **options) as image:
        fs.rm_file("sets/x.erofs")
        _, error = reads(image, expected_of(images[1]))
        assert error is not None and error.errno == errno.ESTALE


def test_s3_by_version(s3: Any, images: tuple[bytes, bytes]) -> None:
    fs, options = s3
    fs.makedirs("versioned", exist_ok=True)
    fs.call_s3("put_bucket_versioning", Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    fs.pipe_file("versioned/x.erofs", images[0])
    expected = expected_of(images[0])
    with kilnfs.open("s3://versioned/x.erofs", version_aware=True, **options) as image:
        fs.pipe_file("versioned/x.erofs", images[1])
        # The version that was opened is still there.
        assert reads(image, expected) == (FILES, None)


class _Storage(BaseHTTPRequestHandler):
    """As much of Google's JSON API as reading takes. Older generations are gone."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        url = urlsplit(self.path)
        name = unquote(url.path.rpartition("/o/")[2])
        query = parse_qs(url.query)
        server.generations += query.get("generation", [])
        data, generation = server.objects.get(name, (b"", None))
        asked = query.get("generation", [generation])[0]
        if name not in server.objects or asked != generation:
            return self._answer(404, json.dumps({"error": {"code": 404, "message": "No such object"}}).encode())
        if not url.path.startswith("/download/"):
            facts = {"name": name, "bucket": "sets", "size": str(len(data)), "generation": generation}
            return self._answer(200, json.dumps(facts).encode())
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        return self._answer(206, data[int(first) : int(last) + 1])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_google_cloud_storage(images: tuple[bytes, bytes]) -> None:
    core = pytest.importorskip("gcsfs.core")
    # The other class asks Google which kind of bucket it is.
    fsspec.register_implementation("gs", core.GCSFileSystem, clobber=True)
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Storage)
    server.daemon_threads = True
    server.objects = {"x.erofs": (images[0], "11")}
    server.generations = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    options = {"token": "anon", "endpoint_url": f"http://127.0.0.1:{server.server_port}"}
    expected = expected_of(images[0])
    try:
        with kilnfs.open("gs://sets/x.erofs", **options) as image:
            assert reads(image, expected) == (FILES, None)
            assert set(server.generations) == {"11"}
            server.objects["x.erofs"] = (images[1], "12")
            read, error = reads(image, expected)
            assert error is not None and error.errno == errno.ESTALE and read < FILES
            assert "generation 11" in str(error) and "generation 12" in str(error)
    finally:
        core.GCSFileSystem.clear_instance_cache()
        fsspec.register_implementation("gs", "gcsfs.GCSFileSystem", clobber=True)
        server.shutdown()
        server.server_close()
        thread.join()
