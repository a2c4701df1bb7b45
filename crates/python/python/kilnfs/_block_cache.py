"""Cache of blocks in front of a slow source, for `FsspecSource` and file objects.

Each read makes at most one call to the source, for all missing blocks. A read waits for a block
that another thread is fetching instead of fetching it again. A thread fetches the blocks that it
has claimed before it waits for others, so threads never wait for each other in a circle. """

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Fetch = Callable[[list[tuple[int, int]]], Sequence[bytes]]

BLOCK_LEN: Final = 128 << 10
"""Length of a block in bytes. A range is rounded up by half a block on average at each end."""
BLOCKS: Final = 512
"""Number of blocks in the cache."""
SEQUENTIAL_BLOCKS: Final = 8
"""Smallest number of blocks of a fetch that continues the previous read."""
DIRECT_GAP: Final = 64 << 10
"""Gap in bytes below which ranges that are fetched without the cache are merged."""
DIRECT_LEN: Final = 16 << 20
"""Largest length in bytes of such a merged range, unless one range alone is longer."""


class _Run:
    """Blocks that were fetched as one range. They are cached and dropped together, so that none is
    copied."""

    def __init__(self, first: int, blocks: range, data: bytes) -> None:
        self.first = first
        self.blocks = blocks
        self.data = data


class _Flight:
    """Call to the source that is under way."""

    def __init__(self) -> None:
        self.done = Event()
        self.blocks: dict[int, _Run] = {}
        self.error: OSError | None = None


