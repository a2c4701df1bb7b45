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
STAGES: dict[Bench | None, Stage] = {}


@functools.lru_cache(1)
def stage_at(home: Any, quick: bool) -> Stage:
    """Returns the stage of a run."""
    return Stage(home, quick)


def stage_of(bench: Bench) -> Stage:
    """Returns the stage of a run."""
    return stage_at(bench.scratch / "python", bench.quick)


def rows(
    bench: Bench, of_set: str, labels: Sequence[str], work: str = "read", more: dict[str, str] | None = None, **fields: Any
) -> Iterator[Row]:
    """Yields a row for each contestant; in the quick form for the first ones, unless it is to be all."""
    stage = stage_of(bench)
    for label in labels[:2] if bench.quick and labels is not ALL else labels:
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
    yield from rows(bench, "photos", ALL, more={"use": "sum"})
    for label, reason in environment.ABSENT.items():
        yield Row({"use": "sum", "reader": label}, reason=reason)
    labels = [label for label in ALL if label.startswith(("kilnfs stored", "flat", "LMDB", "directory"))]
    yield from rows(bench, "photos", labels, more={"use": "touch"}, use="touch")


def texts(bench: Bench) -> Iterator[Row]:
    """Yields all readers of texts on one thread, and those that have more on two."""
    labels = [label for label in ALL if "kilnfs" in label] if bench.quick else ALL
    yield from rows(bench, "texts", ALL, more={"threads": "1"}, most_samples=MOST)
    threaded = (LMDB_MANY, *(label for label in ALL if "read_many" in label))
    yield from rows(bench, "texts", threaded, more={"threads": "2"}, threads=2, most_samples=MOST)


def sequential(bench: Bench) -> Iterator[Row]:
    """Yields readers in the order of paths."""
    labels = (STORED, "WebDataset", "MDS", ZSTD, FLOOR, DIRECTORY, ZIP, LMDB, HDF5, KERNEL, SQUASHFS)
    for of_set in ("photos", "texts"):
        yield from rows(bench, of_set, labels, more={"set": of_set}, order=SEQUENTIAL)
