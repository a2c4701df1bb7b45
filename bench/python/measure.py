"""One measurement of one contestant, in the process that does it: build, verify, read, and read by workers."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import lib
import mounted
from cases import COLD, SLOW, SUM, TOUCH, WARM
from consume import CONSUMERS, Consumer, batches, checksum, expected
from contestants import CONTESTANTS
from contestants.base import LOCAL, SEQUENTIAL, SHUFFLED, Clock, Contestant, Missing
from cost import Cost, Meter, private_bytes
from loader import Loader
from servers import spent
from sets import SEED, Tree
from slow import Store


@dataclass(frozen=True)
class Spec:
    """Specification of a measurement: the fields of a case, and the contestant."""

    kind: str  # a key of `worker.KINDS`
    label: str
    tree: str  # directory of the set
    place: str  # directory of the container
    order: str = SEQUENTIAL
    state: str = WARM
    consumer: str = SUM
    threads: int = 1
    batch: int = 64
    delay_s: float = 0.0
    sampler: dict[str, int] = field(default_factory=dict)  # options of the contestant's own order
    most_samples: int | None = None
    workers: int = 0
    start: str = "fork"

    def contestant(self) -> Contestant:
        """Return the contestant to measure. Raises Missing if it cannot run here."""
        kind = CONTESTANTS[self.label]
        open_file = Store(self.delay_s) if self.state == SLOW else None
        contestant = kind(Tree(Path(self.tree)), Path(self.place), self.threads, open_file)
        if contestant.tree.about.name not in kind.only_sets:
            raise Missing(f"not for set {contestant.tree.about.name}")
        if self.state == SLOW and not kind.takes_file_object:
            raise Missing("takes no file object")
        return contestant

    def samples(self, contestant: Contestant) -> int:
        """Number of samples that one pass reads."""
        limits = (len(contestant.tree), self.most_samples, contestant.most_samples)
        return min(limit for limit in limits if limit is not None)


def version(spec: Spec) -> dict[str, Any]:
    """Return the contestant's version and the recipe of its container. Raises Missing if it cannot run here."""
    contestant = spec.contestant()
    try:
        return {"version": contestant.version(), "recipe": contestant.recipe()}
    except ImportError as error:
        raise Missing(str(error)) from error


def prepare(spec: Spec) -> dict[str, Any]:
    """Make the container, if there is none by the same recipe, and compare every sample with the source. Raises
    Missing."""
    contestant = spec.contestant()
    about = version(spec)
    kept = contestant.place.with_name(f"{contestant.place.name}.json")
    built = json.loads(kept.read_text()) if contestant.place.exists() and kept.exists() else {}
    if built.get("recipe") != about["recipe"]:
        shutil.rmtree(contestant.place, ignore_errors=True)
        built = {"recipe": about["recipe"], **build(contestant)}
        kept.write_text(json.dumps(built))
    return {**about, **built, "bytes": contestant.size(), "wrong": verify(contestant, spec)}


def build(contestant: Contestant) -> dict[str, Any]:
    """Make the container in a directory beside its place, and put it there when it is complete."""
    final = contestant.place
    contestant.place = final.with_name(f".{final.name}-{os.getpid()}")
    contestant.place.mkdir(parents=True)
    try:
        meter = Meter(contestant.place)
        contestant.build()
        flush(contestant.place)
        cost = meter.cost()
        os.rename(contestant.place, final)
    except BaseException:
        shutil.rmtree(contestant.place, ignore_errors=True)
        raise
    finally:
        contestant.place = final
    return {"build_s": cost.wall_s, "build_cpu_s": cost.cpu_s}


