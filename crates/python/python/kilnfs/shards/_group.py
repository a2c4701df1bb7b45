"""Which files belong together, and which shard they are in: functions of their paths alone."""

from __future__ import annotations

from hashlib import blake2b


def group_key(path: bytes) -> bytes:
    """The path without the extensions of its last name: `a/1.jpg`, `a/1.mask.png` and `a/1.json` are one group,
    `a/1`.

    A dot in front belongs to the name.

    >>> group_key(b"train/0001.seg.png"), group_key(b"a.d/b"), group_key(b"a/.hidden.txt")
    (b'train/0001', b'a.d/b', b'a/.hidden')
    """
    name_at = path.rfind(b"/") + 1
    # Dots in front are no extensions.
    first = len(path) - len(path[name_at:].lstrip(b"."))
    dot = path.find(b".", first)
    return path if dot < 0 else path[:dot]


def hash_shard(key: bytes, seed: int, count: int) -> int:
    """The shard of a group among `count`: its BLAKE2b hash of 64 bits, keyed by the seed, modulo `count`."""
    digest = blake2b(key, digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little") % count


def path_key(path: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """A key by which paths are sorted: directory by directory, in it group by group.

    So files of a group follow each other, and a shard that holds a range of sorted paths holds whole groups.

    >>> sorted([b"a.jpg", b"a-b.jpg", b"a.json", b"a/x"], key=path_key)
    [b'a/x', b'a.jpg', b'a.json', b'a-b.jpg']
    """
    *dirs, name = path.split(b"/")
    return (*((part, b"") for part in dirs), (group_key(name), name))
