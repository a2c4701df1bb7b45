"""Cases that are no pass over samples: memory of a worker, an index of all files, opening an image."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from cases import INDEX, LISTED, NOTHING, SCAN
from consume import checksum, permutation
from contestants.base import Buffer, Missing
from contestants.images import IndexedSamples, kilnfs, open_image
from cost import Meter, private_bytes
from loader import Loader
from measure import Spec, in_child
from sets import SUFFIX, Tree

OPENS = 200
# Samples that a worker reads before its memory is looked at.
READ_BY_WORKER = 20_000


class Samples(Protocol):
    """A dataset of the map style."""

    def __len__(self) -> int: ...

    def __getitems__(self, ids: list[int]) -> Sequence[Buffer]: ...


class NoSamples:
    """A dataset without data: what a worker takes by itself."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, ids: list[int]) -> Sequence[Buffer]:
        return [b"" for _ in ids]


class ListedSamples:
    """A list of paths with classes, as `torchvision.datasets.ImageFolder` keeps it."""

    def __init__(self, root: Path, suffix: str) -> None:
        self.samples = scan(root, suffix)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitems__(self, ids: list[int]) -> Sequence[Buffer]:
        found = []
        for i in ids:
            path, _class = self.samples[i]
            with open(path, "rb") as file:
                found.append(file.read())
        return found


def scan(root: Path, suffix: str) -> list[tuple[str, int]]:
    """Do what `find_classes` and `make_dataset` of torchvision's ImageFolder do, step by step, without torchvision."""
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
    """Work of the worker whose memory is measured: reads its batches of a dataset that was made before it was
    started."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def start(self) -> None:
        pass

    def batch(self, ids: list[int]) -> tuple[int, int]:
        return checksum(self.samples.__getitems__(ids))

    def finish(self) -> object:
        gc.collect()
        return private_bytes()


def memory(spec: Spec) -> dict[str, Any]:
    """Memory private to one worker after some thousand samples. The worker is started by `spec.start`."""
    tree = Tree(Path(spec.tree))
    samples = dataset(spec, tree)
    if len(samples) != len(tree):
        raise RuntimeError(f"{spec.label}: {len(samples)} samples, the set has {len(tree)}")
    ids = permutation(len(tree))[:READ_BY_WORKER]
    loader = Loader(MemoryWork(samples), 1, spec.start)
    size = sum(size for size, _ in loader.epoch([ids[i : i + spec.batch] for i in range(0, len(ids), spec.batch)]))
    wanted = 0 if spec.label == NOTHING else sum(tree.sizes[i] for i in ids)
    if size != wanted:
        raise RuntimeError(f"{spec.label}: {size} bytes read, the set has {wanted}")
    return {"private_bytes": loader.said[0], "first_s": loader.first_s, "samples": len(tree), "read": len(ids)}


def dataset(spec: Spec, tree: Tree) -> Samples:
    """The dataset of a label. Raises Missing."""
    if spec.label == NOTHING:
        return NoSamples(len(tree))
    if spec.label == LISTED:
        return ListedSamples(tree.root, SUFFIX[tree.about.name])
    return IndexedSamples(image_of(spec))


def image_of(spec: Spec) -> Path:
    """The image of the set. Raises Missing without kilnfs, or if nothing was packed."""
    kilnfs()
    image = Path(spec.place) / "set.erofs"
    if not image.exists():
        raise Missing("no image: kiln pack has not run")
    return image


def index(spec: Spec) -> dict[str, Any]:
    """Time and memory of a list of all files, names and directories in the page cache."""
    tree = Tree(Path(spec.tree))
    if spec.label == INDEX:
        image_of(spec)
    in_child(lambda: list_all(spec, tree)[1].clear())
    gc.collect()
    before = private_bytes()
    meter = Meter(Path(spec.tree))
    count, kept = list_all(spec, tree)
    cost = meter.cost()
    gc.collect()
    grown = private_bytes() - before
    kept.clear()
    if count != len(tree):
        raise RuntimeError(f"{spec.label}: {count} files, the set has {len(tree)}")
    return {"wall_s": cost.wall_s, "cpu_s": cost.cpu_s, "private_bytes": grown, "files": count}


def list_all(spec: Spec, tree: Tree) -> tuple[int, list[Any]]:
    """The number of files, and what must be kept to know them."""
    if spec.label == SCAN:
        found = scan(tree.root, SUFFIX[tree.about.name])
        return len(found), [found]
    image = open_image(image_of(spec))
    rows = image.index("/")
    return len(rows), [rows, image]


def opening(spec: Spec) -> dict[str, Any]:
    """Time of `kilnfs.open`, median and first, and the reads of the file that it makes."""
    image = image_of(spec)
    times, calls = [], []
    for _ in timed(OPENS):
        meter = Meter(image)
        opened = open_image(image)
        cost = meter.cost()
        opened.close()
        times.append(cost.wall_s)
        calls.append(cost.read_calls)
    return {
        "open_s": statistics.median(times),
        "first_open_s": times[0],
        "reads": statistics.median(calls),
        "first_reads": calls[0],
    }


def timed(rounds: int) -> Iterator[int]:
    """Numbers of rounds, for at most ten seconds."""
    end = time.monotonic() + 10
    for number in range(rounds):
        if number and time.monotonic() > end:
            return
        yield number
