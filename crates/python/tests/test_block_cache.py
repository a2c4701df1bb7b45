"""The cache of blocks in front of slow sources."""

from __future__ import annotations

import errno
import random
import threading
from typing import Any

import pytest
from kilnfs import _block_cache
from kilnfs._block_cache import SEQUENTIAL_BLOCKS, BlockCache, merge

DATA = random.Random(1).randbytes(3_500_000)


def joined(answers: Any) -> list[bytes]:
    return [bytes(answer) for answer in answers]


class Counted:
    """A source in memory that notes each call."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, int]]] = []

    def __call__(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        self.calls.append(ranges)
        return [DATA[start : start + length] for start, length in ranges]


def test_random_reads_are_right_and_bounded() -> None:
    fetch = Counted()
    cache = BlockCache(fetch, len(DATA), block_len=1000, block_count=64)
    places = random.Random(5)
    for _ in range(300):
        ranges = [
            (start := places.randrange(len(DATA)), min(places.choice([0, 1, 999, 5000, 90_000]), len(DATA) - start))
            for _ in range(3)
        ]
        if places.random() < 0.3:
            cache.announce(places.randrange(len(DATA)), places.choice([100, 5000, 10**9]))
        before = len(fetch.calls)
        assert joined(cache.read(ranges)) == [DATA[start : start + length] for start, length in ranges]
        assert len(fetch.calls) - before <= 1
        assert len(cache._blocks) <= 64


def test_adjacent_blocks_are_one_range_and_cached_ones_none() -> None:
    fetch = Counted()
    cache = BlockCache(fetch, len(DATA), block_len=1000, block_count=64)
    cache.read([(500, 1), (1500, 10), (5000, 1001)])
    assert fetch.calls == [[(0, 2000), (5000, 2000)]]
    cache.read([(0, 2000), (6999, 1)])
    assert len(fetch.calls) == 1
    # The last block is short.
    cache.read([(len(DATA) - 1, 1)])
    assert fetch.calls[-1] == [(len(DATA) - 1000, 1000)]


def test_a_reader_that_goes_on_gets_more_at_once() -> None:
    fetch = Counted()
    cache = BlockCache(fetch, len(DATA), block_len=1000, block_count=64)
    for start in range(3000, 50_000, 500):
        assert joined(cache.read([(start, 500)])) == [DATA[start : start + 500]]
    assert fetch.calls[0] == [(3000, 1000)]
    assert len(fetch.calls) == 1 + -(-46 // SEQUENTIAL_BLOCKS)
    # It never goes beyond the end.
    cache.read([(len(DATA) - 3000, 1000)])
    cache.read([(len(DATA) - 2000, 1000)])
    assert fetch.calls[-1] == [(len(DATA) - 2000, 2000)]


def test_announced_blocks_stay_until_they_are_used() -> None:
    """A window that is read comes before the one that is announced, and makes room for the one after that."""
    fetch = Counted()
    cache = BlockCache(fetch, len(DATA), block_len=1000, block_count=64)
    window = [(start, 1000) for start in range(0, 20_000, 1000)]
    for start in range(0, 20_000, 1000):
        cache.announce(100_000 + start, 1000)
    cache.read(window)
    assert fetch.calls == [[(0, 8000), (8000, 8000), (16_000, 4000), (100_000, 8000), (108_000, 8000), (116_000, 4000)]]
    for _ in range(10):
        cache.read(window)
    cache.announce(200_000, 8000)
    # What was read makes room, not what waits, although that was fetched at the same time and never used.
    cache.read([(300_000, 20_000)])
    assert len(fetch.calls) == 2
    cache.read([(100_000 + start, 10) for start in range(0, 20_000, 1000)])
    cache.read([(200_000, 8000)])
    assert len(fetch.calls) == 2
    cache.read(window)
    assert len(fetch.calls) == 3
    assert len(cache._blocks) <= 64


def test_many_scattered_ranges_go_past_the_cache() -> None:
    fetch = Counted()
    cache = BlockCache(fetch, len(DATA), block_len=1000, block_count=64)
    ranges = [(start, 10) for start in range(0, len(DATA) - 10, 70_000)]
    assert joined(cache.read(ranges)) == [DATA[start : start + 10] for start, _ in ranges]
    assert fetch.calls == [[(start, 10) for start, _ in ranges]]
    assert not cache._blocks


def test_announced_blocks_ride_along() -> None:
    fetch = Counted()
    cache = BlockCache(fetch, len(DATA), block_len=1000, block_count=64)
    cache.announce(2000, 1500)
    assert not fetch.calls
    cache.read([(0, 10)])
    assert fetch.calls == [[(0, 1000), (2000, 2000)]]
    cache.announce(0, len(DATA))
    cache.read([(50_000, 10)])
    assert fetch.calls[1:] == [[(50_000, 1000)]]


def test_single_flight() -> None:
    """16 threads that want the same block make one call, and all get its bytes."""
    entered, leave = threading.Event(), threading.Event()
    calls: list[Any] = []

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        calls.append(ranges)
        entered.set()
        assert leave.wait(60)
        return [DATA[start : start + length] for start, length in ranges]

    cache = BlockCache(fetch, len(DATA), block_len=1000)
    answers: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: answers.append(joined(cache.read([(10, 20)])))) for _ in range(16)]
    threads[0].start()
    assert entered.wait(60)
    for thread in threads[1:]:
        thread.start()
    leave.set()
    for thread in threads:
        thread.join()
    assert answers == [[DATA[10:30]]] * 16
    assert calls == [[(0, 1000)]]


def test_a_failed_fetch_is_told_to_those_who_wait_and_tried_again_later() -> None:
    entered, leave = threading.Event(), threading.Event()
    failing = [True]

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        if not failing[0]:
            return [DATA[start : start + length] for start, length in ranges]
        entered.set()
        assert leave.wait(60)
        raise OSError(errno.EIO, "lost", "memory://x")

    cache = BlockCache(fetch, len(DATA), block_len=1000)
    errors: list[OSError] = []

    def reads() -> None:
        try:
            cache.read([(0, 5)])
        except OSError as error:
            errors.append(error)

    first = threading.Thread(target=reads)
    first.start()
    assert entered.wait(60)
    flight = cache._flights[0]
    second = threading.Thread(target=reads)
    second.start()
    leave.set()
    first.join()
    second.join()
    assert flight.error is not None
    assert [str(error) for error in errors] == ["[Errno 5] lost: 'memory://x'"] * 2
    assert errors[0] is not errors[1]
    failing[0] = False
    assert joined(cache.read([(0, 5)])) == [DATA[:5]]


def test_an_interrupted_fetch_leaves_no_claim() -> None:
    failing = [True]

    def fetch(ranges: list[tuple[int, int]]) -> list[bytes]:
        if failing.pop() if failing else False:
            raise KeyboardInterrupt
        return [DATA[start : start + length] for start, length in ranges]

    cache = BlockCache(fetch, len(DATA), block_len=1000)
    with pytest.raises(KeyboardInterrupt):
        cache.read([(0, 5)])
    assert not cache._flights
    assert joined(cache.read([(0, 5)])) == [DATA[:5]]


def test_ranges_outside_are_refused() -> None:
    cache = BlockCache(Counted(), 100)
    for start, length in ((90, 11), (-1, 5), (0, 101)):
        with pytest.raises(OSError, match="of a source of 100"):
            cache.read([(start, length)])


def test_merge_covers_all() -> None:
    places = random.Random(3)
    ranges = [(places.randrange(10**8), places.randrange(1, 10**6)) for _ in range(500)]
    merged = list(merge(ranges))
    assert all(any(first <= start and start + length <= first + n for first, n in merged) for start, length in ranges)
    assert all(a + n <= b for (a, n), (b, _) in zip(merged, merged[1:], strict=False))


def test_doctests() -> None:
    import doctest

    assert doctest.testmod(_block_cache).failed == 0