class BlockCache:
    """Cache of the `block_count` most recently used blocks of `block_len` bytes, of a source of
    `length` bytes. Adjacent missing blocks are fetched as one range, at most an eighth of the
    cache, and used and dropped together.

    `fetch` takes ranges (first byte, length) without overlaps, and returns the bytes of each. It
    raises `OSError`. """

    def __init__(self, fetch: Fetch, length: int, *, block_len: int = BLOCK_LEN, block_count: int = BLOCKS) -> None:
        self._fetch = fetch
        self._length = length
        self._block_len = block_len
        self._block_count = block_count
        self._lock = Lock()
        self._blocks: dict[int, _Run] = {}
        # Runs by last use; and runs of announced blocks without a use yet, by fetch: used runs are
        # dropped before them.
        self._runs: OrderedDict[_Run, None] = OrderedDict()
        self._waiting: OrderedDict[_Run, None] = OrderedDict()
        self._flights: dict[int, _Flight] = {}
        self._announced: OrderedDict[int, None] = OrderedDict()
        # The block behind the end of the previous read; -1 before the first read.
        self._next = -1

    @property
    def capacity(self) -> int:
        """Capacity in bytes."""
        return self._block_len * self._block_count

    def announce(self, start: int, length: int) -> None:
        """Announces blocks, which are added to the next fetch so that they cost no separate
        request.

        An announcement longer than an eighth of the cache is ignored: it would evict blocks in use.
        """
        most = max(1, self._block_count // 8)
        blocks = self._blocks_of(start, min(length, self._length - start))
        if not 0 < len(blocks) <= most:
            return
        with self._lock:
            for block in blocks:
                if block not in self._blocks and block not in self._flights:
                    self._announced[block] = None
            while len(self._announced) > self._block_count // 2:
                self._announced.popitem(last=False)

    def forget(self) -> None:
        """Drops all blocks in a process that will not use this cache. Takes no lock, which another
        thread may have held at the fork."""
        self._blocks = {}
        self._runs = OrderedDict()
        self._waiting = OrderedDict()

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
        """Returns the bytes of each range (first byte, length), which must be within the source."""
        for start, length in ranges:
            if start < 0 or length < 0 or start + length > self._length:
                raise OSError(errno.EINVAL, f"bytes {start}..{start + length} of a source of {self._length}")
        needed = sorted({block for start, length in ranges for block in self._blocks_of(start, length)})
        held: dict[int, _Run] = {}
        while missing := [block for block in needed if block not in held]:
            if not self._take(missing, held):
                return self._read_direct(ranges)
        return [self._assemble(start, length, held) for start, length in ranges]

    def _blocks_of(self, start: int, length: int) -> range:
        return range(start // self._block_len, -(-(start + length) // self._block_len)) if length > 0 else range(0)

    def _take(self, wanted: list[int], held: dict[int, _Run]) -> bool:
        """Adds to `held` the blocks of `wanted` that are cached, are being fetched, or can be
        fetched. Returns false if that would be more than half of the cache."""
        mine: list[int] = []
        others: set[_Flight] = set()
        flight = _Flight()
        with self._lock:
            for block in wanted:
                if block in self._blocks:
                    run = held[block] = self._blocks[block]
                    self._waiting.pop(run, None)
                    self._runs[run] = None
                    self._runs.move_to_end(run)
                elif block in self._flights:
                    others.add(self._flights[block])
                else:
                    mine.append(block)
            if 2 * len(mine) > self._block_count:
                return False
            if wanted:
                sequential, self._next = self._next, wanted[-1] + 1
            asked = set(mine)
            if mine:
                mine += self._announced_missing(asked)
                if mine[0] == sequential:
                    mine += self._followers(set(mine), mine[0])
                self._flights.update((block, flight) for block in mine)
        if mine:
            self._fly(flight, sorted(mine), asked)
            held.update(flight.blocks)
        for other in others:
            other.done.wait()
            if other.error is not None:
                raise OSError(other.error.errno, other.error.strerror, other.error.filename) from other.error
            # Empty if that thread was interrupted: `read` tries again for missing blocks.
            held.update(other.blocks)
        return True

    def _announced_missing(self, claimed: set[int]) -> list[int]:
        """Returns announced blocks that are still missing, as many as fit beside the blocks in use.
        The lock is held."""
        blocks: list[int] = []
        while self._announced and len(blocks) < max(1, 3 * self._block_count // 8):
            block, _ = self._announced.popitem(last=False)
            if block not in claimed and block not in self._blocks and block not in self._flights:
                blocks.append(block)
        return blocks

    def _followers(self, claimed: set[int], first: int) -> list[int]:
        """Returns missing blocks behind `first`, for a sequential reader. The lock is held."""
        end = min(first + min(SEQUENTIAL_BLOCKS, max(1, self._block_count // 8)), -(-self._length // self._block_len))
        known = (claimed, self._blocks, self._flights)
        return [block for block in range(first, end) if not any(block in blocks for blocks in known)]

    def _fly(self, flight: _Flight, blocks: list[int], asked: set[int]) -> None:
        """Fetches the blocks, runs of adjacent ones as one range, and wakes the threads that wait
        for them. Only the blocks in `asked` count as used."""
        runs: list[range] = []
        longest = max(1, self._block_count // 8)
        for block in blocks:
            if runs and runs[-1].stop == block and len(runs[-1]) < longest:
                runs[-1] = range(runs[-1].start, block + 1)
            else:
                runs.append(range(block, block + 1))
        ranges = [(run[0] * self._block_len, self._end(run[-1]) - run[0] * self._block_len) for run in runs]
        fetched: list[_Run] = []
        try:
            for blocks_of_run, (first, _), data in zip(runs, ranges, self._fetch(ranges), strict=True):
                fetched.append(_Run(first, blocks_of_run, data))
            flight.blocks.update((block, run) for run in fetched for block in run.blocks)
        except OSError as error:
            fetched.clear()
            flight.error = error
            raise
        finally:
            with self._lock:
                for block in blocks:
                    self._flights.pop(block, None)
                self._blocks.update(flight.blocks)
                for run in fetched:
                    (self._waiting if asked.isdisjoint(run.blocks) else self._runs)[run] = None
                while len(self._blocks) > self._block_count:
                    self._drop_oldest()
            flight.done.set()

    def _drop_oldest(self) -> None:
        """Drops the least recently used run, or an announced one if these take more than half of
        the cache. The lock is held."""
        waiting = sum(len(run.blocks) for run in self._waiting)
        runs = self._waiting if 2 * waiting > self._block_count or not self._runs else self._runs
        oldest, _ = runs.popitem(last=False)
        for block in oldest.blocks:
            del self._blocks[block]

    def _end(self, block: int) -> int:
        return min((block + 1) * self._block_len, self._length)

    def _assemble(self, start: int, length: int, held: dict[int, _Run]) -> bytes | memoryview:
        parts: list[memoryview] = []
        at, end = start, start + length
        while at < end:
            run = held[at // self._block_len]
            stop = min(end, run.first + len(run.data))
            parts.append(memoryview(run.data)[at - run.first : stop - run.first])
            at = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_direct(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
        """Fetches the exact ranges without the cache, as whole blocks around them would take too
        much memory."""
        merged = list(merge((start, length) for start, length in ranges if length > 0))
        fetched = self._fetch(merged)
        places = dict(zip((first for first, _ in merged), fetched, strict=True))
        firsts = sorted(places)
        out: list[bytes | memoryview] = []
        for start, length in ranges:
            if length == 0:
                out.append(b"")
                continue
            first = firsts[bisect_right(firsts, start) - 1]
            out.append(memoryview(places[first])[start - first : start - first + length])
        return out


def merge(ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yields ranges (first byte, length) without overlaps that cover the given ones, in order.

    >>> list(merge([(100, 10), (0, 50), (105, 20), (1 << 20, 5)]))
    [(0, 125), (1048576, 5)]
    """
    current: tuple[int, int] | None = None
    for start, length in sorted(ranges):
        if current is not None:
            first, end = current
            joined = max(end, start + length)
            if start < end or (start - end < DIRECT_GAP and joined - first <= DIRECT_LEN):
                current = (first, joined)
                continue
            yield first, end - first
        current = (start, start + length)
    if current is not None:
        yield current[0], current[1] - current[0]
