"""The cases of `run.py`: which set is read in which order and state, what is done with the bytes, and by whom."""

from __future__ import annotations

from dataclasses import dataclass

from contestants.base import LOCAL, SEQUENTIAL, SHUFFLED

# What is done with a sample's bytes: its length is asked for, all bytes are summed (XXH3), set J is decoded to RGB.
TOUCH, SUM, DECODE = "touch nothing", "sum", "decode"
# Where the container is: in the page cache; on the disk only; behind a file object that takes a while for each request.
WARM, COLD, SLOW = "warm", "cold", "slow"

BATCH = {"I": 64, "S": 256, "J": 64}

# Labels of contestants that cases and bars name.
FLOOR, FLAT_MAPPED, FLAT_OBJECT = "flat file, os.pread", "flat file, mmap", "flat file, file object"
DIRECTORY, ZIP = "directory", "zipfile, stored"
LMDB, LMDB_VIEWS, LMDB_ZSTD, LMDB_ZSTD_MANY = (
    "LMDB",
    "LMDB, buffers=True",
    "LMDB, zstd per value",
    "LMDB, zstd, multi_decompress",
)
SQUASHFS, RATARMOUNT, HDF5, HDF5_FLAT = (
    "PySquashfsImage",
    "ratarmountcore, tar",
    "HDF5, variable length",
    "HDF5, flat with offsets",
)
WEBDATASET, MDS, KERNEL, FUSE = "WebDataset", "MDS", "kernel EROFS mount", "squashfuse_ll mount"
STORED_READ, STORED_MANY, STORED_VIEWS = (f"kilnfs stored, {call}" for call in ("read", "read_many", "views, mmap"))
ZSTD_READ, ZSTD_MANY = "kilnfs zstd, read", "kilnfs zstd, read_many"
ZSTD_MAPPED, PACKED_MANY = "kilnfs zstd, read_many, mmap", "kilnfs zstd packed, read_many, mmap"
SMALL_MANY, LZ4_MANY = "kilnfs zstd small, read_many", "kilnfs lz4, read_many"
STORED_BY_URL = "kilnfs stored, read_many by fsspec"

ALL: tuple[str, ...] = ()  # of `labels`: all contestants


@dataclass(frozen=True)
class Case:
    """Samples of one set, read by contestants in turns."""

    name: str
    set: str
    order: str
    state: str = WARM
    consumer: str = SUM
    threads: int = 1
    labels: tuple[str, ...] = ALL
    delay_s: float = 0.0  # of each request, state `SLOW`
    sampler: tuple[tuple[str, int], ...] = ()  # options of the contestant's own order
    most_samples: int | None = None
    workers: tuple[int, ...] = ()  # processes that read: a case of `loader.py`
    start: str = "fork"  # how these are started

    @property
    def batch(self) -> int:
        """Samples of one call."""
        return BATCH[self.set]


# What `special.py` compares.
NOTHING, INDEXED, LISTED = "dataset without data", "kilnfs, index and read_many", "list of (path, class), open().read()"
INDEX, SCAN = "kilnfs.open and index", "ImageFolder's scan of the directory"
OPEN = "kilnfs.open"
IMAGE = STORED_MANY  # whose container they read


@dataclass(frozen=True)
class Special:
    """A case of `special.py`."""

    name: str
    kind: str  # "memory", "index" or "open"
    labels: tuple[str, ...]
    set: str = "S"
    start: str = "fork"


