"""kilnfs.shards by Ray and by Dask: tasks that are killed are retried, and give the same bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import kilnfs
import packing
import pytest
from kilnfs import shards


def pack_or_die(entry: shards.PlanEntry, marks: str) -> dict[str, Any]:
    """Pack a shard. The first worker that does so for a second shard is killed in the middle of it, once the shard
    is there without its record.
    """
    mark = Path(marks) / "killed"
    if entry.number == 1:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            record = shards.pack(entry)
            os.unlink(Path(entry.into) / str(record["name"]).replace(".erofs", ".json"))
            os.kill(os.getpid(), signal.SIGKILL)
    return shards.pack(entry)


@pytest.fixture
def plans(tmp_path: Path) -> tuple[list[shards.PlanEntry], list[shards.PlanEntry]]:
    """The same files, to be packed here and by an engine."""
    source = packing.tree(tmp_path / "source", files=120)
    (tmp_path / "marks").mkdir()
    here, there = (shards.plan(source, tmp_path / name, shard_bytes=60_000, seed=2) for name in ("here", "there"))
    assert len(here) > 3
    return here, there


def compare(
    plans: tuple[list[shards.PlanEntry], list[shards.PlanEntry]], done: list[dict[str, Any]], tmp_path: Path
) -> None:
    here, there = plans
    shards.finish(here, [shards.pack(entry) for entry in here])
    manifest = shards.finish(there, done)
    assert (tmp_path / "marks" / "killed").exists()
    for path in sorted((tmp_path / "here").glob("*.erofs")):
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name
    assert sorted(os.listdir(tmp_path / "here")) == sorted(os.listdir(tmp_path / "there"))
    with kilnfs.open(manifest) as image:
        assert image.read("class-0/0000.txt") == (tmp_path / "source" / "class-0" / "0000.txt").read_bytes()


def test_ray(plans: tuple[list[shards.PlanEntry], list[shards.PlanEntry]], tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    environment = {"env_vars": {"PYTHONPATH": f"{packing.PYTHON_DIR}:{Path(__file__).parent}"}}
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False, runtime_env=environment)
    try:
        task = ray.remote(pack_or_die).options(max_retries=3)
        done = ray.get([task.remote(entry, str(tmp_path / "marks")) for entry in plans[1]], timeout=300)
    finally:
        ray.shutdown()
    compare(plans, done, tmp_path)


def test_dask(
    plans: tuple[list[shards.PlanEntry], list[shards.PlanEntry]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", f"{packing.PYTHON_DIR}:{Path(__file__).parent}")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
    )
    with cluster, distributed.Client(cluster) as client:
        futures = client.map(pack_or_die, plans[1], marks=str(tmp_path / "marks"), retries=3)
        done = client.gather(futures)
    compare(plans, done, tmp_path)
