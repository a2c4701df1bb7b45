"""kilnfs.shards on a server of S3 objects, which runs here: moto, by s3fs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kilnfs
import packing
import pytest
from kilnfs import shards


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A filesystem of s3fs with two buckets."""
    server_of = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    config = pytest.importorskip("fsspec.config")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setitem(config.conf, "s3", options)
    try:
        fs = s3fs.S3FileSystem()
        # The server keeps its buckets for all tests of a process.
        for bucket in ("raw", "shards"):
            fs.makedirs(bucket, exist_ok=True)
        yield fs
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


@pytest.mark.parametrize("by", ["hash", "path"])
def test_shards_of_objects_are_those_of_files(s3: Any, tmp_path: Path, by: Any) -> None:
    source = packing.tree(tmp_path / "source", files=60)
    files = packing.files(source)
    for path, data in files.items():
        s3.pipe_file(f"raw/{by}/{path}", data)
    plan = shards.plan(f"s3://raw/{by}", f"s3://shards/{by}", shard_bytes=40_000, seed=1, by=by)
    assert len(plan) > 3 and sum(entry.files for entry in plan) == len(files)
    done = [shards.pack(pickle.loads(pickle.dumps(entry))) for entry in plan]
    objects = {key: s3.cat_file(key) for key in s3.find(f"shards/{by}")}
    assert not [key for key in objects if key.endswith(".part")]

    # A task that is run again finds its record; one whose record is gone uploads the same bytes.
    assert shards.pack(plan[0]) == done[0]
    s3.rm_file(f"shards/{by}/{plan[1].name}".replace(".erofs", ".json"))
    assert shards.pack(plan[1]) == done[1]
    s3.invalidate_cache()
    assert {key: s3.cat_file(key) for key in s3.find(f"shards/{by}")} == objects

    manifest = shards.finish(plan, done)
    assert manifest == f"s3://shards/{by}/manifest.json"
    with kilnfs.open(manifest) as image:
        assert {path: image.read(path) for path in files} == files
        index = image.index(extensions=".txt", group=1)  # type: ignore[attr-defined]
        assert sorted(index) == sorted(path for path in files if path.endswith(".txt") and "/" in path)
        some = sorted(files)[:5]
        again = pickle.loads(pickle.dumps(image))
        assert [bytes(part) for part in again.read_many(some)] == [files[path] for path in some]

    # An object that was replaced is another image.
    s3.pipe_file(f"shards/{by}/{plan[0].name}", objects[f"shards/{by}/{plan[1].name}"])
    s3.invalidate_cache()
    with kilnfs.open(manifest) as image, pytest.raises(OSError, match=r"shards\[0\]\.uuid"):
        image.shard(0)  # type: ignore[attr-defined]