COLD_LABELS = (STORED_MANY, FLOOR, DIRECTORY, ZIP, LMDB, WEBDATASET, MDS, HDF5, KERNEL, FUSE)
OBJECT_LABELS = (STORED_MANY, STORED_BY_URL, STORED_READ, FLAT_OBJECT, ZIP, HDF5)
OWN_ORDER = (STORED_MANY, STORED_BY_URL)
WORKER_LABELS = (STORED_MANY, STORED_VIEWS, FLOOR, DIRECTORY, LMDB, ZIP, FUSE)
SMALL_WORKER_LABELS = (ZSTD_MANY, SMALL_MANY, STORED_MANY, DIRECTORY, LMDB, LMDB_ZSTD, FUSE)
THREADED = (
    ZSTD_MANY,
    ZSTD_MAPPED,
    PACKED_MANY,
    SMALL_MANY,
    LZ4_MANY,
    STORED_MANY,
    DIRECTORY,
    LMDB_ZSTD,
    LMDB_ZSTD_MANY,
    LMDB,
)

CASES = [
    Case("I warm shuffled, touch nothing", "I", SHUFFLED, consumer=TOUCH),
    Case("I warm shuffled, sum", "I", SHUFFLED),
    Case("I warm sequential, sum", "I", SEQUENTIAL),
    Case("S warm shuffled, touch nothing", "S", SHUFFLED, consumer=TOUCH),
    Case("S warm shuffled, sum", "S", SHUFFLED),
    Case("S warm sequential, sum", "S", SEQUENTIAL),
    Case("S warm shuffled, sum, two threads", "S", SHUFFLED, threads=2, labels=THREADED),
    Case("S warm shuffled, touch nothing, two threads", "S", SHUFFLED, consumer=TOUCH, threads=2, labels=THREADED),
    Case(
        "J warm shuffled, decode",
        "J",
        SHUFFLED,
        consumer=DECODE,
        labels=(STORED_MANY, STORED_READ, FLOOR, DIRECTORY, LMDB, ZIP, FUSE),
    ),
    Case("I cold sequential", "I", SEQUENTIAL, COLD, labels=COLD_LABELS),
    Case("I cold local shuffle", "I", LOCAL, COLD, labels=(STORED_MANY,)),
    Case("I cold shuffled", "I", SHUFFLED, COLD, labels=COLD_LABELS),
    Case("I slow 1 ms, sequential", "I", SEQUENTIAL, SLOW, labels=OBJECT_LABELS, delay_s=0.001, most_samples=2000),
    Case("I slow 1 ms, local shuffle", "I", LOCAL, SLOW, labels=OWN_ORDER, delay_s=0.001, most_samples=2000),
    Case(
        "I slow 1 ms, local shuffle, windows of 24 MiB",
        "I",
        LOCAL,
        SLOW,
        labels=OWN_ORDER,
        delay_s=0.001,
        most_samples=2000,
        # This window and the next one fit into the cache of blocks for images behind fsspec, which has 64 MiB.
        sampler=(("block_bytes", 4 << 20), ("window_bytes", 24 << 20)),
    ),
    Case("I slow 1 ms, shuffled", "I", SHUFFLED, SLOW, labels=OBJECT_LABELS, delay_s=0.001, most_samples=2000),
    Case("I workers", "I", SHUFFLED, labels=WORKER_LABELS, workers=(0, 1, 2, 4)),
    Case("S workers", "S", SHUFFLED, labels=SMALL_WORKER_LABELS, workers=(0, 1, 2, 4)),
    Case("S workers, forkserver", "S", SHUFFLED, labels=SMALL_WORKER_LABELS, workers=(2,), start="forkserver"),
]
# Of the form `ci`: enough that all code has run.
CI_CASES = (
    "I warm shuffled, sum",
    "S warm shuffled, sum, two threads",
    "J warm shuffled, decode",
    "I cold local shuffle",
    "I slow 1 ms, local shuffle",
    "I slow 1 ms, shuffled",
    "I workers",
    "S workers, forkserver",
)

SPECIAL = [
    Special("memory of a worker, fork", "memory", (NOTHING, INDEXED, LISTED)),
    Special("memory of a worker, forkserver", "memory", (NOTHING, INDEXED, LISTED), start="forkserver"),
    Special("index of all files", "index", (INDEX, SCAN)),
    Special("open", "open", (OPEN,)),
]