def flush(directory: Path) -> None:
    """Write all files below `directory` through to the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            lib.flush(Path(folder, name))


def verify(contestant: Contestant, spec: Spec) -> str | None:
    """Compare the digest of every sample with that of the source. Returns what is wrong with the first that differs."""
    order = SEQUENTIAL if contestant.sequential_only else SHUFFLED
    contestant.attach()
    try:
        contestant.open(order)
        for ids in batches(contestant, order, spec.batch, spec.samples(contestant)):
            if problem := difference(contestant, ids):
                return problem
        contestant.close()
    finally:
        contestant.detach()
    return None


def difference(contestant: Contestant, ids: list[int]) -> str | None:
    """Describe the first sample of a batch that differs from the source."""
    samples = contestant.read(ids)
    if len(samples) != len(ids):
        return f"{len(ids)} samples asked for, {len(samples)} given"
    for i, sample in zip(ids, samples, strict=True):
        if checksum([sample])[1] != contestant.tree.digests[i]:
            return f"{contestant.tree.paths[i]}: {len(sample)} bytes that are not those of the source"
    return None


def read(spec: Spec) -> dict[str, Any]:
    """Open the container, read an epoch or its beginning, and close it."""
    contestant = spec.contestant()
    contestant.version()  # imports
    if spec.state == COLD and os.geteuid() != 0:
        raise Missing("dropping the page cache needs root")
    samples = spec.samples(contestant)
    clock = contestant.attach()
    try:
        lists = [] if spec.order == LOCAL else batches(contestant, spec.order, spec.batch, samples)
        if spec.state == COLD:
            mounted.drop_caches()
        else:
            everything = lists or batches(contestant, SEQUENTIAL, spec.batch, len(contestant.tree))
            in_child(lambda: warm_up(contestant, everything))
        gc.collect()
        opening = Meter(contestant.place, clock)
        contestant.open(spec.order)
        opened = opening.cost()
        wanted: Iterable[list[int]] = lists
        if spec.order == LOCAL:
            wanted = islice(contestant.local_order(spec.batch, SEED, spec.sampler), max(1, samples // spec.batch))
        store = contestant.open_file if isinstance(contestant.open_file, Store) else None
        requests, fetched = (store.requests, store.fetched) if store else (0, 0)
        asked, size, total, cost = timed_pass(contestant, wanted, CONSUMERS[spec.consumer], clock)
        contestant.close()
    finally:
        contestant.detach()
    check(contestant, asked, size, total if spec.consumer != TOUCH else None)
    return {
        **result(len(asked), size, cost.wall_s, cost.cpu_s),
        "open_s": opened.wall_s,
        "open": opened.document(),
        "read": cost.document(),
        "requests": store.requests - requests if store else None,
        "fetched_bytes": store.fetched - fetched if store else cost.fetched_bytes,
    }


def timed_pass(
    contestant: Contestant, lists: Iterable[list[int]], consumer: Consumer, clock: Clock | None
) -> tuple[list[int], int, int, Cost]:
    """The pass that is measured: the ids that were asked for, bytes, check sum, and what it cost."""
    asked: list[list[int]] = []
    size = total = 0
    meter = Meter(contestant.place, clock)
    for ids in lists:
        asked.append(ids)
        bytes_of_batch, sum_of_batch = consumer(contestant.read(ids))
        size += bytes_of_batch
        total += sum_of_batch
    cost = meter.cost()
    return [i for ids in asked for i in ids], size, total, cost


def result(samples: int, size: int, wall_s: float, cpu_s: float) -> dict[str, Any]:
    """The numbers that every row has."""
    return {
        "samples": samples,
        "bytes": size,
        "samples_per_s": samples / wall_s,
        "cpu_us_per_sample": cpu_s / samples * 1e6,
    }


def check(contestant: Contestant, asked: list[int], size: int, total: int | None) -> None:
    """Raise RuntimeError if what came is not what the set has; without `total` only sizes are compared."""
    wanted = sum(contestant.tree.sizes[i] for i in asked)
    if size != wanted:
        raise RuntimeError(f"{size} bytes read, the set has {wanted}")
    if total is not None and total % (1 << 64) != expected(asked, contestant.tree.digests):
        raise RuntimeError("bytes read are not those of the source")


def warm_up(contestant: Contestant, lists: list[list[int]]) -> None:
    """A pass that is not measured: what it needs is in the page cache then, but not in the memory of the process that
    is measured.
    """
    if isinstance(contestant.open_file, Store):
        contestant.open_file.delay_s = 0.0
    contestant.open(SEQUENTIAL if contestant.sequential_only else SHUFFLED)
    for ids in lists:
        checksum(contestant.read(ids))
    contestant.close()


def in_child(function: Callable[[], None]) -> None:
    """Run `function` in a forked process. Raises RuntimeError if it fails there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"the pass that warms up failed: exit code {os.waitstatus_to_exitcode(status)}")


@dataclass
class EpochWork:
    """Work of a worker of `loader.py`: opens the container in its own process, reads, and sums."""

    spec: Spec
    mount_point: Path | None

    def start(self) -> None:
        self.cpu_s = time.process_time()
        self.contestant = self.spec.contestant()
        if self.mount_point is not None:
            self.contestant.mount_point = self.mount_point  # type: ignore[attr-defined]
        self.contestant.open(self.spec.order)

    def batch(self, ids: list[int]) -> tuple[int, int]:
        return CONSUMERS[self.spec.consumer](self.contestant.read(ids))

    def finish(self) -> object:
        private = private_bytes()
        self.contestant.close()
        return {"cpu_s": time.process_time() - self.cpu_s, "private_bytes": private}


def load(spec: Spec) -> dict[str, Any]:
    """An epoch through workers. Samples a second are counted from the first result on, `first_s` says what it took
    until then."""
    contestant = spec.contestant()
    contestant.version()
    samples = spec.samples(contestant)
    clock: Clock | None = contestant.attach()
    try:
        lists = batches(contestant, spec.order, spec.batch, samples)
        in_child(lambda: warm_up(contestant, lists))
        gc.collect()
        loader = Loader(EpochWork(spec, getattr(contestant, "mount_point", None)), spec.workers, spec.start)
        served = clock() if clock else {}
        own = time.process_time()
        size = total = 0
        first = 0.0
        for number, (bytes_of_batch, sum_of_batch) in enumerate(loader.epoch(lists)):
            if number == 0:
                first = time.perf_counter()
            size += bytes_of_batch
            total += sum_of_batch
        wall_s = time.perf_counter() - first
        said: list[Any] = loader.said
        cpu_s = (time.process_time() - own if spec.workers == 0 else sum(one["cpu_s"] for one in said)) + (
            spent(served, clock()) if clock else 0.0
        )
    finally:
        contestant.detach()
    asked = [i for ids in lists for i in ids]
    check(contestant, asked, size, total)
    return {
        **result(len(asked), size, wall_s, cpu_s),
        "samples_per_s": (len(asked) - len(lists[0])) / wall_s,
        "first_s": loader.first_s,
        "private_bytes": max(one["private_bytes"] for one in said),
    }
