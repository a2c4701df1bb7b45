"""Formats that libraries of PyPI read: LMDB, WebDataset, MDS, HDF5, Lance, SquashFS, tar."""

from __future__ import annotations

import importlib.metadata
import sys
import tarfile
import types
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from pyworker.base import SEQUENTIAL, Buffer, Contestant
from pyworker.plain import SquashfuseLl

LEVEL = 3  # of zstd
SHARD_BYTES = 64 << 20
ROWS = 1024  # of a batch that Lance writes


class Lmdb(Contestant):
    """Keys of 8 bytes (the id), values as `bytes`."""

    label, container, distribution = "LMDB", "lmdb", "lmdb"
    call = "Transaction.get(key)"
    buffers = False

    def values(self) -> Iterable[bytes]:
        """Returns the stored values, by id."""
        return self.tree.contents()

    def build(self) -> None:
        import lmdb

        with lmdb.open(str(self.file), map_size=1 << 40, subdir=False, lock=False) as environment:
            transaction = environment.begin(write=True)
            for number, value in enumerate(self.values()):
                transaction.put(number.to_bytes(8, "big"), value, append=True)
                if number % 4096 == 4095:  # dirty pages are kept in memory until then
                    transaction.commit()
                    transaction = environment.begin(write=True)
            transaction.commit()

    def open(self, order: str) -> None:
        import lmdb

        flags = {"readonly": True, "lock": False, "subdir": False, "meminit": False}
        self.store: Any = lmdb.open(str(self.file), readahead=order == SEQUENTIAL, **flags)
        self.transaction: Any = self.store.begin(buffers=self.buffers)
        self.keys = [number.to_bytes(8, "big") for number in range(len(self.tree))]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        get, keys = self.transaction.get, self.keys
        return [get(keys[i]) for i in ids]

    def close(self) -> None:
        self.transaction.abort()
        self.store.close()


class LmdbViews(Lmdb):
    """The same as views of the map, valid as long as the transaction is."""

    label, call = "LMDB, buffers=True", "Transaction.get(key) of buffers=True"
    buffers = True


class LmdbZstd(LmdbViews):
    """Each value is a frame of zstd, decompressed by one context."""

    label, container = "LMDB, zstd per value", "lmdb-zstd"
    call = "ZstdDecompressor.decompress(Transaction.get(key))"

    def values(self) -> Iterable[bytes]:
        import zstandard

        return map(zstandard.ZstdCompressor(level=LEVEL).compress, self.tree.contents())

    def open(self, order: str) -> None:
        import zstandard

        super().open(order)
        self.decompressor: Any = zstandard.ZstdDecompressor()

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        get, keys, decompress = self.transaction.get, self.keys, self.decompressor.decompress
        return [decompress(get(keys[i])) for i in ids]


class LmdbZstdMany(LmdbZstd):
    """The same, a batch decompressed by one call on several threads."""

    label, call = "LMDB, zstd, multi_decompress", "ZstdDecompressor.multi_decompress_to_buffer(frames)"

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        frames = super(LmdbZstd, self).read(ids)
        many: Sequence[Buffer] = self.decompressor.multi_decompress_to_buffer(frames, threads=self.threads)
        return many


class WebDataset(Contestant):
    """Tar shards of 64 MiB, read front to back. A sample is a dictionary, of which the bytes of the file are taken."""

    label, container, distribution = "WebDataset", "webdataset", "webdataset"
    call = "next(iter(WebDataset(shards)))[extension]"
    sequential_only = True

    def build(self) -> None:
        from webdataset import ShardWriter

        self.file.mkdir()
        with ShardWriter(f"{self.file}/%06d.tar", maxcount=1 << 40, maxsize=SHARD_BYTES, verbose=0) as writer:
            for path, data in zip(self.tree.paths, self.tree.contents(), strict=True):
                key, _, extension = path.rpartition(".")
                writer.write({"__key__": key, extension: data})

    def open(self, order: str) -> None:
        import webdataset

        shards = sorted(map(str, self.file.glob("*.tar")))
        self.extension = self.tree.paths[0].rpartition(".")[2]
        self.samples: Iterator[Any] = iter(webdataset.WebDataset(shards, shardshuffle=False, empty_check=False))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        samples, extension = self.samples, self.extension
        return [next(samples)[extension] for _ in ids]


class Placeholder:
    """Stands for every class of torch that a signature or a base class names."""

    def __class_getitem__(cls, item: object) -> type[Placeholder]:
        return cls


class PlaceholderModule(types.ModuleType):
    """A module of which every name is a `Placeholder`."""

    def __getattr__(self, name: str) -> type[Placeholder]:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


def lend_torch() -> None:
    """Lets the modules of MosaicML be imported without torch, whose names they mention but do not use to read a local
    set. The `__init__` files of the package, which import cloud clients, are left out."""
    if "streaming" in sys.modules:
        return
    folder = Path(str(importlib.metadata.distribution("mosaicml-streaming").locate_file("streaming")))
    for name, path in (("streaming", folder), ("streaming.base", folder / "base")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    for name in ("torch", "torch.utils", "torch.utils.data", "torch.distributed"):
        sys.modules[name] = PlaceholderModule(name)
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]  # type: ignore[attr-defined]


