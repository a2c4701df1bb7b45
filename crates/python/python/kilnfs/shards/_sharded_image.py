"""All shards of a manifest as one tree, with the methods of an image."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections import OrderedDict
from hashlib import blake2b
from stat import S_IFDIR, S_IFMT, S_ISLNK
from threading import Lock
from typing import TYPE_CHECKING, Any

from .._names import decode, encode, failure, is_absence
from .._verbs_os import OsVerbs
from .._verbs_zip import ZipVerbs
from ._group import group_key, hash_shard, path_key
from ._manifest import DIRECTORIES_MAX_LEN, Manifest, ManifestError, read_manifest
from ._plan import _digest
from ._store import store_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Self, TypeVar

    from typing_extensions import Buffer

    from .._image import Image
    from .._names import What
    from .._native import Index
    from .._path import Path
    from .._reports import CheckReport, Cost, Extent

    T = TypeVar("T")
    _Verbs = Image
else:

    class _Verbs:
        """The methods of an image that are made of others: the functions themselves, over the primitives below."""

    for _verbs in (OsVerbs, ZipVerbs):
        for _name, _value in vars(_verbs).items():
            if not _name.startswith("__"):
                setattr(_Verbs, _name, _value)

WINDOW = 8
"""Shards that are open at once unless something else is asked for."""
_LINKS_MAX = 40
"""As many symbolic links in a path as Linux follows."""
_IMAGE_OPTIONS = frozenset(("cache_bytes", "verify_checksum", "mmap"))
_NID_BITS = 64
_DIRECTORY = 1 << 96
"""Number of a file: that of its shard above the nid there. Number of a directory: its place in the list above
this.
"""


def open(
    manifest: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    window: int = WINDOW,
    absolute: bool = False,
    offset: int = 0,
    devices: Sequence[object] = (),
    **options: Any,
) -> ShardedImage:
    """Open all shards of the manifest at a path or URL as one tree. `kilnfs.open` does, too, where a path ends with
    `.json`.

    * `window`: how many shards are open at once, with the indexes of their samples; the one that was used least
      recently is dropped.
    * `absolute`: shards may have absolute names, which are refused otherwise. Names that lead out of the manifest's
      directory by `..` are refused always.
    * `options`: those of `kilnfs.open`, for each shard.
    """
    if offset or devices:
        raise ValueError("a manifest has neither offset nor devices")
    if window < 1:
        raise ValueError(f"window={window}: use 1 or more")
    place = os.fsdecode(manifest)
    if "://" not in place:
        # A worker with another working directory finds it.
        place = os.path.abspath(place)
    read = read_manifest(place, absolute=absolute, storage_options=_storage_options(options))
    return ShardedImage(place, read, window=window, absolute=absolute, options=options)


class ShardedImage(_Verbs):
    """The shards of a data set as one tree. Made by `open`.

    It has the methods of `kilnfs.Image`. Looking up a file opens one shard; listing a directory opens those that may
    have files of it, with `by="hash"` all. Symbolic links may lead from one shard to another. Samples have numbers
    from 0 on: those of the first shard in path order, then those of the second. Any thread may call, and so may a
    process that was forked, which opens shards of its own.
    """

    def __init__(self, place: str, manifest: Manifest, *, window: int, absolute: bool, options: dict[str, Any]) -> None:
        self.manifest = manifest
        self._place, self._window, self._absolute, self._options = place, window, absolute, options
        self._first_keys = [path_key(first) for first in manifest.first]
        self._tree: _Directories | None = None
        self._open = _Window(0)
        self._is_closed = False

    # what it is

    @property
    def name(self) -> str:
        """The path or URL of the manifest."""
        return self._place

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def uuid(self) -> bytes:
        """16 bytes that depend on the UUIDs of all shards."""
        return blake2b("".join(self.manifest.uuids).encode(), digest_size=16).digest()

    @property
    def _identity(self) -> tuple[int | str | bytes, bytes]:  # type: ignore[override]  # never assigned here
        return self._place, self.uuid

    def close(self) -> None:
        """Methods raise ValueError from now on. Memory that was given out stays valid."""
        self._is_closed = True
        self._open = _Window(0)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<kilnfs.shards.ShardedImage {self._place!r} of {len(self.manifest)} shards{state}>"

    def __reduce__(self) -> tuple[Callable[..., ShardedImage], tuple[object, ...]]:
        self._check_open()
        return _reopen, (self._place, self._window, self._absolute, self._options, self.uuid)

    def stats(self) -> dict[str, int]:
        """The counters of the shards that are open, added up, and how many are."""
        total: dict[str, int] = {}
        for image in self._open.images():
            for name, count in image.stats().items():
                total[name] = total.get(name, 0) + count
        return {**total, "shards_open": len(self._open)}

    @property
    def root(self) -> Path:
        """The root directory."""
        return self.path("/")

    def path(self, path: Any = "/") -> Path:
        """A path of the tree, from its root."""
        from .._path import Path

        return Path(self, "/", decode(encode(path)))

    def __truediv__(self, name: Any) -> Path:
        if not (isinstance(name, (str, bytes)) or hasattr(type(name), "__kilnfs_path__")):
            return NotImplemented
        return self.path(name)

    # samples by number

    def __len__(self) -> int:
        """Samples: regular files of all shards."""
        return self.manifest.samples

    def __bool__(self) -> bool:
        """Not whether it has samples, as `len` would make it."""
        return True

    def locate(self, number: int) -> tuple[int, int]:
        """Shard of a sample, and its row in the index of that shard: a binary search."""
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        ends = self.manifest.sample_ends
        shard = bisect_right(ends, number)
        return shard, number - (ends[shard - 1] if shard else 0)

    def shard(self, number: int) -> Image:
        """The image of a shard, opened if it is not in the window."""
        return self._shard(number).image

    def shard_index(self, number: int) -> Index:
        """The index of a shard's samples, made when it is first asked for and dropped with the shard."""
        opened = self._shard(number)
        if opened.index is None:
            index = opened.image.index()
            samples = self.manifest.sample_ends[number] - (self.manifest.sample_ends[number - 1] if number else 0)
            if len(index) != samples:
                message = f"shards[{number}].samples = {samples}: {opened.image.name} has {len(index)}"
                raise ManifestError(f"{self._place}: {message}")
            opened.index = index
        return opened.index

    def sample_path(self, number: int) -> str:
        """The path of a sample."""
        shard, row = self.locate(number)
        return self.shard_index(shard).path(row)

    def read_sample(self, number: int) -> bytes:
        """The contents of a sample."""
        shard, row = self.locate(number)
        return self.shard(shard).read(self.shard_index(shard).nids[row])

    def read_samples(self, numbers: Iterable[int], *, threads: int | None = None) -> list[memoryview]:
        """Contents of samples in the order in which they were asked for; each shard is read once, in stored order."""
        by_shard: dict[int, list[tuple[int, int]]] = {}
        count = 0
        for place, number in enumerate(numbers):
            shard, row = self.locate(number)
            by_shard.setdefault(shard, []).append((place, row))
            count += 1
        found: list[memoryview] = [memoryview(b"")] * count
        for shard, rows in sorted(by_shard.items()):
            batch = self.shard(shard).read_many(self.shard_index(shard), rows=[row for _, row in rows], threads=threads)
            for idx, (place, _) in enumerate(rows):
                found[place] = batch[idx]
        return found

    def find(self, path: Any) -> int:
        """The number of the sample at a path. FileNotFoundError where none has it."""
        raw = b"/".join(_names(encode(path)))
        shard = self._shard_of(raw)
        row = self.shard_index(shard).find(raw)
        return row + (self.manifest.sample_ends[shard - 1] if shard else 0)

    # primitives of the methods of an image

    def _lookup(self, what: What, follow: bool) -> int:
        if isinstance(what, int):
            return what
        return self._resolve(encode(what), follow)

    def _stat(self, what: What, follow: bool) -> tuple[tuple[int, ...], dict[str, int]]:
        number = self._lookup(what, follow)
        if number < _DIRECTORY:
            (mode, _, *rest), more = self._shard_file(number, what, lambda image, nid: image._stat(nid, False))
            return (mode, number, *rest), more
        path = self._directory(number)
        for image in self._shards_with(path):
            try:
                (mode, _, device, _, *rest), more = image._stat(b"/" + path, False)
            except OSError as error:
                if is_absence(error):
                    continue
                raise
            # Each shard knows the directories that lead to its own files.
            return (mode, number, device, 2 + len(self._directories().children(path)), *rest), more
        raise failure(errno.ENOENT, _shown(what), self.name)

    def _listdir(self, what: What) -> list[tuple[bytes, int, int]]:
        number = self._lookup(what, True)
        if number < _DIRECTORY:
            raise failure(errno.ENOTDIR, _shown(what), self.name)
        path = self._directory(number)
        tree = self._directories()
        listed = [(name, _DIRECTORY | place, S_IFDIR) for name, place in tree.children(path)]
        for shard in self._candidates(path):
            try:
                entries = self._shard(shard).image._listdir(b"/" + path)
            except OSError as error:
                if is_absence(error):
                    continue
                raise
            listed += [(name, shard << _NID_BITS | nid, kind) for name, nid, kind in entries if kind != S_IFDIR]
        return sorted(listed)

    def _readlink(self, what: What) -> bytes:
        return self._of_file(what, False, errno.EINVAL, lambda image, nid: image._readlink(nid))

    def _listxattr(self, what: What, follow: bool) -> list[bytes]:
        return self._with_attributes(what, follow, lambda image, path: image._listxattr(path, False))

    def _getxattr(self, what: What, name: bytes, follow: bool) -> bytes:
        return self._with_attributes(what, follow, lambda image, path: image._getxattr(path, name, False))

    def read(self, what: What, start: int = 0, stop: int | None = None) -> bytes:
        """The contents of a file, or a part of it."""
        return self._of_file(what, True, errno.EISDIR, lambda image, nid: image.read(nid, start, stop))

    def read_into(self, what: What, buffer: Buffer, *, start: int = 0) -> int:
        """Read a part of a file into a buffer. Returns how many bytes there were: fewer only at the end."""
        return self._of_file(what, True, errno.EISDIR, lambda image, nid: image.read_into(nid, buffer, start=start))

    def view(self, what: What, start: int = 0, stop: int | None = None) -> memoryview:
        """The contents of a file, read-only, without a copy where possible."""
        return self._of_file(what, True, errno.EISDIR, lambda image, nid: image.view(nid, start, stop))

    def read_many(self, what: Iterable[What], *, threads: int | None = None) -> list[memoryview]:  # type: ignore[override]
        """Contents of many files, by path, in the order in which they were asked for. By number: `read_samples`."""
        by_shard: dict[int, list[tuple[int, int]]] = {}
        count = 0
        for place, one in enumerate(what):
            number = self._lookup(one, True)
            if number >= _DIRECTORY:
                raise failure(errno.EISDIR, _shown(one), self.name)
            by_shard.setdefault(number >> _NID_BITS, []).append((place, number & (1 << _NID_BITS) - 1))
            count += 1
        found: list[memoryview] = [memoryview(b"")] * count
        for shard, nids in sorted(by_shard.items()):
            from array import array

            batch = self.shard(shard).read_many(array("Q", (nid for _, nid in nids)), threads=threads)
            for idx, (place, _) in enumerate(nids):
                found[place] = batch[idx]
        return found

    def extents(self, path: What) -> list[Extent]:
        """Where the contents of a file are stored in its shard, piece by piece."""
        return self._of_file(path, True, errno.EISDIR, lambda image, nid: image.extents(nid))

    def explain(self, path: What, start: int = 0, stop: int | None = None) -> Cost:
        """What reading a range of a file costs."""
        return self._of_file(path, True, errno.EISDIR, lambda image, nid: image.explain(nid, start, stop))

    def index(self, *args: object, **options: object) -> Index:
        """Not offered: an index of all samples would have the size that shards are made to avoid. See
        `shard_index`.
        """
        import io

        raise io.UnsupportedOperation("index: a data set of shards has an index per shard: shard_index(number)")

    def check(self, *, threads: int | None = None, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Check one shard after the other. The report of the first that has problems, else that of the last.

        `progress` is called for each shard anew.
        """
        report = None
        for number in range(len(self.manifest)):
            report = self.shard(number).check(threads=threads, progress=progress)
            if not report.ok:
                break
        assert report is not None, "a manifest has one shard at least"
        return report

    def _extract(
        self,
        members: Sequence[bytes],
        target: bytes,
        *,
        policy: str,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        report: dict[str, Any] = {}
        for number in range(len(self.manifest)):
            image = self.shard(number)
            chosen = [member for member in members if _has(image, member)]
            if members and not chosen:
                continue
            report = image._extract(chosen, target, policy=policy, threads=threads, progress=progress)
        return report

    # where things are

    def _resolve(self, path: bytes, follow: bool) -> int:
        """The number of what is at a path."""
        self._check_open()
        todo = path.split(b"/")[::-1]
        resolved: list[bytes] = []
        links = 0
        tree = self._directories()
        while todo:
            name = todo.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                del resolved[-1:]
                continue
            here = b"/".join((*resolved, name))
            if tree.find(here) is not None:
                resolved.append(name)
                continue
            number, target = self._file_at(here, path)
            # What is behind a slash has to be a directory.
            is_last = not todo
            if target is None or (is_last and not follow):
                if is_last:
                    return number
                raise failure(errno.ENOTDIR, decode(path), self.name)
            links += 1
            if links > _LINKS_MAX:
                raise failure(errno.ELOOP, decode(path), self.name)
            if target.startswith(b"/"):
                resolved.clear()
            todo += target.split(b"/")[::-1]
        place = tree.find(b"/".join(resolved))
        assert place is not None, "each directory on the way was found"
        return _DIRECTORY | place

    def _file_at(self, here: bytes, path: bytes) -> tuple[int, bytes | None]:
        """The number of a file that is no directory, and its target if it is a link."""
        shard = self._shard_of(here)
        image = self._shard(shard).image
        try:
            nid = image._lookup(b"/" + here, False)
            mode = image._stat(nid, False)[0][0]
        except OSError as error:
            if is_absence(error):
                raise failure(error.errno or errno.ENOENT, decode(path), self.name) from None
            raise
        if S_IFMT(mode) == S_IFDIR:
            # A shard has a directory that the list does not have: they do not belong together.
            raise failure(errno.EUCLEAN, decode(here), self.name, "a directory that is not in the list of directories")
        return shard << _NID_BITS | nid, image._readlink(nid) if S_ISLNK(mode) else None

    def _shard_of(self, path: bytes) -> int:
        """The shard that has the file at a path, if any has."""
        manifest = self.manifest
        if manifest.by == "hash":
            return hash_shard(group_key(path), manifest.seed, len(manifest))
        return max(0, bisect_right(self._first_keys, path_key(path)) - 1)

    def _candidates(self, directory: bytes) -> Iterator[int]:
        """Shards that may have files of a directory."""
        count = len(self.manifest)
        if self.manifest.by == "hash":
            yield from range(count)
            return
        key = tuple((part, b"") for part in directory.split(b"/")) if directory else ()
        first = max(0, bisect_right(self._first_keys, key) - 1)
        for number in range(first, count):
            if number > first and self._first_keys[number][: len(key)] > key:
                return
            yield number

    def _shards_with(self, directory: bytes) -> Iterator[Image]:
        """Images that may have a directory: those that are open come first."""
        candidates = list(self._candidates(directory))
        # An empty directory is a member itself.
        candidates.append(self._shard_of(directory))
        for number in sorted(candidates, key=lambda number: number not in self._open):
            yield self._shard(number).image

    def _with_attributes(self, what: What, follow: bool, call: Callable[[Image, Any], T]) -> T:
        number = self._lookup(what, follow)
        if number < _DIRECTORY:
            return self._shard_file(number, what, call)
        path = self._directory(number)
        for image in self._shards_with(path):
            if _has(image, path):
                return call(image, b"/" + path)
        raise failure(errno.ENOENT, _shown(what), self.name)

    def _of_file(self, what: What, follow: bool, directory_error: int, call: Callable[[Image, int], T]) -> T:
        number = self._lookup(what, follow)
        if number >= _DIRECTORY:
            raise failure(directory_error, _shown(what), self.name)
        return self._shard_file(number, what, call)

    def _shard_file(self, number: int, what: What, call: Callable[[Image, int], T]) -> T:
        image = self._shard(number >> _NID_BITS).image
        try:
            return call(image, number & (1 << _NID_BITS) - 1)
        except OSError as error:
            # The shard knows a nid.
            if not isinstance(what, int):
                error.filename = _shown(what)
            raise

    def _directory(self, number: int) -> bytes:
        return self._directories().path(number ^ _DIRECTORY)

    def _directories(self) -> _Directories:
        if self._tree is None:
            manifest = self.manifest
            url, _, name = manifest.directories.rpartition("/")
            listed = store_of(url, _storage_options(self._options)).read(name, DIRECTORIES_MAX_LEN)
            if _digest(listed) != manifest.directories_digest:
                reason = f"not that of {manifest.directories}"
                raise ManifestError(f"{self._place}: directories_digest = {manifest.directories_digest!r}: {reason}")
            self._tree = _Directories(listed)
        return self._tree

    def _shard(self, number: int) -> _OpenShard:
        self._check_open()
        if self._open.pid != os.getpid():
            # A forked process shares no lock, and no cache, with the one it comes from.
            self._open = _Window(self._window)
        return self._open.get(number, lambda: self._open_shard(number))

    def _open_shard(self, number: int) -> _OpenShard:
        import kilnfs

        name, uuid = self.manifest.names[number], self.manifest.uuids[number]
        image = kilnfs.open(name, **self._options)
        if image.uuid.hex() != uuid.replace("-", ""):
            found = image.uuid.hex()
            image.close()
            message = f"shards[{number}].uuid = {uuid!r}: {name} is another image, with the UUID {found}"
            raise failure(errno.ESTALE, None, self._place, f"{self._place}: {message}")
        return _OpenShard(image)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the shards of {self._place!r} are closed")


class _OpenShard:
    __slots__ = ("image", "index")

    def __init__(self, image: Image) -> None:
        self.image = image
        self.index: Index | None = None


class _Window:
    """The shards that this process has open, the one that was used least recently first."""

    def __init__(self, size: int) -> None:
        self.pid = os.getpid() if size else 0
        self._size = size
        self._lock = Lock()
        self._shards: OrderedDict[int, _OpenShard] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shards)

    def __contains__(self, number: int) -> bool:
        return number in self._shards

    def images(self) -> list[Image]:
        with self._lock:
            return [shard.image for shard in self._shards.values()]

    def get(self, number: int, make: Callable[[], _OpenShard]) -> _OpenShard:
        with self._lock:
            shard = self._shards.get(number)
            if shard is not None:
                self._shards.move_to_end(number)
                return shard
        # Other threads go on meanwhile. Two that want the same shard open it twice, and one of them is kept.
        made = make()
        with self._lock:
            shard = self._shards.setdefault(number, made)
            self._shards.move_to_end(number)
            while len(self._shards) > self._size:
                # Not closed: another thread may read from it, and has it then.
                self._shards.popitem(last=False)
            return shard


class _Directories:
    """All directories of a tree, by path and by number."""

    def __init__(self, listed: bytes) -> None:
        # The root is the first.
        self._paths = [b"", *listed.split(b"\0")[:-1]]
        self._places = {path: place for place, path in enumerate(self._paths)}
        self._children: dict[bytes, list[tuple[bytes, int]]] | None = None

    def find(self, path: bytes) -> int | None:
        return self._places.get(path)

    def path(self, place: int) -> bytes:
        return self._paths[place]

    def children(self, path: bytes) -> list[tuple[bytes, int]]:
        """Names and numbers of the directories in one."""
        if self._children is None:
            children: dict[bytes, list[tuple[bytes, int]]] = {}
            for place, one in enumerate(self._paths):
                if one:
                    parent, _, name = one.rpartition(b"/")
                    children.setdefault(parent, []).append((name, place))
            self._children = children
        return self._children.get(path, [])


def _reopen(place: str, window: int, absolute: bool, options: dict[str, Any], uuid: bytes) -> ShardedImage:
    """A set of shards that was pickled: it has to be the one that it was."""
    image = open(place, window=window, absolute=absolute, **options)
    if image.uuid != uuid:
        raise failure(errno.ESTALE, None, place, f"{place}: other shards than when it was pickled")
    return image


def _storage_options(options: dict[str, Any]) -> dict[str, Any]:
    """What is for fsspec, of the options of `kilnfs.open`."""
    return {name: value for name, value in options.items() if name not in _IMAGE_OPTIONS}


def _names(path: bytes) -> list[bytes]:
    return [name for name in path.split(b"/") if name not in (b"", b".")]


def _has(image: Image, path: bytes) -> bool:
    try:
        image._lookup(b"/" + path, False)
    except OSError as error:
        if is_absence(error):
            return False
        raise
    return True


def _shown(what: What) -> str | None:
    return None if isinstance(what, int) else decode(encode(what))
