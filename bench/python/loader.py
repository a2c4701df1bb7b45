"""Batches read by worker processes, as PyTorch's DataLoader hands them out: batch k to worker k mod W, two of each
worker under way.

Written here so that no row needs torch. A worker returns bytes and check sum of its batch, so that no pipe decides.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Protocol

PREFETCH = 2  # batches that a worker has before it, as DataLoader's default


class Work(Protocol):
    """Runs in a worker. Pickled if workers are not forked."""

    def start(self) -> None: ...

    def batch(self, ids: list[int]) -> tuple[int, int]: ...

    def finish(self) -> object: ...


def serve(work: Work, pipe: Connection) -> None:
    """A worker: batches in, results out, until None comes; the last result is what `finish` says."""
    work.start()
    while (ids := pipe.recv()) is not None:
        pipe.send(work.batch(ids))
    pipe.send(work.finish())
    pipe.close()


class Loader:
    """An epoch through workers; `first_s` is the time from the start of the first worker to the first result."""

    def __init__(self, work: Work, workers: int, method: str) -> None:
        self.work = work
        self.workers = workers
        self.context: Any = multiprocessing.get_context(method)
        self.first_s = 0.0
        self.said: list[object] = []  # what each worker said at its end

    def epoch(self, batches: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Results in the order of batches."""
        begin = time.perf_counter()
        results = self.inside(batches) if self.workers == 0 else self.outside(batches)
        for number, result in enumerate(results):
            if number == 0:
                self.first_s = time.perf_counter() - begin
            yield result

    def inside(self, batches: list[list[int]]) -> Iterator[tuple[int, int]]:
        """No worker: this process reads."""
        self.work.start()
        for ids in batches:
            yield self.work.batch(ids)
        self.said = [self.work.finish()]

    def outside(self, batches: list[list[int]]) -> Iterator[tuple[int, int]]:
        """`workers` processes read."""
        pipes: list[Connection] = []
        processes = []
        try:
            for _ in range(self.workers):
                here, there = self.context.Pipe()
                process = self.context.Process(target=serve, args=(self.work, there), daemon=True)
                process.start()
                there.close()
                pipes.append(here)
                processes.append(process)
            ahead = PREFETCH * self.workers
            for number, ids in enumerate(batches[:ahead]):
                pipes[number % self.workers].send(ids)
            for number in range(len(batches)):
                result: tuple[int, int] = pipes[number % self.workers].recv()
                if number + ahead < len(batches):
                    pipes[(number + ahead) % self.workers].send(batches[number + ahead])
                yield result
            for pipe in pipes:
                pipe.send(None)
                self.said.append(pipe.recv())
            for process in processes:
                process.join()
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
                    process.join()
