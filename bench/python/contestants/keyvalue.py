"""LMDB: as `bytes`, as views of the map within a transaction, and with each value compressed by zstd."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from contestants.base import SEQUENTIAL, Buffer, Contestant

LEVEL = 3  # of zstd
MAP_BYTES = 1 << 40


class Lmdb(Contestant):
    """`Transaction.get` of keys of 8 bytes (the id), the whole container in one environment of one file."""

    label = "LMDB"
    container = "lmdb"
    buffers = False

    def version(self) -> str:
        import lmdb

        return f"lmdb {lmdb.__version__} (LMDB {'.'.join(map(str, lmdb.version()))})"

    def values(self) -> Iterable[bytes]:
        """Return the stored values, by id."""
        return self.tree.contents()

    def build(self) -> None:
        import lmdb

        with lmdb.open(str(self.place / "set.lmdb"), map_size=MAP_BYTES, subdir=False, lock=False) as environment:
            transaction = environment.begin(write=True)
            for number, value in enumerate(self.values()):
                transaction.put(number.to_bytes(8, "big"), value, append=True)
                if number % 4096 == 4095:  # dirty pages are kept in memory until then
                    transaction.commit()
                    transaction = environment.begin(write=True)
            transaction.commit()

    def open(self, order: str) -> None:
        import lmdb

        # As data loaders open it: read-only, no lock, read-ahead only where it helps.
        file = str(self.place / "set.lmdb")
        self.store: Any = lmdb.open(
            file, readonly=True, lock=False, subdir=False, readahead=order == SEQUENTIAL, meminit=False
        )
        self.transaction: Any = self.store.begin(buffers=True) if self.buffers else self.store.begin()
        self.keys = [number.to_bytes(8, "big") for number in range(len(self.tree))]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        get, keys = self.transaction.get, self.keys
        return [get(keys[i]) for i in ids]

    def close(self) -> None:
        self.transaction.abort()
        self.store.close()


class LmdbViews(Lmdb):
    """The same with `buffers=True`: views of the map, valid as long as the transaction is."""

    label = "LMDB, buffers=True"
    buffers = True


class LmdbZstd(Lmdb):
    """Each value is a zstd frame of level 3. Values are views of the map, decompressed one after the other by one
    context."""

    label = "LMDB, zstd per value"
    container = "lmdb-zstd"
    buffers = True

    def version(self) -> str:
        import zstandard

        return f"{super().version()}, zstandard {zstandard.__version__}"

    def values(self) -> Iterable[bytes]:
        import zstandard

        compressor = zstandard.ZstdCompressor(level=LEVEL)
        return (compressor.compress(data) for data in self.tree.contents())

    def open(self, order: str) -> None:
        import zstandard

        super().open(order)
        self.decompressor: Any = zstandard.ZstdDecompressor()

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        get, keys, decompress = self.transaction.get, self.keys, self.decompressor.decompress
        return [decompress(get(keys[i])) for i in ids]


class LmdbZstdMany(LmdbZstd):
    """The same, a batch decompressed by one call on several threads."""

    label = "LMDB, zstd, multi_decompress"
    uses_threads = True

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        get, keys = self.transaction.get, self.keys
        frames = [get(keys[i]) for i in ids]
        many: Sequence[Buffer] = self.decompressor.multi_decompress_to_buffer(frames, threads=self.threads)
        return many
