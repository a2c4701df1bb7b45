"""Packing of one shard: a pure function of its plan entry and the contents of its files."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .. import _native
from .._builder import Builder
from .._pack_options import PackOptions
from .._pack_result import finish
from ._plan import VERSION, PlanEntry
from ._store import filesystem, is_remote, store_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._pack_result import PackResult
    from ._store import Store

RECORD_MAX_LEN = 1 << 16
LIST_MAX_LEN = 1 << 32
FETCHED_AT_ONCE = 64
"""Number of objects of a remote source that are fetched together, into memory, before they are
spooled."""
_UUID_AT = 1024 + 48
"""Offset of the UUID in an image, whose superblock is at byte 1024."""


def pack(
    entry: PlanEntry, *, threads: int | None = None, scratch: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Packs one shard, and returns its record for `finish`.

    The same entry gives the same bytes on any machine, so a task may be killed and repeated, or run
    twice at once. The shard appears under its name when it is complete; a shard with an existing
    record is not packed again. `threads` is the number of threads (all processors if None);
    `scratch` is a directory for temporary copies of remote shards and sources. """
    if entry.version != VERSION or entry.kilnfs != _native.__version__:
        planned, here = f"kilnfs {entry.kilnfs} (plan {entry.version})", f"{_native.__version__} (plan {VERSION})"
        raise ValueError(f"{entry.name}: planned by {planned}, but this is {here}: plan again")
    store = store_of(entry.into)
    done = read_record(store, entry)
    if done is not None:
        return done
    listed = store.read(entry.list_name, LIST_MAX_LEN)
    if blake2b(listed, digest_size=32).hexdigest() != entry.list_digest:
        raise ValueError(
            f"{entry.into}/{entry.list_name}: not the list of this plan entry: plan again, and pack the new entries"
        )
    path = store.path(entry.name)
    if path is not None:
        result = _image(entry, listed, path, threads, scratch)
        samples = count_samples(path)
    else:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="kilnfs-shard-", dir=scratch) as directory:
            local = os.path.join(directory, entry.name)
            result = _image(entry, listed, local, threads, directory)
            samples = count_samples(local)
            store.put(local, entry.name)
    record = {
        "version": VERSION,
        "name": entry.name,
        "entry": entry.digest,
        "uuid": result.uuid,
        "files": result.files,
        "samples": samples,
        "bytes": result.bytes,
        "image_bytes": result.image_bytes,
        "min_kernel": result.min_kernel,
        "order": result.order,
    }
    # Written last, because a record means that its shard is complete.
    store.write(_record_name(entry), json.dumps(record, indent=1).encode())
    return record


def read_record(store: Store, entry: PlanEntry) -> dict[str, Any] | None:
    """Returns the record of a shard that exists and was packed by the same entry; else None."""
    try:
        record = json.loads(store.read(_record_name(entry), RECORD_MAX_LEN))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("entry") != entry.digest:
        return None
    is_there = store.size(entry.name) == record.get("image_bytes") and uuid_of(store, entry.name) == record.get("uuid")
    return record if is_there else None


def uuid_of(store: Store, name: str) -> str:
    """Reads the UUID in the superblock of a shard."""
    digits = store.read_range(name, _UUID_AT, 16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def count_samples(path: str) -> int:
    """Returns the number of rows of the index of an image."""
    from .._image import Image

    with Image(path) as image:
        return len(image.index())


def _image(entry: PlanEntry, listed: bytes, path: str, threads: int | None, scratch: Any) -> PackResult:
    """Packs the listed files into an image at `path`."""
    options = PackOptions(**json.loads(entry.options), seed=_shard_seed(entry), threads=threads, overwrite=True)
    if not is_remote(entry.source):
        source = [(os.fsencode(entry.source), b"")]
        return finish(_native.pack(source, os.fsencode(path), options, listed, None), path, options)
    with Builder(spool_dir=scratch) as tree:
        tree.add_many(_fetched(entry.source, listed))
        return tree.write(path, options)


def _fetched(url: str, listed: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields paths and contents of the listed objects."""
    fs, root = filesystem(url)
    paths = listed.split(b"\0")[:-1]
    for at in range(0, len(paths), FETCHED_AT_ONCE):
        keys = {f"{root}/{path.decode('utf-8', 'surrogateescape')}": path for path in paths[at : at + FETCHED_AT_ONCE]}
        contents = fs.cat(list(keys))
        yield from ((path, contents[key]) for key, path in keys.items())


def _shard_seed(entry: PlanEntry) -> int:
    """Returns the seed of a shard: shards of one plan are shuffled independently."""
    digest = blake2b(b"%d/%d" % (entry.seed, entry.number), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _record_name(entry: PlanEntry) -> str:
    return entry.name.removesuffix(".erofs") + ".json"
