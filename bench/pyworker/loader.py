"""Batches read by worker processes, as the DataLoader of PyTorch hands them out: batch k to worker k mod W, two of each
worker under way. Written here so that no row needs torch."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Protocol

PREFETCH = 2  # batches that a worker has before it, as DataLoader's default


class Work(Protocol):
    """Runs in a worker. Pickled if workers are not forked. A batch returns its bytes and check sum, so that no pipe
    decides."""

    def start(self) -> None: ...

    def batch(self, ids: list[int]) -> tuple[int, int]: ...

    def finish(self) -> Any: ...


def serve(work: Work, pipe: Connection) -> None:
    """Takes batches and gives results until None comes; the last result is that of `finish`."""
    work.start()
    while (ids := pipe.recv()) is not None:
        pipe.send(work.batch(ids))
    pipe.send(work.finish())
    pipe.close()


class Loader:
    """An epoch through workers."""

    def __init__(self, work: Work, workers: int, method: str) -> None:
        self.work, self.workers = work, workers
        self.context: Any = multiprocessing.get_context(method)
        self.first = self.first_s = 0.0  # the time of the first result, and what it took from the start on
        self.said: list[Any] = []  # by each worker, at its end

    def epoch(self, batches: list[list[int]]) -> tuple[int, int]:
        """Reads all batches. Returns the sums of their results."""
        begin, size, total = time.perf_counter(), 0, 0
        results = self.outside(batches) if self.workers else self.inside(batches)
        for number, (bytes_of_batch, sum_of_batch) in enumerate(results):
            if number == 0:
                self.first = time.perf_counter()
                self.first_s = self.first - begin
            size, total = size + bytes_of_batch, total + sum_of_batch
        return size, total

    def inside(self, batches: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Yields results of this process."""
        self.work.start()
        yield from map(self.work.batch, batches)
        self.said = [self.work.finish()]

    def outside(self, batches: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Yields results of workers, in the order of batches."""
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
