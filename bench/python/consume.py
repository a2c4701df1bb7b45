"""Use of samples in a measurement, and the orders of requests. The same for all contestants."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO

import xxhash

from cases import DECODE, SUM, TOUCH
from contestants.base import SEQUENTIAL, SHUFFLED, Buffer, Contestant, Missing
from sets import SEED

MASK = (1 << 64) - 1

# Takes the samples of a batch; returns their bytes and a check sum.
Consumer = Callable[[Sequence[Buffer]], tuple[int, int]]


def touch(samples: Sequence[Buffer]) -> tuple[int, int]:
    """Lengths only. A mapped reader has read nothing then."""
    return sum(map(len, samples)), 0


def checksum(samples: Sequence[Buffer]) -> tuple[int, int]:
    """Every byte is read once. The check sum of a set is the sum of its files' digests, in any order."""
    digest = xxhash.xxh3_64_intdigest
    size = total = 0
    for sample in samples:
        size += len(sample)
        total += digest(sample)
    return size, total & MASK


def decode(samples: Sequence[Buffer]) -> tuple[int, int]:
    """Pictures to pixels; the check sum is that of their bytes."""
    from PIL import Image

    for sample in samples:
        with Image.open(BytesIO(sample)) as picture:
            picture.convert("RGB")
    return checksum(samples)


CONSUMERS: dict[str, Consumer] = {TOUCH: touch, SUM: checksum, DECODE: decode}


def expected(ids: Iterable[int], digests: array[int]) -> int:
    """The check sum that samples with these ids must have."""
    return sum(digests[i] for i in ids) & MASK


def batches(contestant: Contestant, order: str, batch: int, samples: int) -> list[list[int]]:
    """An epoch, or the first `samples` of it, as lists of ids: orders that are the same for all. Raises Missing."""
    if order == SHUFFLED and contestant.sequential_only:
        raise Missing("reads in the order of its shards only")
    ids = permutation(len(contestant.tree)) if order == SHUFFLED else list(range(len(contestant.tree)))
    if order not in (SHUFFLED, SEQUENTIAL):
        raise ValueError(f"order: {order}")
    return [ids[first : min(first + batch, samples)] for first in range(0, samples, batch)]


def permutation(count: int) -> list[int]:
    """One permutation for all contestants."""
    ids = list(range(count))
    random.Random(SEED).shuffle(ids)
    return ids
