"""The contestants: containers of samples, and ways to read them from Python."""

from __future__ import annotations

from contestants.archives import PySquashfs, Ratarmount
from contestants.base import Contestant
from contestants.files import Directory, Flat, FlatMapped, FlatObject, MemoryDirectory, Zip
from contestants.images import variants
from contestants.keyvalue import Lmdb, LmdbViews, LmdbZstd, LmdbZstdMany
from contestants.mounts import KernelErofs, KilnMount, SquashfuseLl
from contestants.shards import Ffcv, LitData, Mds, WebDataset
from contestants.tables import Hdf5, Hdf5Flat, Lance

_ALL: list[type[Contestant]] = [
    *variants(),
    *(Flat, FlatMapped, FlatObject, Directory, MemoryDirectory, Zip),
    *(Lmdb, LmdbViews, LmdbZstd, LmdbZstdMany),
    *(WebDataset, Mds, LitData, Ffcv),
    *(Hdf5, Hdf5Flat, Lance),
    *(PySquashfs, Ratarmount),
    *(KernelErofs, KilnMount, SquashfuseLl),
]
CONTESTANTS: dict[str, type[Contestant]] = {one.label: one for one in _ALL}
