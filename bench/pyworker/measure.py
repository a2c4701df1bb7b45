"""Measurements of one contestant, in the process that does them: build, check, read, and read by workers."""

from __future__ import annotations

import gc
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from lib import machine
from lib.mounts import Mount
from lib.process import own_peak, sync
from lib.suite import Missing
from pyworker.base import LOCAL, SEQUENTIAL, SHUFFLED, Buffer, Contestant
from pyworker.contestants import CONTESTANTS
from pyworker.sets import SEED, Tree, generate
from pyworker.slow import Store

MASK = (1 << 64) - 1
Answer = dict[str, Any]


@dataclass(frozen=True)
class Spec:
    """Specification of a measurement."""

    kind: str  # the function that does it: "measure.read"
    tree: str  # directory of the set
    label: str = ""
    file: str = ""  # the container, or the place where it is mounted
    files: int = 0  # of a set that is generated
    order: str = SEQUENTIAL
    state: str = "warm"  # in the page cache; "cold": on the disk only
    use: str = "sum"  # of the bytes: their XXH3; "touch": their lengths only; "decode": pixels of pictures
    delay_s: float = 0.0  # of each request to a slow file object
    threads: int = 1
    batch: int = 64
    sampler: dict[str, int] = field(default_factory=dict)  # options of the contestant's own order
    most_samples: int | None = None
    workers: int | None = None
    start: str = "fork"  # of workers
    server: int | None = None  # process that serves the mount
    kernel_threads: str = ""  # threads of the kernel that serve it

    def contestant(self) -> Contestant:
        """Returns the contestant. Raises Missing if it is not here."""
        open_file = Store(self.delay_s) if self.delay_s else None
        contestant = CONTESTANTS[self.label](Tree(Path(self.tree)), Path(self.file), self.threads, open_file)
        contestant.version()
        return contestant

    def batches(self, contestant: Contestant, order: str) -> list[list[int]]:
        """Returns the samples of a pass, in an order that is the same for all. Raises Missing."""
        if order == SHUFFLED and contestant.sequential_only:
            raise Missing("reads in the order of its shards only")
        ids = permutation(len(contestant.tree)) if order == SHUFFLED else list(range(len(contestant.tree)))
        ids = ids[: min(self.most_samples or len(ids), contestant.most_samples or len(ids))]
        return chunks(ids, self.batch)


class Meter:
    """Cost since it was made, for this process, its ended children and the server of a mount."""

    def __init__(self, spec: Spec) -> None:
        self.mount = Mount(Path(spec.file), spec.server, spec.kernel_threads)
        self.pids: list[int | str] = ["self", *([spec.server] if spec.server else [])]
        self.served = self.mount.cpu_s()
        self.io = self.counters()
        self.cpu_s = own_cpu_s()
        self.start = time.perf_counter()

    def counters(self) -> tuple[int, int]:
        """Bytes from the disk, read-ahead included, and system calls that read."""
        texts = [Path(f"/proc/{pid}/io").read_text() for pid in self.pids]
        found = [{name: int(value) for name, value in map(str.split, text.splitlines())} for text in texts]
        return sum(one["read_bytes:"] for one in found), found[0]["syscr:"]

    def served_s(self) -> float:
        """CPU seconds of the server and of the threads of the kernel."""
        return sum(used - self.served.get(pid, 0.0) for pid, used in self.mount.cpu_s().items())

    def cost(self) -> dict[str, float]:
        """Returns wall, CPU, bytes from the disk and reading system calls of this process."""
        wall_s, cpu_s = time.perf_counter() - self.start, own_cpu_s() - self.cpu_s
        fetched, calls = (after - before for after, before in zip(self.counters(), self.io, strict=True))
        # A look at the counters is two reading calls for each process, of which the first look has counted one.
        own = 2 * len(self.pids)
        return {"wall_s": wall_s, "cpu_s": cpu_s + self.served_s(), "fetched": fetched, "calls": max(0, calls - own)}