class Mds(Contestant):
    """Shards of 64 MiB with a column of bytes, by MosaicML."""

    label, container, distribution = "MDS", "mds", "mosaicml-streaming"
    call = 'LocalDataset[i]["data"]'
    environment = "mds"

    def build(self) -> None:
        lend_torch()
        from streaming.base.format.mds.writer import MDSWriter

        with MDSWriter(out=str(self.file), columns={"data": "bytes"}, size_limit=SHARD_BYTES) as writer:
            for data in self.tree.contents():
                writer.write({"data": data})

    def open(self, order: str) -> None:
        lend_torch()
        from streaming.base.local import LocalDataset

        self.dataset: Any = LocalDataset(str(self.file))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        dataset = self.dataset
        return [dataset[i]["data"] for i in ids]


class Hdf5(Contestant):
    """A row of variable length for each sample."""

    label, container, distribution = "HDF5, variable length", "hdf5-variable", "h5py"
    call = 'File["data"][i]'

    def build(self) -> None:
        import h5py
        import numpy as np

        with h5py.File(self.file, "w") as out:
            rows = out.create_dataset("data", (len(self.tree),), dtype=h5py.vlen_dtype(np.uint8))
            for number, data in enumerate(self.tree.contents()):
                rows[number] = np.frombuffer(data, np.uint8)

    def open(self, order: str) -> None:
        import h5py

        self.handle: Any = h5py.File(self.open_file(self.file) if self.open_file else self.file, "r")
        self.rows: Any = self.handle["data"]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        rows = self.rows
        return [rows[i] for i in ids]

    def close(self) -> None:
        self.handle.close()


class Hdf5Flat(Hdf5):
    """One contiguous dataset of all bytes, and slices of it."""

    label, container = "HDF5, flat with offsets", "hdf5-flat"
    call = 'File["data"][start:end]'

    def build(self) -> None:
        import h5py
        import numpy as np

        with h5py.File(self.file, "w") as out:
            data, start = out.create_dataset("data", (sum(self.tree.sizes),), dtype=np.uint8), 0
            for sample in self.tree.contents():
                data[start : start + len(sample)] = np.frombuffer(sample, np.uint8)
                start += len(sample)

    def open(self, order: str) -> None:
        super().open(order)
        self.offsets = [0, *accumulate(self.tree.sizes)]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        rows, offsets = self.rows, self.offsets
        return [rows[offsets[i] : offsets[i + 1]] for i in ids]


class Lance(Contestant):
    """A column of binary values; a batch comes as buffers of Arrow, not copied."""

    label, container, distribution = "Lance, take", "lance", "pylance"
    call = 'dataset.take(ids, columns=["data"])'

    def build(self) -> None:
        import lance
        import pyarrow as pa

        schema = pa.schema([("data", pa.large_binary())])
        contents = self.tree.contents()

        def batches() -> Iterator[Any]:
            while rows := [data for _, data in zip(range(ROWS), contents, strict=False)]:
                yield pa.record_batch([pa.array(rows, pa.large_binary())], schema=schema)

        lance.write_dataset(batches(), str(self.file), schema=schema, mode="create")

    def open(self, order: str) -> None:
        import lance

        self.dataset: Any = lance.dataset(str(self.file))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        column = self.dataset.take(ids, columns=["data"]).column("data")
        return [value.as_buffer() for chunk in column.chunks for value in chunk]


class PySquashfs(Contestant):
    """SquashFS in Python alone; the decompressor is that of `zstandard`."""

    label, container, distribution = "PySquashfsImage", "squashfs", "PySquashfsImage"
    call = "SquashFsImage.select(path).read_bytes()"
    builder, options = SquashfuseLl.builder, SquashfuseLl.options
    most_samples = 1000

    def open(self, order: str) -> None:
        from PySquashfsImage import SquashFsImage

        self.image: Any = SquashFsImage.from_file(str(self.file))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        select, paths = self.image.select, self.tree.paths
        return [select(paths[i]).read_bytes() for i in ids]

    def close(self) -> None:
        self.image.close()


class Ratarmount(Contestant):
    """Members of a plain tar archive; the index lies beside it in SQLite, as its users have it after the first time."""

    label, container, distribution = "ratarmountcore, tar", "tar", "ratarmountcore"
    call = "source.open(source.lookup(path)).read()"
    most_samples = 1000

    def build(self) -> None:
        self.file.mkdir()
        with tarfile.open(self.file / "set.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for path in self.tree.paths:
                archive.add(self.tree.root / path, path)
        self.open("")
        self.close()

    def open(self, order: str) -> None:
        from ratarmountcore.mountsource.factory import open_mount_source

        index = str(self.file / "index.sqlite")
        self.source: Any = open_mount_source(str(self.file / "set.tar"), indexFilePath=index, writeIndex=True)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        source, paths, samples = self.source, self.tree.paths, []
        for i in ids:
            with source.open(source.lookup("/" + paths[i])) as file:
                samples.append(file.read())
        return samples

    def close(self) -> None:
        self.source.__exit__(None, None, None)


ALL = (
    *(Lmdb, LmdbViews, LmdbZstd, LmdbZstdMany, WebDataset, Mds),
    *(Hdf5, Hdf5Flat, Lance, PySquashfs, Ratarmount),
)
