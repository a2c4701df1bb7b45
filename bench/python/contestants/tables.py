"""Formats of arrays and tables: HDF5 and Lance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from contestants.base import Buffer, Contestant

ROWS = 1024  # of one batch that is written


class Hdf5(Contestant):
    """A dataset of variable-length `uint8`, one row a sample."""

    label = "HDF5, variable length"
    container = "hdf5-vlen"
    takes_file_object = True

    @property
    def file(self) -> Path:
        """The container."""
        return self.place / "set.h5"

    def version(self) -> str:
        import h5py

        return f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version})"

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
    """One dataset of all bytes, contiguous, and slices of it at known offsets."""

    label = "HDF5, flat with offsets"
    container = "hdf5-flat"

    def build(self) -> None:
        import h5py
        import numpy as np

        with h5py.File(self.file, "w") as out:
            data = out.create_dataset("data", (self.tree.about.bytes,), dtype=np.uint8)
            off = 0
            for sample in self.tree.contents():
                data[off : off + len(sample)] = np.frombuffer(sample, np.uint8)
                off += len(sample)

    def open(self, order: str) -> None:
        super().open(order)
        self.offsets = [0, *accumulate(self.tree.sizes)]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        rows, offsets = self.rows, self.offsets
        return [rows[offsets[i] : offsets[i + 1]] for i in ids]


class Lance(Contestant):
    """A column of binary values; `take` of a batch gives buffers of Arrow, not copied."""

    label = "Lance, take"
    container = "lance"

    def version(self) -> str:
        import lance

        return f"pylance {lance.__version__}"

    def build(self) -> None:
        import lance
        import pyarrow as pa

        schema = pa.schema([("data", pa.large_binary())])

        def batches() -> Iterator[Any]:
            rows: list[bytes] = []
            for data in self.tree.contents():
                rows.append(data)
                if len(rows) == ROWS:
                    yield pa.record_batch([pa.array(rows, pa.large_binary())], schema=schema)
                    rows = []
            if rows:
                yield pa.record_batch([pa.array(rows, pa.large_binary())], schema=schema)

        lance.write_dataset(batches(), str(self.place / "set.lance"), schema=schema, mode="create")

    def open(self, order: str) -> None:
        import lance

        self.dataset: Any = lance.dataset(str(self.place / "set.lance"))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        column = self.dataset.take(ids, columns=["data"]).column("data")
        return [value.as_buffer() for chunk in column.chunks for value in chunk]

    def close(self) -> None:
        del self.dataset