def own_cpu_s() -> float:
    """CPU seconds of this process, all threads, and of its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def private_bytes() -> int:
    """Memory that belongs to this process alone (USS)."""
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    return 1024 * sum(int(line[1]) for line in lines if line[0].startswith("Private_"))


def chunks(ids: list[int], count: int) -> list[list[int]]:
    """Returns ids in batches."""
    return [ids[first : first + count] for first in range(0, len(ids), count)]


def permutation(count: int) -> list[int]:
    """Returns one permutation for all contestants."""
    ids = list(range(count))
    random.Random(SEED).shuffle(ids)
    return ids


def consume(samples: Sequence[Buffer], use: str = "sum") -> tuple[int, int]:
    """Uses the samples of a batch. Returns their bytes, and the sum of their digests."""
    import xxhash

    if use == "touch":  # a mapped reader has read nothing then
        return sum(map(len, samples)), 0
    if use == "decode":
        from PIL import Image

        for sample in samples:
            with Image.open(BytesIO(sample)) as picture:
                picture.convert("RGB")
    digest = xxhash.xxh3_64_intdigest
    return sum(map(len, samples)), sum(map(digest, samples)) & MASK


def make_set(spec: Spec) -> Answer:
    """Generates a set."""
    generate(Path(spec.tree), spec.files)
    return {"bytes": sum(Tree(Path(spec.tree)).sizes)}


def build(spec: Spec) -> Answer:
    """Makes the container of a contestant, through to the disk."""
    contestant = spec.contestant()
    meter = Meter(spec)
    contestant.build()
    for path in [contestant.file, *contestant.file.rglob("*")]:
        sync(path)
    cost = meter.cost()
    return {name: cost[name] for name in ("wall_s", "cpu_s")} | {"memory_bytes": own_peak()}


def check(spec: Spec) -> Answer:
    """Compares every sample with its source. Returns the contestant's version, or what is wrong with the first that
    differs."""
    contestant = spec.contestant()
    order = SEQUENTIAL if contestant.sequential_only else SHUFFLED
    contestant.open(order)
    for ids in spec.batches(contestant, order):
        samples = contestant.read(ids)
        if len(samples) != len(ids):
            return {"wrong": f"{len(ids)} samples asked for, {len(samples)} given"}
        for i, sample in zip(ids, samples, strict=True):
            if consume([sample])[1] != contestant.tree.digests[i]:
                path = contestant.tree.paths[i]
                return {"wrong": f"{path}: {len(sample)} bytes that are not those of the source"}
    contestant.close()
    return {"version": contestant.version()}


def same(tree: Tree, ids: Iterable[int], size: int, total: int | None) -> None:
    """Raises RuntimeError if what a pass has read is not what the set has; without `total`, only bytes are counted."""
    ids = list(ids)
    if size != (wanted := sum(tree.sizes[i] for i in ids)):
        raise RuntimeError(f"{size} bytes read, the set has {wanted}")
    if total is not None and total & MASK != sum(tree.digests[i] for i in ids) & MASK:
        raise RuntimeError("bytes read are not those of the source")


def warm_up(spec: Spec, contestant: Contestant, lists: list[list[int]]) -> None:
    """Reads in a child process: what the pass needs is in the page cache then, but not in the memory of the process
    that is measured."""

    def work() -> None:
        if isinstance(contestant.open_file, Store):
            contestant.open_file.delay_s = 0.0
        contestant.open(SEQUENTIAL if contestant.sequential_only else SHUFFLED)
        for ids in lists:
            consume(contestant.read(ids))
        contestant.close()

    in_child(work)
    gc.collect()


def in_child(function: Callable[[], object]) -> None:
    """Runs a function in a forked process. Raises RuntimeError if it fails there."""
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


def read(spec: Spec) -> Answer:
    """Opens the container, reads an epoch or its beginning, and closes it."""
    contestant = spec.contestant()
    local = spec.order == LOCAL
    lists = spec.batches(contestant, SEQUENTIAL if local else spec.order)
    if spec.state == "cold":
        machine.drop_caches()
    else:
        # The contestant's own order may begin anywhere.
        warm_up(spec, contestant, chunks(list(range(len(contestant.tree))), spec.batch) if local else lists)
    opening = Meter(spec)
    contestant.open(spec.order)
    open_s = opening.cost()["wall_s"]
    # It is drawn while samples are read, because it announces the next ones.
    wanted = islice(contestant.local_order(spec.batch, spec.sampler), max(1, len(lists))) if local else lists
    store = contestant.open_file if isinstance(contestant.open_file, Store) else None
    requests, fetched = (store.requests, store.fetched) if store else (0, 0)
    asked: list[int] = []
    size = total = 0
    meter = Meter(spec)
    for ids in wanted:
        asked += ids
        bytes_of_batch, sum_of_batch = consume(contestant.read(ids), spec.use)
        size, total = size + bytes_of_batch, total + sum_of_batch
    cost = meter.cost()
    contestant.close()
    same(contestant.tree, asked, size, None if spec.use == "touch" else total)
    answer = {"rate": len(asked) / cost["wall_s"], "cpu_s": cost["cpu_s"] / len(asked), "open_s": open_s}
    answer["fetched"] = (store.fetched - fetched if store else cost["fetched"]) / size
    return answer | ({"requests": (store.requests - requests) / len(asked)} if store else {})


@dataclass
class EpochWork:
    """Work of a worker: opens the container in its own process, reads and sums."""

    spec: Spec

    def start(self) -> None:
        self.cpu_s = time.process_time()
        self.contestant = self.spec.contestant()
        self.contestant.open(self.spec.order)

    def batch(self, ids: list[int]) -> tuple[int, int]:
        return consume(self.contestant.read(ids), self.spec.use)

    def finish(self) -> Answer:
        private = private_bytes()
        self.contestant.close()
        return {"cpu_s": time.process_time() - self.cpu_s, "private_bytes": private}


def load(spec: Spec) -> Answer:
    """Reads an epoch through workers. Samples a second are counted from the first result on; `first_s` is what it took
    until then."""
    contestant = spec.contestant()
    lists = spec.batches(contestant, spec.order)
    warm_up(spec, contestant, lists)
    from pyworker.loader import Loader

    loader = Loader(EpochWork(spec), spec.workers or 0, spec.start)
    meter = Meter(spec)
    size, total = loader.epoch(lists)
    wall_s = time.perf_counter() - loader.first
    cpu_s = sum(one["cpu_s"] for one in loader.said) + meter.served_s()
    asked = [i for ids in lists for i in ids]
    same(contestant.tree, asked, size, total)
    return {
        "rate": (len(asked) - len(lists[0])) / wall_s,
        "cpu_s": cpu_s / len(asked),
        "first_s": loader.first_s,
        "private_bytes": max(one["private_bytes"] for one in loader.said),
    }
