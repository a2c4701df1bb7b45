"""Groups of files that stay together, and their shards, derived from paths alone."""

from __future__ import annotations

from hashlib import blake2b


def group_key(path: bytes) -> bytes:
    """Returns the path without the extensions of its last name: `a/1.jpg`, `a/1.mask.png` and
    `a/1.json` are one group, `a/1`.

    A leading dot belongs to the name.

    >>> group_key(b"train/0001.seg.png"), group_key(b"a.d/b"), group_key(b"a/.hidden.txt")
    (b'train/0001', b'a.d/b', b'a/.hidden')
    """
    name_at = path.rfind(b"/") + 1
    # Leading dots do not begin extensions.
    first = len(path) - len(path[name_at:].lstrip(b"."))
    dot = path.find(b".", first)
    return path if dot < 0 else path[:dot]


def hash_shard(key: bytes, seed: int, count: int) -> int:
    """Returns the shard of a group among `count`: its 64-bit BLAKE2b hash, keyed by the seed,
    modulo `count`."""
    digest = blake2b(key, digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little") % count


def path_key(path: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the sort key of a path: directory by directory, and in each group by group.

    Files of a group are adjacent, so a shard with a range of sorted paths has whole groups.

    >>> sorted([b"a.jpg", b"a-b.jpg", b"a.json", b"a/x"], key=path_key)
    [b'a/x', b'a.jpg', b'a.json', b'a-b.jpg']
    """
    *dirs, name = path.split(b"/")
    return (*((part, b"") for part in dirs), (group_key(name), name))
