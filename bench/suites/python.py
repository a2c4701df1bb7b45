"""Datasets of many files read from Python: kilnfs beside directories, mounts, archives and formats of datasets.

In full about 40 minutes, with 16 GB of scratch space."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from lib import disks, images
from lib.bench import Bench
from lib.programs import typed
from lib.results import Results
from lib.suite import CPU, MEMORY, SIZE, WALL, Column, Plot, Row, Run, Suite, Table
from lib.words import Words
from pyworker import environment
from pyworker.base import LOCAL, SEQUENTIAL, SHUFFLED, Contestant, allocated
from pyworker.contestants import CONTESTANTS
from pyworker.special import INDEX, INDEXED, LISTED, NOTHING, OPEN, SCAN
from pyworker.stage import BATCH, Stage

MOST = 50_000  # texts of one measurement
STORED, VIEWS, URL = "kilnfs stored, read_many", "kilnfs stored, views, mmap", "kilnfs stored, read_many by fsspec"
ZSTD, PACKED, SMALL = "kilnfs zstd, read_many", "kilnfs zstd packed, read_many", "kilnfs zstd small, read_many"
FLOOR, OBJECT, DIRECTORY, ZIP = "flat file, os.pread", "flat file, file object", "directory", "zipfile, stored"
LMDB, LMDB_ZSTD, LMDB_MANY = "LMDB", "LMDB, zstd per value", "LMDB, zstd, multi_decompress"
KERNEL, FUSE, SQUASHFS, LANCE = "kernel EROFS mount", "kiln mount, FUSE", "squashfuse_ll mount", "Lance, take"
SHARDS, HDF5 = ("WebDataset", "MDS"), "HDF5, variable length"
ALL = tuple(label for label in CONTESTANTS if label != URL)


@functools.lru_cache(1)
def stage_at(home: Any, quick: bool) -> Stage:
    """Returns the stage of a run."""
    return Stage(home, quick)


def stage_of(bench: Bench) -> Stage:
    """Returns the stage of a run."""
    return stage_at(bench.scratch / "python", bench.quick)


def rows(
    bench: Bench,
    of_set: str,
    labels: Sequence[str],
    work: str = "measure.read",
    quick: int = 2,
    more: Any = None,
    **fields: Any,
) -> Iterator[Row]:
    """Yields a row for each contestant; in the quick form only for the first ones. `more` are other labels."""
    stage = stage_of(bench)
    for label in labels[:quick] if bench.quick else labels:
        if of_set in CONTESTANTS[label].only_sets:
            row = Row({**(more or {}), "reader": label}, ours=label.startswith("kiln"))
            row.measure = functools.partial(stage.read, work, of_set, label, **{"order": SHUFFLED, **fields})
            row.check = functools.partial(stage.check, of_set, row, label)
            yield row


def formats(bench: Bench) -> Iterator[Row]:
    """Yields the containers of two sets."""
    stage = stage_of(bench)

    def made(row: Row, of_set: str, kind: type[Contestant]) -> Run:
        path, tree = stage.container(of_set, kind), stage.tree(of_set) / "tree"
        if kind.builder:
            row.command = typed(images.command(kind.builder, kind.options(of_set), tree, path))
        run = stage.built.get(path, {"size_bytes": allocated(tree)})
        return {**run, "ratio": run["size_bytes"] / disks.entries(tree)[1]}

    for of_set in ("photos",) if bench.quick else ("photos", "texts"):
        kinds: dict[str, type[Contestant]] = {}
        for kind in CONTESTANTS.values():
            if of_set in kind.only_sets and kind.container not in kinds:
                kinds[kind.container] = kind
                row = Row({"set": of_set, "container": kind.container}, ours=kind.builder == "kiln")
                row.measure = functools.partial(made, row, of_set, kind)
                yield row


def photos(bench: Bench) -> Iterator[Row]:
    """Yields all readers of photos; those that give memory of the page cache, also without a use of the bytes."""
    yield from rows(bench, "photos", ALL, quick=len(ALL), more={"use": "sum"})
    for label, reason in environment.ABSENT.items():
        yield Row({"use": "sum", "reader": label}, reason=reason)
    labels = [label for label in ALL if label.startswith(("kilnfs stored", "flat", "LMDB", "directory"))]
    yield from rows(bench, "photos", labels, more={"use": "touch"}, use="touch")


def texts(bench: Bench) -> Iterator[Row]:
    """Yields all readers of texts on one thread, and those that have more on two."""
    # Forms that only this set has come first: the quick form reads these.
    first = [label for label in ALL if CONTESTANTS[label].only_sets == ("texts",)]
    labels = [*first, *(label for label in ALL if label not in first)]
    yield from rows(bench, "texts", labels, quick=len(first), more={"threads": "1"}, most_samples=MOST)
    threaded = (LMDB_MANY, *(label for label in ALL if "read_many" in label))
    yield from rows(bench, "texts", threaded, more={"threads": "2"}, threads=2, most_samples=MOST)


def sequential(bench: Bench) -> Iterator[Row]:
    """Yields readers in the order of paths."""
    labels = ("WebDataset", STORED, ZSTD, FLOOR, DIRECTORY, ZIP, LMDB, "MDS", HDF5, KERNEL, SQUASHFS)
    for of_set in ("photos", "texts"):
        yield from rows(bench, of_set, labels, more={"set": of_set}, order=SEQUENTIAL)


def batches(bench: Bench) -> Iterator[Row]:
    """Yields batches of several sizes."""
    labels = (STORED, LMDB, ZSTD, FLOOR, DIRECTORY, LMDB_MANY, LANCE)
    for count in (1, 64) if bench.quick else (1, 4, 16, 64, 256, 1024):
        yield from rows(bench, "texts", labels, more={"batch": str(count)}, batch=count, most_samples=MOST)


def workers(of_set: str, labels: Sequence[str], bench: Bench) -> Iterator[Row]:
    """Yields readers in worker processes that are forked, and texts also in those of a fork server."""
    for count in (0, 2) if bench.quick else (0, 1, 2, 4):
        more = {"start": "fork", "workers": str(count)}
        yield from rows(bench, of_set, labels, "measure.load", more=more, workers=count)
    if of_set == "texts":
        more = {"start": "forkserver", "workers": "2"}
        yield from rows(bench, of_set, labels[:4], "measure.load", more=more, workers=2, start="forkserver")


def cold(bench: Bench) -> Iterator[Row]:
    """Yields readers of photos that only the disk has."""
    labels = (STORED, FLOOR, DIRECTORY, ZIP, LMDB, *SHARDS, HDF5, KERNEL, FUSE, SQUASHFS)
    for order, chosen in ((SEQUENTIAL, labels), (LOCAL, (STORED,)), (SHUFFLED, labels)):
        yield from rows(bench, "photos", chosen, more={"order": order}, state="cold", order=order)


def slow(bench: Bench) -> Iterator[Row]:
    """Yields readers of file objects of which each request takes 1 ms."""
    objects, own = (URL, OBJECT, STORED, "kilnfs stored, read", ZIP, HDF5), (STORED, URL)
    # This window and the next one fit into the cache of blocks of remote images, which has 64 MiB.
    small = {"block_bytes": 4 << 20, "window_bytes": 24 << 20}
    cases: list[tuple[str, str, Sequence[str], dict[str, int]]] = [
        (SEQUENTIAL, SEQUENTIAL, objects, {}),
        (LOCAL, LOCAL, own, {}),
        (f"{LOCAL}, windows of 24 MiB", LOCAL, own, small),
        (SHUFFLED, SHUFFLED, objects, {}),
    ]
    for name, order, labels, sampler in cases:
        fields = {"order": order, "sampler": sampler, "delay_s": 0.001, "most_samples": 2000}
        yield from rows(bench, "photos", labels, more={"order": name}, **fields)


def special(bench: Bench, kind: str, label: str, more: dict[str, str], **fields: Any) -> Row:
    """Returns a row of `special.py`, which reads the stored image of the texts."""
    stage, ours = stage_of(bench), label.startswith("kilnfs")

    def measured() -> Run:
        file = stage.container("texts", CONTESTANTS[STORED]) if ours else ""
        tree = stage.tree("texts")
        return stage.work(kind, label=label, tree=str(tree), file=str(file), batch=BATCH["texts"], **fields)

    return Row({**more, "with": label}, measured, ours=ours)


def memory(bench: Bench) -> Iterator[Row]:
    """Yields the memory of one worker, of a dataset that was made before the worker started."""
    for start in ("fork", "forkserver"):
        for label in (NOTHING, INDEXED, LISTED):
            yield special(bench, "special.memory", label, {"start": start}, start=start)


def opening(bench: Bench) -> Iterator[Row]:
    """Yields the opening of an image, and lists of all files. Sets and containers end with this table."""
    bench.stack.callback(stage_at.cache_clear)
    bench.stack.callback(shutil.rmtree, stage_of(bench).home, ignore_errors=True)
    yield special(bench, "special.opening", OPEN, {})
    yield from (special(bench, "special.index", label, {}) for label in (INDEX, SCAN))


# Table, our reader, the peer, other labels, words of the place, reason.
RATES: list[tuple[str, str, str, dict[str, str], str, str]] = [
    ("photos", STORED, FLOOR, {"use": "sum"}, "photos", "both copy bytes out of the page cache"),
    ("photos", VIEWS, "LMDB, buffers=True", {"use": "sum"}, "photos", "neither copies"),
    ("photos", STORED, LMDB, {"use": "sum"}, "photos", ""),
    ("photos", STORED, DIRECTORY, {"use": "sum"}, "photos", "no path is looked up and no file is opened"),
    ("photos", STORED, ZIP, {"use": "sum"}, "photos", "zipfile checks the CRC-32 of each member"),
    ("photos", STORED, "PySquashfsImage", {"use": "sum"}, "photos", "that one is all Python"),
    ("photos", STORED, "ratarmountcore, tar", {"use": "sum"}, "photos", "that one asks SQLite for each path"),
    ("texts", ZSTD, LMDB_MANY, {"threads": "2"}, "texts on two threads", "both decode each sample by itself"),
    ("texts", PACKED, LMDB_MANY, {"threads": "2"}, "texts on two threads", "neighbours are decoded, too"),
    ("texts", SMALL, LMDB_MANY, {"threads": "2"}, "texts on two threads", "some 30 neighbours are decoded, too"),
    ("pictures", STORED, DIRECTORY, {}, "pictures", "decoding them hides nearly everything"),
    ("sequential", STORED, "WebDataset", {"set": "photos"}, "photos in their order", ""),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    text, rate = Words(results, "python"), "samples a second"
    for table, ours, theirs, more, where, why in RATES:
        pair = ({**more, "reader": reader} for reader in (ours, theirs))
        text.compare(table, "rate", *pair, rate, of=ours, to=theirs, where=f"for {where}", why=why, more=True)
    for order, table, where in ((SEQUENTIAL, "cold", "from the disk"), (SHUFFLED, "slow", "at 1 ms a request")):
        pair = ({"order": one, "reader": STORED} for one in (LOCAL, order))
        of = "The local shuffle of kilnfs"
        text.compare(table, "rate", *pair, rate, of=of, to=f"its {order} order", where=where, more=True)
    for form in ("zstd", "zstd-packed", "zstd-small"):
        pair = ({"set": "texts", "container": name} for name in (f"kiln-{form}", "lmdb-zstd"))
        text.compare("formats", "size_bytes", *pair, "bytes", of=f"kiln-{form}", to="LMDB with zstd", where="for texts")
    for column, what in (("wall_s", "time"), ("private_bytes", "memory")):
        text.compare("opening", column, {"with": INDEX}, {"with": SCAN}, what, of=INDEX, to=SCAN)
    return text.sentences()


def table(
    key: str, title: str, columns: Sequence[Column], make: Any, series: str, note: str = "", **more: Any
) -> Table:
    """Returns a table with bars of rates."""
    plot = Plot("bars", "rate", series=series, log_y=key == "slow")
    return Table(key, title, columns, make, **{"plot": plot, "rounds": 3, "note": note, **more})


RATE, SAMPLE = Column("rate", "samples a second", "/s", "more"), Column("cpu_s", "CPU of a sample", "s")
OPENED, FIRST = Column("open_s", "open", "s"), Column("first_s", "first batch", "s")
FROM = Column("fetched", "fetched ÷ served", "%", timed=False)
ASKED = Column("requests", "requests of a sample", "", timed=False)
CALLS, SHARE = Column("calls", "reads", "", timed=False), Column("ratio", "of the source", "%", timed=False)
PRIVATE = Column("private_bytes", "private memory", "MiB")
READ, LOAD = [RATE, SAMPLE, OPENED], [RATE, SAMPLE, FIRST, PRIVATE]
LINES = Plot("lines", "rate", x="workers", series="reader", only={"start": "fork"})
SIZES = Plot("bars", "ratio", series="set")
BATCHES = Plot("lines", "rate", x="batch", series="reader", log_x=True, log_y=True)
PHOTO_WORKERS = (STORED, FLOOR, VIEWS, DIRECTORY, LMDB, ZIP, SQUASHFS)
TEXT_WORKERS = (ZSTD, LMDB_ZSTD, STORED, SMALL, DIRECTORY, LMDB, SQUASHFS)
WARM = "In the page cache, but not in the memory of the process. Batches of 64 photos or 256 texts. "

TABLES = [
    table(
        "formats", "Containers: size, and the cost of making them", [SIZE, SHARE, WALL, CPU, MEMORY], formats, "",
        "Bytes on the disk. Photos do not compress. The time ends when the container is on the disk.",
        plot=SIZES, rounds=1,
    ),
    table(
        "photos", "Photos in random order", READ, photos, "use",
        f"{WARM}Sum: XXH3 of each sample. Touch: lengths only; mapped readers then read nothing.",
    ),
    table(
        "texts", "Texts of 1 to 4 KB in random order, on one thread and on two", READ, texts, "threads",
        f"{WARM}Two threads: only for readers that use them. A sample of a packed image decodes a whole pcluster.",
    ),
    table("sequential", "In the order of paths", READ, sequential, "set"),
    table(
        "pictures", "JPEG pictures, decoded to pixels", READ,
        lambda bench: rows(bench, "pictures", (STORED, FLOOR, DIRECTORY, LMDB, ZIP, SQUASHFS), use="decode"), "",
    ),
    table("batches", "Batches of 1 to 1,024 texts in random order", READ, batches, "", plot=BATCHES),
    table(
        "workers", "Photos read by worker processes", LOAD, lambda bench: workers("photos", PHOTO_WORKERS, bench), "",
        "Batches go round as those of PyTorch's DataLoader. Rates from the first batch on.", plot=LINES,
    ),
    table(
        "small", "Texts read by worker processes", LOAD, lambda bench: workers("texts", TEXT_WORKERS, bench), "",
        plot=LINES,
    ),
    table(
        "cold", "Photos from the disk", [*READ, FROM], cold, "order",
        "Caches are dropped before a container is opened. Local shuffle: kilnfs.torch.LocalityBatchSampler.",
    ),
    table(
        "slow", "2,000 photos behind a file object that takes 1 ms for each request",
        [RATE, SAMPLE, ASKED, FROM], slow, "order",
        "The time is slept. A reader without threads waits for one request after the other.", modelled=True,
    ),
    table(
        "memory", "Private memory of a worker that has read 20,000 texts", [PRIVATE, FIRST], memory, "",
        plot=Plot("bars", "private_bytes", series="start"),
    ),
    table(
        "opening", "Opening an image, and a list of all its files", [WALL, CPU, PRIVATE, CALLS], opening, "",
        "Opening: the median of 200. ImageFolder's scan: the steps of torchvision, directories in memory.",
        plot=Plot("bars", "wall_s", log_y=True), rounds=5,
    ),
]  # fmt: skip
ABOUT = (
    "How fast does Python read the samples of a dataset, what memory do workers take, and how large are the "
    "containers? kilnfs reads an image without a mount; beside it stand directories, mounts, archives, LMDB and the "
    "formats of training libraries. Each measurement is a process of its own, and every byte that a reader gives is "
    "compared with the source before."
)
SUITE = Suite("python", "Datasets of many files read from Python", ABOUT, TABLES, words)
