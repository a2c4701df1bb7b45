"""Contents of many files of several shards."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, overload

from .._names import name_file
from ._shard_tree import NID_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import SupportsIndex

    from ._sharded_image import ShardedImage


class ShardedBatch(Sequence[memoryview]):
    """Contents of many files, in the order of the arguments. `batch[i]` is a writable memoryview of
    file i. It has the attributes of `kilnfs.Batch`; `data` is assembled at the first access. """

    def __init__(self, parts: list[memoryview]) -> None:
        self._parts = parts
        self._data: memoryview | None = None

    @classmethod
    def read(
        cls, image: ShardedImage, numbers: Iterable[int], threads: int | None, path_of: Callable[[int], str | None]
    ) -> ShardedBatch:
        """Reads files by number, each shard once, in stored order. `path_of` returns the path of
        the file at a position, for errors."""
        chosen = list(numbers)
        parts: list[memoryview] = [memoryview(b"")] * len(chosen)
        for shard, files in by_shard(chosen):
            opened = image.shard(shard)
            batch = opened.read_many(nids=nids_of(files), threads=threads, on_error="return")
            for idx, error in sorted(batch.errors.items()):
                name_file(error, path_of(files[idx][0]), opened)
                raise error
            for idx, (place, _) in enumerate(files):
                parts[place] = batch[idx]
        return cls(parts)

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, i: SupportsIndex) -> memoryview: ...
    @overload
    def __getitem__(self, i: slice) -> list[memoryview]: ...
    def __getitem__(self, i: SupportsIndex | slice) -> memoryview | list[memoryview]:
        return self._parts[i]

    @property
    def sizes(self) -> memoryview:
        """Length of each file in bytes, 'q'."""
        return memoryview(array("q", map(len, self._parts)))

    @property
    def offsets(self) -> memoryview:
        """Start of each file in `data`, and the end of the last one, 'q'."""
        return memoryview(array("q", accumulate(map(len, self._parts), initial=0)))

    @property
    def data(self) -> memoryview:
        """All bytes, writable. After the first access, `batch[i]` is a part of it."""
        if self._data is None:
            data = memoryview(bytearray().join(self._parts))
            ends = list(accumulate(map(len, self._parts), initial=0))
            self._parts = [data[start:end] for start, end in zip(ends, ends[1:], strict=False)]
            self._data = data
        return self._data

    @property
    def errors(self) -> dict[int, OSError]:
        """Errors of single files: always empty, as an error ends the call that reads."""
        return {}

    def tobytes(self, i: int) -> bytes:
        """Returns a copy of the bytes of one file."""
        return self._parts[i].tobytes()

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.data.tobytes(), list(self.offsets))

    def __repr__(self) -> str:
        return f"<kilnfs.shards.ShardedBatch of {len(self)} files, {sum(map(len, self._parts))} bytes>"


def by_shard(numbers: Iterable[int]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Groups files by shard: for each file its position in the arguments, and its nid."""
    found: dict[int, list[tuple[int, int]]] = {}
    for place, number in enumerate(numbers):
        found.setdefault(number >> NID_BITS, []).append((place, number & (1 << NID_BITS) - 1))
    return sorted(found.items())


def nids_of(files: list[tuple[int, int]]) -> array[int]:
    """Returns the nids of a shard's files."""
    return array("Q", (nid for _, nid in files))


def _restore(data: bytes, offsets: list[int]) -> ShardedBatch:
    view = memoryview(bytearray(data))
    return ShardedBatch([view[start:end] for start, end in zip(offsets, offsets[1:], strict=False)])
