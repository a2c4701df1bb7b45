"""Plan of the shards: the files of each."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .. import _native
from ._group import group_key, hash_shard, path_key
from ._store import is_remote, remote_files, store_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Literal

VERSION = 1
"""Version of plans and records. Entries of another version are refused."""
PLAN_DIR = "plan"
"""Directory of the lists, below the directory of the shards."""
DIRECTORIES = "directories.list"
OPTIONS = frozenset(
    (
        *("preset", "compress", "cluster_size", "kernel", "order", "hints", "owner", "mtime", "dedupe"),
        *("inline", "compress_metadata", "content_digests", "index"),
    )
)
"""Options of `kilnfs.PackOptions` that a plan takes: those that the image depends on."""
BUFFER_BYTES = 64 << 20
"""Largest length in bytes of lists in memory before they are written."""
_RECORD = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """Shard to pack. Its size does not depend on the shard: the list of files is stored beside the
    shards."""

    version: int
    """Version of the plan: entries of another one are refused."""
    number: int
    """Number of the shard in the plan, from 0 on."""
    count: int
    """Number of shards of the plan."""
    source: str
    """Directory or URL of the files."""
    into: str
    """Directory or URL of the shards."""
    by: str
    """Rule by which files are divided: "hash" or "path"."""
    seed: int
    """Seed of the plan."""
    name: str
    """Name of the shard's file."""
    list_name: str
    """Path of the list of files, relative to `into`."""
    list_digest: str
    """BLAKE2b digest of that list, 32 bytes in hexadecimal."""
    files: int
    """Number of paths in that list: files, links and empty directories."""
    bytes: int
    """Total length of the files in bytes."""
    first: str
    """First path if `by` is `"path"`, else empty."""
    directories_digest: str
    """BLAKE2b digest of the list of all directories, 32 bytes in hexadecimal."""
    options: str
    """Options of packing, as JSON."""
    kilnfs: str
    """Version of kilnfs that planned: another one may make other bytes."""

    @property
    def digest(self) -> str:
        """Digest of everything that the shard's bytes depend on, except the contents of its
        files."""
        parts = [
            self.version,
            self.number,
            self.count,
            self.source,
            self.by,
            self.seed,
            self.name,
            self.list_digest,
            self.options,
            self.kilnfs,
        ]
        return _digest(json.dumps(parts).encode())


def plan(
    source: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    shard_bytes: int = 4 << 30,
    by: Literal["hash", "path"] = "hash",
    seed: int = 0,
    **options: Any,
) -> list[PlanEntry]:
    """Divides the files below `source` among shards in `into` of about `shard_bytes` of contents
    each.

    Both are directories, or URLs that fsspec supports. Files whose paths differ only in extensions
    stay together. The plan is the same for the same names, lengths and arguments, and planning
    again keeps shards that are already packed.

    * `by="hash"`: the shard of a file is a hash of its path: shards are mixed samples, a path is
      looked up without an index, and another file changes one shard (while the number of shards
      stays the same).
    * `by="path"`: each shard has a range of the sorted paths, so a directory is in few shards.
    * Other arguments are those of `kilnfs.PackOptions`: `preset`, `compress`, `cluster_size`,
      `kernel`, `order`, `hints`, `owner`, `mtime`, `dedupe`, `inline`, `compress_metadata`,
      `content_digests`, `index`.

    The lists of files are written to `into`/plan, which may be removed after `finish`.
    """
    unknown = options.keys() - OPTIONS
    if unknown:
        raise TypeError(f"{sorted(unknown)[0]}: not an option of a plan: use {', '.join(sorted(OPTIONS))}")
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes={shard_bytes}: use 1 or more")
    if by not in ("hash", "path"):
        raise ValueError(f"by={by!r}: use 'hash' or 'path'")
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed={seed}: use 0 to 2**64 - 1")
    text = json.dumps(options, sort_keys=True)
    _check_options(options)
    source, into = _absolute(source), _absolute(into)
    store = store_of(into)
    store.prepare()
    return _Planner(source, into, shard_bytes, by, seed, text).run()


def source_files(source: str) -> Iterator[tuple[bytes, int]]:
    """Yields paths and lengths of the files below a directory or URL, in the order of `path_key`.
    Paths of directories end with a slash. """
    if is_remote(source):
        yield from _remote(source)
    else:
        yield from _walk(os.fsencode(source.removeprefix("file://")), b"")


