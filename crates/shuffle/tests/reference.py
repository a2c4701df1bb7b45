#!/usr/bin/env python3
"""The order of algorithm 1, written a second time from its description: `reference.py > golden.txt`.

Slow and simple: it makes whole lists, where the crate looks at one window.
"""

MASK = 2**64 - 1


def splitmix(seed):
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        yield z ^ z >> 31


def xoshiro(seed):
    words = splitmix(seed)
    s = [next(words) for _ in range(4)]

    def rotl(x, k):
        return (x << k | x >> 64 - k) & MASK

    while True:
        yield rotl(s[1] * 5 & MASK, 7) * 9 & MASK
        t = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)


def below(numbers, bound):
    while True:
        product = next(numbers) * bound
        if product & MASK >= 2**64 % bound:
            return product >> 64


def permuted(items, *key):
    """Fisher-Yates, by the generator of a key: seed, purpose, epoch, lane, window."""
    state = next(splitmix(key[0]))
    for word in key[1:]:
        state = next(splitmix(state ^ word))
    numbers, items = xoshiro(state), list(items)
    for last in range(len(items) - 1, 0, -1):
        other = below(numbers, last + 1)
        items[last], items[other] = items[other], items[last]
    return items


def order(blocks, seed, epoch, batch, lanes, window, shuffle, drop_last):
    count = sum(map(len, blocks))
    room = [count // lanes + (lane < count % lanes) for lane in range(lanes)]
    dealt = [[] for _ in range(lanes)]
    lane = 0
    for block in permuted(blocks, seed, 1, epoch, 0, 0) if shuffle else blocks:
        while block:
            while room[lane] == 0:
                lane = (lane + 1) % lanes
            piece, block = block[: room[lane]], block[room[lane] :]
            dealt[lane].append(piece)
            room[lane] -= len(piece)
            lane = (lane + 1) % lanes if shuffle else lane
    visited = []
    for lane, pieces in enumerate(dealt):
        windows = max(1, len(pieces) // window)
        samples = []
        for number in range(windows):
            start, end = (at * len(pieces) // windows for at in (number, number + 1))
            mixed = sum(pieces[start:end], [])
            samples += permuted(mixed, seed, 2, epoch, lane, number) if shuffle else mixed
        visited.append(samples)
    each = batch // lanes
    steps = count // batch if drop_last else -(-count // batch)
    return [s[at % len(s)] for step in range(steps) for s in visited for at in range(step * each, (step + 1) * each)]


def main():
    cases = [
        # samples, samples of a block, seed, epoch, batch, lanes, window, shuffle, drop_last
        (1000, 38, 42, 3, 64, 2, 4, True, True),
        (1000, 38, 42, 3, 64, 2, 4, True, False),
        (1000, 38, 42, 3, 64, 2, 4, False, False),
        (333, 7, 2**64 - 1, 2**40, 30, 3, 5, True, False),
        (50, 100, 0, 0, 8, 8, 1, True, False),
    ]
    for count, block_len, *choices in cases:
        stored = [(at * 7 + 3) % count for at in range(count)]
        blocks = [stored[at : at + block_len] for at in range(0, count, block_len)]
        print(count, block_len, *map(int, choices), ":", *order(blocks, *choices))


main()
