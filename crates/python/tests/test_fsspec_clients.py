"""What reads through fsspec: pandas, pyarrow, datasets, zarr, dask; as they come from PyPI, without network."""

from __future__ import annotations

import io
import multiprocessing
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec_support import into_memory, make_image, pack, range_server  # noqa: E402
from kilnfs.fs import ErofsFileSystem  # noqa: E402

CSV = b"number,square\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(1000))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_image(tmp_path_factory.mktemp("tables"), {"t/a.csv": CSV, "t/b.csv": CSV})


def test_pandas_csv(tables: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for url in (
        f"file://{tables}",
        into_memory(tables, "tables.erofs"),
        f"simplecache::{into_memory(tables, 'tables.erofs')}",
    ):
        options = {"simplecache": {"cache_storage": str(tmp_path / "cache")}} if url.startswith("simplecache") else None
        frame = pandas.read_csv(f"erofs://t/a.csv::{url}", storage_options=options)
        assert frame.shape == (1000, 2) and int(frame["square"].sum()) == sum(i * i for i in range(1000))
    with range_server() as server:
        frame = pandas.read_csv(f"erofs://t/b.csv::{server.put(tables, '/tables.erofs')}")
        assert frame["number"].tolist() == list(range(1000))
        assert 1 <= sum(command == "GET" for command, _, _ in server.requests) <= 3


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    written = pytest.importorskip("pyarrow.parquet")
    files = {}
    for part in range(4):
        buffer = io.BytesIO()
        written.write_table(
            pyarrow.table({"n": list(range(part * 1000, part * 1000 + 1000)), "part": [part] * 1000}), buffer
        )
        files[f"set/year={2020 + part}/p.parquet"] = buffer.getvalue()
    return make_image(tmp_path_factory.mktemp("parquet"), files)


def test_pandas_parquet(parquet: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(f"erofs://set/year=2021/p.parquet::file://{parquet}")
    assert frame["n"].tolist() == list(range(1000, 2000))
    some = pandas.read_parquet(
        f"erofs://set/year=2022/p.parquet::{into_memory(parquet, 'parquet.erofs')}", columns=["part"]
    )
    assert some["part"].tolist() == [2] * 1000 and list(some.columns) == ["part"]


def test_pyarrow_filesystem_and_dataset(parquet: str) -> None:
    arrow = pytest.importorskip("pyarrow.fs")
    dataset = pytest.importorskip("pyarrow.dataset")
    fs = arrow.PyFileSystem(arrow.FSSpecHandler(ErofsFileSystem(parquet)))
    found = fs.get_file_info(arrow.FileSelector("set", recursive=True))
    assert sorted(info.path for info in found if info.type == arrow.FileType.File) == [
        f"set/year={2020 + i}/p.parquet" for i in range(4)
    ]
    one = fs.get_file_info("set/year=2020/p.parquet")
    assert one.size == ErofsFileSystem(parquet).size("set/year=2020/p.parquet") and one.mtime is not None
    assert fs.get_file_info("nope").type == arrow.FileType.NotFound
    with fs.open_input_file("set/year=2020/p.parquet") as file:
        assert file.read(4) == b"PAR1" and file.size() == one.size
    with fs.open_input_stream("set/year=2020/p.parquet") as stream:
        assert stream.read(4) == b"PAR1"
    with pytest.raises(OSError):
        fs.create_dir("new")
    table = dataset.dataset("set", filesystem=fs, format="parquet", partitioning="hive").to_table()
    assert sorted(table["n"].to_pylist()) == list(range(4000))
    filtered = dataset.dataset("set", filesystem=ErofsFileSystem(parquet), partitioning="hive")
    assert filtered.count_rows(filter=dataset.field("year") == 2021) == 1000


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    pillow = pytest.importorskip("PIL.Image")
    files = {}
    for split, count in (("train", 6), ("test", 2)):
        for label in ("cat", "dog"):
            for i in range(count):
                buffer = io.BytesIO()
                pillow.new("RGB", (8 + i, 8), (i, 0, 0)).save(buffer, "PNG")
                files[f"{split}/{label}/{i}.png"] = buffer.getvalue()
    return make_image(tmp_path_factory.mktemp("pictures"), files)


def only_this_machine(self: socket.socket, address: Any) -> None:
    if self.family != socket.AF_UNIX and address[0] != "127.0.0.1":
        raise OSError(f"a connection to {address}: this test needs no network")
    connect(self, address)


connect = socket.socket.connect


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("remote", [False, True])
def test_datasets_imagefolder(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming: bool, remote: bool
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(socket.socket, "connect", only_this_machine)
    datasets = pytest.importorskip("datasets")
    with range_server() as server:
        image = server.put(pictures, "/pictures.erofs") if remote else pictures
        files = {split: f"erofs://{split}/**::{image}" for split in ("train", "test")}
        found: Any = datasets.load_dataset(
            "imagefolder", data_files=files, streaming=streaming, cache_dir=str(tmp_path / "cache")
        )
        train = list(found["train"])
        assert len(train) == 12 and len(list(found["test"])) == 4
    sizes = sorted((row["label"], row["image"].size) for row in train)
    assert sizes == [(label, (8 + i, 8)) for label in (0, 1) for i in range(6)]
    assert found["train"].features["label"].names == ["cat", "dog"]


def test_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    storage = pytest.importorskip("zarr.storage")
    values = numpy.arange(120 * 80, dtype="i4").reshape(120, 80)
    group = zarr.open_group(str(tmp_path / "tree" / "a.zarr"), mode="w")
    array = group.create_array("values", shape=values.shape, chunks=(16, 16), dtype="i4")
    array[:] = values
    image = pack(tmp_path / "tree", tmp_path / "a.erofs")
    for url in (f"file://{image}", into_memory(image, "zarr.erofs")):
        store = storage.FsspecStore.from_url(f"erofs://a.zarr::{url}", read_only=True)
        read = zarr.open_group(store, mode="r")["values"]
        assert (read[:] == values).all() and (read[17:33, 5] == values[17:33, 5]).all()


def test_dask_bytes(tables: str) -> None:
    readers = pytest.importorskip("dask.bytes")
    dask = pytest.importorskip("dask")
    _, blocks = readers.read_bytes(f"erofs://t/*.csv::file://{tables}", blocksize=4000, delimiter=b"\n", sample=False)
    assert len(blocks) == 2 and len(blocks[0]) > 1
    for of_file in blocks:
        assert b"".join(dask.compute(*of_file, scheduler="threads")) == CSV


def _sum_of(fs: ErofsFileSystem) -> int:
    return sum(len(data) for data in fs.cat_ranges(fs.find(""), 0, None))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(tables: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import sys

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    fs = ErofsFileSystem(tables)
    assert _sum_of(fs) == 2 * len(CSV)
    pool = multiprocessing.get_context(method).Pool(2)
    try:
        assert pool.map(_sum_of, [fs] * 4) == [2 * len(CSV)] * 4
    finally:
        # Not `terminate`: other tests have run the command in this process, which catches SIGTERM since then.
        pool.close()
        pool.join()