class _Planner:
    def __init__(self, source: str, into: str, shard_bytes: int, by: str, seed: int, options: str) -> None:
        self.source, self.into, self.shard_bytes, self.by, self.seed, self.options = (
            source,
            into,
            shard_bytes,
            by,
            seed,
            options,
        )
        self.directories: list[bytes] = []

    def run(self) -> list[PlanEntry]:
        import tempfile

        store = store_of(self.into)
        near = self.into if store.path("") is not None else None
        with tempfile.TemporaryDirectory(prefix=".kilnfs-plan-", dir=near) as scratch:
            with tempfile.TemporaryFile(dir=scratch) as found:
                total = self._find(found)
                found.seek(0)
                shards = self._divide(found, max(1, -(-total // self.shard_bytes)), scratch)
            directories = b"".join(path + b"\0" for path in sorted(self.directories))
            store.write(f"{PLAN_DIR}/{DIRECTORIES}", directories)
            entries = [self._entry(shard, len(shards), directories) for shard in shards]
            for shard, entry in zip(shards, entries, strict=True):
                store.put(shard.path, entry.list_name)
        return entries

    def _find(self, found: IO[bytes]) -> int:
        """Writes the files of the source to `found`, and returns their total length in bytes."""
        total = 0
        for path, size in source_files(self.source):
            if path.endswith(b"/"):
                self.directories.append(path[:-1])
                continue
            found.write(_RECORD.pack(size, len(path)) + path)
            total += size
        # An empty directory would be in no shard, so it is a file of its own.
        parents = set(self.directories)
        filled = {path.rpartition(b"/")[0] for path in self.directories}
        filled |= {path.rpartition(b"/")[0] for path, _ in _records(found)}
        for path in sorted(parents - filled):
            found.write(_RECORD.pack(0, len(path)) + path)
        return total

    def _divide(self, found: IO[bytes], count: int, scratch: str) -> list[_Shard]:
        shards: list[_Shard] = []
        waiting = 0
        group, number = None, 0
        records = _records(found)
        if self.by == "path":
            records = iter(sorted(records, key=lambda record: path_key(record[0])))
        for path, size in records:
            key = group_key(path)
            if self.by == "hash":
                number = hash_shard(key, self.seed, count)
            elif shards and key != group and shards[number].bytes >= self.shard_bytes:
                number += 1
            group = key
            while len(shards) <= number:
                shards.append(_Shard(len(shards), os.path.join(scratch, f"{len(shards)}.list")))
            shards[number].add(path, size)
            waiting += len(path) + 1
            if waiting > BUFFER_BYTES:
                for shard in shards:
                    shard.flush()
                waiting = 0
        while len(shards) < (count if self.by == "hash" else 1):
            shards.append(_Shard(len(shards), os.path.join(scratch, f"{len(shards)}.list")))
        for shard in shards:
            shard.flush()
        return shards

    def _entry(self, shard: _Shard, count: int, directories: bytes) -> PlanEntry:
        name = f"shard-{shard.number:05}-of-{count:05}"
        return PlanEntry(
            version=VERSION,
            number=shard.number,
            count=count,
            source=self.source,
            into=self.into,
            by=self.by,
            seed=self.seed,
            name=f"{name}.erofs",
            list_name=f"{PLAN_DIR}/{name}.list",
            list_digest=shard.hash.hexdigest(),
            files=shard.files,
            bytes=shard.bytes,
            first=(shard.first or b"").decode("utf-8", "surrogateescape") if self.by == "path" else "",
            directories_digest=_digest(directories),
            options=self.options,
            kilnfs=_native.__version__,
        )


class _Shard:
    """List of files of a shard while it is planned."""

    __slots__ = ("bytes", "files", "first", "hash", "number", "path", "waiting")

    def __init__(self, number: int, path: str) -> None:
        self.number, self.path = number, path
        self.files = self.bytes = 0
        self.first: bytes | None = None
        self.hash = blake2b(digest_size=32)
        self.waiting = bytearray()

    def add(self, path: bytes, size: int) -> None:
        if self.first is None:
            self.first = path
        self.files += 1
        self.bytes += size
        self.waiting += path + b"\0"

    def flush(self) -> None:
        self.hash.update(self.waiting)
        with open(self.path, "ab") as file:
            file.write(self.waiting)
        self.waiting.clear()


def _records(found: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    found.flush()
    found.seek(0)
    while header := found.read(_RECORD.size):
        size, length = _RECORD.unpack(header)
        yield found.read(length), size


def _walk(root: bytes, prefix: bytes) -> Iterator[tuple[bytes, int]]:
    with os.scandir(os.path.join(root, prefix) if prefix else root) as found:
        entries = list(found)
    entries.sort(
        key=lambda entry: (
            (entry.name, b"") if entry.is_dir(follow_symlinks=False) else (group_key(entry.name), entry.name)
        )
    )
    for entry in entries:
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield path + b"/", 0
            yield from _walk(root, path + b"/")
        else:
            yield path, entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0


def _remote(url: str) -> Iterator[tuple[bytes, int]]:
    files = sorted(remote_files(url), key=lambda file: path_key(file[0]))
    directories = set()
    for path, _ in files:
        while (path := path.rpartition(b"/")[0]) and path not in directories:
            directories.add(path)
    yield from ((path + b"/", 0) for path in sorted(directories))
    yield from files


def _check_options(options: dict[str, Any]) -> None:
    from .._pack_options import PackOptions

    if not isinstance(options.get("order"), (str, type(None))):
        raise TypeError("order: a plan takes 'path' or 'shuffle', not a list")
    PackOptions(**options)


def _absolute(place: str | os.PathLike[str]) -> str:
    text = os.fspath(place)
    return text.rstrip("/") if is_remote(text) else os.path.abspath(text.removeprefix("file://"))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()
