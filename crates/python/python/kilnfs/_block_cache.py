"""A cache of blocks in front of a slow source: what `FsspecSource` reads through.

Each read makes at most one call to the source, for all blocks that it misses. A block that another thread is fetching
is waited for, not fetched again. A thread fetches what it has claimed before it waits for others, so no circle of
waiting can occur.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Fetch = Callable[[list[tuple[int, int]]], Sequence[bytes]]

BLOCK_LEN: Final = 1 << 20
"""Bytes of a block."""
BLOCKS: Final = 64
"""Blocks that are kept."""
DIRECT_GAP: Final = 64 << 10
"""Ranges that are fetched without the cache become one where fewer bytes than these lie between them."""
DIRECT_LEN: Final = 16 << 20
"""Most bytes of such a merged range, unless one range alone is longer."""


class _Flight:
    """One call to the source that is under way."""

    def __init__(self) -> None:
        self.done = Event()
        self.blocks: dict[int, bytes] = {}
        self.error: OSError | None = None


class BlockCache:
    """The `block_count` blocks of `block_len` bytes that were used last, of a source of `length` bytes.

    `fetch` gets ranges (first byte, length), which do not overlap, and gives the bytes of each. It raises `OSError`.
    """

    def __init__(self, fetch: Fetch, length: int, *, block_len: int = BLOCK_LEN, block_count: int = BLOCKS) -> None:
        self._fetch = fetch
        self._length = length
        self._block_len = block_len
        self._block_count = block_count
        self._lock = Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._flights: dict[int, _Flight] = {}
        self._announced: OrderedDict[int, None] = OrderedDict()

    @property
    def capacity(self) -> int:
        """Bytes that are kept."""
        return self._block_len * self._block_count

    def announce(self, start: int, length: int) -> None:
        """Blocks that shall ride along with the next fetch, so that they cost no request of their own.

        An announcement longer than an eighth of the cache is ignored: it would drive out what is in use.
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
        """Free the blocks, in a process that will not use this cache: another thread may have held the lock when it was
        forked."""
        self._blocks = OrderedDict()

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
        """The bytes of each range (first byte, length), all of which lie within the source."""
        for start, length in ranges:
            if start < 0 or length < 0 or start + length > self._length:
                raise OSError(errno.EINVAL, f"bytes {start}..{start + length} of a source of {self._length}")
        needed = sorted({block for start, length in ranges for block in self._blocks_of(start, length)})
        held: dict[int, bytes] = {}
        while missing := [block for block in needed if block not in held]:
            if not self._take(missing, held):
                return self._read_direct(ranges)
        return [self._assemble(start, length, held) for start, length in ranges]

    def _blocks_of(self, start: int, length: int) -> range:
        return range(start // self._block_len, -(-(start + length) // self._block_len)) if length > 0 else range(0)

    def _take(self, wanted: list[int], held: dict[int, bytes]) -> bool:
        """Add to `held` what of `wanted` is cached, is being fetched, or can be fetched. False if that were more than
        half of the cache."""
        mine: list[int] = []
        others: set[_Flight] = set()
        flight = _Flight()
        with self._lock:
            for block in wanted:
                if block in self._blocks:
                    self._blocks.move_to_end(block)
                    held[block] = self._blocks[block]
                elif block in self._flights:
                    others.add(self._flights[block])
                else:
                    mine.append(block)
            if 2 * len(mine) > self._block_count:
                return False
            if mine:
                mine += self._riders(set(mine))
                self._flights.update((block, flight) for block in mine)
        if mine:
            self._fly(flight, sorted(mine))
            held.update(flight.blocks)
        for other in others:
            other.done.wait()
            if other.error is not None:
                raise OSError(other.error.errno, other.error.strerror, other.error.filename) from other.error
            # Empty if that thread was interrupted: `read` comes again for what is missing.
            held.update(other.blocks)
        return True

    def _riders(self, claimed: set[int]) -> list[int]:
        """Announced blocks that are still missing. The lock is held."""
        announced, self._announced = self._announced, OrderedDict()
        return [
            block
            for block in list(announced)[: max(1, self._block_count // 4)]
            if block not in claimed and block not in self._blocks and block not in self._flights
        ]

    def _fly(self, flight: _Flight, blocks: list[int]) -> None:
        """Fetch the blocks, runs of adjacent ones as one range, and let those that wait have them."""
        runs: list[list[int]] = []
        for block in blocks:
            if runs and runs[-1][-1] + 1 == block:
                runs[-1].append(block)
            else:
                runs.append([block])
        ranges = [(run[0] * self._block_len, self._end(run[-1]) - run[0] * self._block_len) for run in runs]
        try:
            for run, data in zip(runs, self._fetch(ranges), strict=True):
                first = run[0] * self._block_len
                for block in run:
                    # A copy where the run has several blocks, so that no block keeps its neighbours in memory.
                    flight.blocks[block] = data[block * self._block_len - first : self._end(block) - first]
        except OSError as error:
            flight.blocks.clear()
            flight.error = error
            raise
        finally:
            with self._lock:
                for block in blocks:
                    self._flights.pop(block, None)
                self._blocks.update(flight.blocks)
                while len(self._blocks) > self._block_count:
                    self._blocks.popitem(last=False)
            flight.done.set()

    def _end(self, block: int) -> int:
        return min((block + 1) * self._block_len, self._length)

    def _assemble(self, start: int, length: int, held: dict[int, bytes]) -> bytes | memoryview:
        parts = []
        for block in self._blocks_of(start, length):
            first = block * self._block_len
            parts.append(memoryview(held[block])[max(start - first, 0) : start + length - first])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_direct(self, ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
        """The ranges as they are, past the cache: whole blocks around so many would be too much memory."""
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
    """Ranges (first byte, length) without overlaps that cover these, in order.

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
