"""Measurements that are no pass over samples: memory of a worker, an index of all files, opening an image."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyworker.base import Buffer, version
from pyworker.images import IndexedSamples
from pyworker.loader import Loader
from pyworker.measure import Answer, Meter, Spec, chunks, consume, in_child, permutation, private_bytes
from pyworker.sets import SUFFIX, Tree

OPENS, OPENS_S = 200, 10
READ_BY_WORKER = 20_000  # samples before the memory of a worker is looked at
# Labels of rows.
NOTHING, INDEXED, LISTED = "dataset without data", "kilnfs, index and read_many", "list of (path, class), open().read()"
OPEN, INDEX, SCAN = "kilnfs.open", "kilnfs.open and index", "ImageFolder's scan of the directory"


class NoSamples:
    """A dataset without data: what a worker takes by itself."""

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        return [b"" for _ in ids]


class ListedSamples:
    """A list of paths with classes, as `torchvision.datasets.ImageFolder` keeps it."""

    def __init__(self, root: Path, suffix: str) -> None:
        self.samples = scan(root, suffix)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        return [Path(self.samples[i][0]).read_bytes() for i in ids]


def scan(root: Path, suffix: str) -> list[tuple[str, int]]:
    """Does what `find_classes` and `make_dataset` of torchvision's ImageFolder do, step by step."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    numbers = {name: number for number, name in enumerate(classes)}
    instances = []
    for target in sorted(numbers):
        for folder, _, names in sorted(os.walk(os.path.join(root, target), followlinks=True)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if path.lower().endswith(suffix):
                    instances.append((path, numbers[target]))
    return instances


class MemoryWork:
    """Work of a worker that reads its batches of a dataset that was made before it started."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def start(self) -> None: ...

    def batch(self, ids: list[int]) -> tuple[int, int]:
        return consume(self.samples.read(ids))

    def finish(self) -> Any:
        gc.collect()
        return private_bytes()


def memory(spec: Spec) -> Answer:
    """Returns the memory private to one worker after some thousand samples."""
    tree = Tree(Path(spec.tree))
    if spec.label == INDEXED:
        version("kilnfs")
        samples: Any = IndexedSamples(spec.file)
    else:
        samples = NoSamples() if spec.label == NOTHING else ListedSamples(tree.root, SUFFIX[tree.name])
    ids = permutation(len(tree))[:READ_BY_WORKER]
    loader = Loader(MemoryWork(samples), 1, spec.start)
    size, _ = loader.epoch(chunks(ids, spec.batch))
    if size != (wanted := 0 if spec.label == NOTHING else sum(tree.sizes[i] for i in ids)):
        raise RuntimeError(f"{spec.label}: {size} bytes read, the set has {wanted}")
    return {"private_bytes": loader.said[0], "first_s": loader.first_s}


def index(spec: Spec) -> Answer:
    """Returns time and memory of a list of all files, names and directories in the page cache."""
    tree = Tree(Path(spec.tree))
    if spec.label == INDEX:
        version("kilnfs")

    def make() -> Any:
        return IndexedSamples(spec.file) if spec.label == INDEX else scan(tree.root, SUFFIX[tree.name])

    in_child(make)
    gc.collect()
    before = private_bytes()
    meter = Meter(spec)
    found = make()
    cost = meter.cost()
    gc.collect()
    if len(found) != len(tree):
        raise RuntimeError(f"{spec.label}: {len(found)} files, the set has {len(tree)}")
    return {"wall_s": cost["wall_s"], "cpu_s": cost["cpu_s"], "private_bytes": private_bytes() - before}


def opening(spec: Spec) -> Answer:
    """Returns the median time of `kilnfs.open`, and of the reads of the file that it makes."""
    version("kilnfs")
    import kilnfs

    costs: list[dict[str, float]] = []
    end = time.monotonic() + OPENS_S
    while len(costs) < OPENS and (not costs or time.monotonic() < end):
        meter = Meter(spec)
        image = kilnfs.open(spec.file)
        costs.append(meter.cost())
        image.close()
    return {name: statistics.median(one[name] for one in costs) for name in ("wall_s", "cpu_s", "calls")}
