"""All shards of a manifest as one tree, with the methods of an image."""

from __future__ import annotations

import errno
import os
from array import array
from functools import cached_property
from hashlib import blake2b
from stat import S_IFDIR
from typing import TYPE_CHECKING, Any

from .._names import decode, encode, failure, is_absence, is_name, name_file, one_file, refuse_foreign
from .._native import Index
from .._verbs_os import OsVerbs
from .._urls import redact
from .._verbs_zip import ZipVerbs
from ._manifest import read_manifest
from ._shard_tree import DIRECTORY, NID_BITS, ShardTree
from ._sharded_batch import ShardedBatch, by_shard, nids_of
from ._sharded_index import IndexChoice, ShardedIndex
from ._window import ShardWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Literal, NoReturn, Self, SupportsIndex, TypeVar

    from typing_extensions import Buffer

    from .._image import Image
    from .._names import Name, What
    from .._path import Path
    from .._reports import CheckReport, Cost, Extent
    from ._manifest import Manifest

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
_IMAGE_OPTIONS = frozenset(("cache_bytes", "verify_checksum", "mmap", "retries", "verify"))


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
        """Names, UUIDs and counts of all shards."""
        self._place, self._absolute, self._options = place, absolute, options
        # Names in errors, without passwords.
        self._window = ShardWindow(redact(place), manifest, window, options)
        self._tree = ShardTree(redact(place), manifest, self._window, _storage_options(options))

    # what it is

    @property
    def name(self) -> str:
        """The path or URL of the manifest, without a password."""
        return redact(self._place)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._window.closed

    @cached_property
    def uuid(self) -> bytes:
        """16 bytes that depend on the UUIDs of all shards."""
        return blake2b("".join(self.manifest.uuids).encode(), digest_size=16).digest()

    @property
    def _identity(self) -> tuple[int | str | bytes, bytes]:  # type: ignore[override]  # never assigned here
        return self._place, self.uuid

    def close(self) -> None:
        """Methods raise ValueError from now on. Memory that was given out stays valid."""
        self._window.close()

    def __enter__(self) -> Self:
        self._window.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<kilnfs.shards.ShardedImage {self.name!r} of {len(self.manifest)} shards{state}>"

    def __reduce__(self) -> tuple[Callable[..., ShardedImage], tuple[object, ...]]:
        self._window.check_open()
        return _reopen, (self._place, self._window.size, self._absolute, self._options, self.uuid)

    def stats(self) -> dict[str, int]:
        """The counters of the shards that are open, added up, and how many are."""
        total: dict[str, int] = {}
        for image in self._window.images():
            for name, count in image.stats().items():
                total[name] = total.get(name, 0) + count
        return {**total, "shards_open": len(self._window)}

    @property
    def root(self) -> Path:
        """The root directory."""
        return self.path("/")

    def path(self, path: Any = "/") -> Path:
        """A path of the tree, from its root."""
        from .._path import Path

        refuse_foreign(path, self)
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

    def __iter__(self) -> Iterator[str]:
        """The paths of the samples, by their numbers. Opens one shard after the other."""
        return map(self.sample_path, range(len(self)))

    def __contains__(self, path: object) -> bool:
        """Tells if there is something of this name, be it a directory or a broken link."""
        return is_name(path) and self.lexists(path)

    def locate(self, number: int) -> tuple[int, int]:
        """Shard of a sample, and its row in the index of that shard: a binary search."""
        return self._samples.locate(number)

    def shard(self, number: int) -> Image:
        """The image of a shard, opened if it is not in the window."""
        return self._window.get(number).image

    def shard_index(self, number: int) -> Index:
        """The index of a shard's samples, made when it is first asked for and dropped with the shard."""
        return self._samples.shard(number)

    @cached_property
    def _samples(self) -> ShardedIndex:
        return ShardedIndex.of_all(self)

    def sample_path(self, number: int) -> str:
        """The path of a sample."""
        shard, row = self.locate(number)
        return self.shard_index(shard).path(row)

    def read_sample(self, number: int) -> bytes:
        """The contents of a sample."""
        shard, row = self.locate(number)
        index = self.shard_index(shard)
        try:
            return self.shard(shard).read(nid=index.nids[row])
        except OSError as error:
            name_file(error, index.path(row), self.shard(shard))
            raise

    def read_samples(self, numbers: Iterable[int], *, threads: int | None = None) -> ShardedBatch:
        """Contents of samples in the order in which they were asked for; each shard is read once, in stored order."""
        return self.read_many(self._samples, rows=numbers, threads=threads)

    def find(self, path: Any) -> int:
        """The number of the sample at a path. FileNotFoundError where none has it."""
        return self._samples.find(path)

    # primitives of the methods of an image

    def _lookup(self, what: What, follow: bool) -> int:
        if isinstance(what, int):
            return what
        refuse_foreign(what, self)
        return self._tree.resolve(encode(what), follow)

    def _stat(self, what: What, follow: bool) -> tuple[tuple[int, ...], dict[str, int]]:
        number = self._lookup(what, follow)
        if number < DIRECTORY:
            (mode, _, *rest), more = self._shard_file(number, what, lambda image, nid: image._stat(nid, False))
            return (mode, number, *rest), more
        path = self._directory(number)
        for image in self._tree.images_with(path):
            try:
                (mode, _, device, _, *rest), more = image._stat(b"/" + path, False)
            except OSError as error:
                if is_absence(error):
                    continue
                raise
            # Each shard knows the directories that lead to its own files.
            return (mode, number, device, 2 + len(self._tree.directories.children(path)), *rest), more
        raise failure(errno.ENOENT, _shown(what), self.name)

    def _listdir(self, what: What) -> list[tuple[bytes, int, int]]:
        number = self._lookup(what, True)
        if number < DIRECTORY:
            raise failure(errno.ENOTDIR, _shown(what), self.name)
        path = self._directory(number)
        tree = self._tree.directories
        listed = [(name, DIRECTORY | place, S_IFDIR) for name, place in tree.children(path)]
        for shard in self._tree.candidates(path):
            try:
                entries = self._window.get(shard).image._listdir(b"/" + path)
            except OSError as error:
                if is_absence(error):
                    continue
                raise
            listed += [(name, shard << NID_BITS | nid, kind) for name, nid, kind in entries if kind != S_IFDIR]
        return sorted(listed)

    def _readlink(self, what: What) -> bytes:
        return self._of_file(what, False, errno.EINVAL, lambda image, nid: image._readlink(nid))

    def _listxattr(self, what: What, follow: bool) -> list[bytes]:
        return self._with_attributes(what, follow, lambda image, path: image._listxattr(path, False))

    def _getxattr(self, what: What, name: bytes, follow: bool) -> bytes:
        return self._with_attributes(what, follow, lambda image, path: image._getxattr(path, name, False))

    def read(
        self, what: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> bytes:
        """The contents of a file, or a part of it."""
        file = one_file(what, nid)
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image.read(None, start, stop, nid=nid))

    def read_into(
        self,
        what: Name | None = None,
        buffer: Buffer | None = None,
        *,
        start: int = 0,
        nid: SupportsIndex | None = None,
    ) -> int:
        """Read a part of a file into a buffer. Returns how many bytes there were: fewer only at the end."""
        file = one_file(what, nid)

        def read(image: Image, nid: int) -> int:
            return image.read_into(None, buffer, start=start, nid=nid)

        return self._of_file(file, True, errno.EISDIR, read)

    def view(
        self, what: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> memoryview:
        """The contents of a file, read-only, without a copy where possible."""
        file = one_file(what, nid)
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image.view(None, start, stop, nid=nid))

    def read_many(  # type: ignore[override]
        self,
        what: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
        threads: int | None = None,
    ) -> ShardedBatch:
        """Contents of many files in the order in which they were asked for; each shard is read once, in stored order.

        `what` is paths, or an index of these shards, of which `rows` chooses some; `nids` are numbers of files.
        """
        numbers, path_of = self._files(what, rows, nids)
        return ShardedBatch.read(self, numbers, threads, path_of)

    def views(
        self,
        what: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
    ) -> list[memoryview]:
        """Contents of many files, read-only, in the order in which they were asked for; as `Image.views` gives those of
        each shard.
        """
        numbers, _ = self._files(what, rows, nids)
        found: list[memoryview] = [memoryview(b"")] * len(numbers)
        for shard, files in by_shard(numbers):
            for (place, _), view in zip(files, self.shard(shard).views(nids=nids_of(files)), strict=True):
                found[place] = view
        return found

    def iter_many(
        self,
        what: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
        threads: int | None = None,
        window_bytes: int = 64 << 20,
    ) -> Iterator[tuple[int, memoryview]]:
        """Place among those asked for, and contents, of each file: one shard after the other, in stored order, with
        `window_bytes` of memory.
        """
        parts = by_shard(self._files(what, rows, nids)[0])
        return self._iterate(parts, threads, window_bytes)

    def _iterate(
        self, parts: list[tuple[int, list[tuple[int, int]]]], threads: int | None, window_bytes: int
    ) -> Iterator[tuple[int, memoryview]]:
        for shard, files in parts:
            image = self.shard(shard)
            for place, contents in image.iter_many(nids=nids_of(files), threads=threads, window_bytes=window_bytes):
                yield files[place][0], contents

    def prefetch(
        self,
        what: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
    ) -> int:
        """Say that these files will be read soon. Returns how many bytes the storage was told of. Opens their shards:
        more than the window has room for are told of in vain.
        """
        parts = by_shard(self._files(what, rows, nids)[0])
        return sum(self.shard(shard).prefetch(nids=nids_of(files)) for shard, files in parts)

    def physical_order(
        self,
        what: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
    ) -> memoryview:
        """The places of these files among those asked for, in the order in which they are stored, shard by shard: 'Q'."""
        order = array("Q")
        for shard, files in by_shard(self._files(what, rows, nids)[0]):
            order.extend(files[place][0] for place in self.shard(shard).physical_order(nids=nids_of(files)))
        return memoryview(order)

    @property
    def source_length(self) -> int:
        """Bytes of all shards."""
        return sum(self.manifest.sizes)

    @property
    def info(self) -> NoReturn:
        """Shards have a superblock each: `image.shard(number).info`."""
        raise AttributeError("shards have a superblock each: use image.shard(number).info")

    def positions(self, *arguments: object, **more: object) -> NoReturn:
        """Addresses are those of one image: `image.shard(number).positions`."""
        raise TypeError("addresses are those of one image: use image.shard(number).positions")

    def _files(
        self,
        what: Iterable[Name] | ShardedIndex | None,
        rows: Iterable[SupportsIndex] | Buffer | None,
        nids: Iterable[SupportsIndex] | Buffer | None,
    ) -> tuple[list[int], Callable[[int], str | None]]:
        """The numbers of the files of a call, and the path of the one at a place among them, for errors."""
        if what is None and nids is None:
            raise TypeError("an index or paths are missing, or nids=")
        if what is not None and nids is not None:
            raise TypeError("an index or paths, or nids=, not both")
        chosen: Any = rows
        if isinstance(what, ShardedIndex):
            index = what if what.image is self else what.bind(self)
            found = range(len(index)) if rows is None else list(chosen)
            return [index.number(row) for row in found], lambda place: index.path(found[place])
        if isinstance(what, Index) and what.uuid.hex() not in (uuid.replace("-", "") for uuid in self.manifest.uuids):
            text = f"the index is of an image with UUID {what.uuid.hex()}, and no shard has that"
            raise failure(errno.ESTALE, None, self.name, text)
        if rows is not None:
            raise TypeError("rows: of an index, and none was given")
        if what is None:
            given: Any = nids
            return [number.__index__() for number in given], lambda place: None
        if isinstance(what, (str, bytes)):
            raise TypeError("a list of paths, not one path")
        paths = list(what.to_pylist() if hasattr(what, "to_pylist") else what)
        return [self._file_number(path) for path in paths], lambda place: _shown(paths[place])

    def _file_number(self, path: Name) -> int:
        number = self._lookup(one_file(path), True)
        if number >= DIRECTORY:
            raise failure(errno.EISDIR, _shown(path), self.name)
        return number

    def extents(self, path: Name | None = None, *, nid: SupportsIndex | None = None) -> list[Extent]:
        """Where the contents of a file are stored in its shard, piece by piece."""
        file = one_file(path, nid)
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image.extents(nid=nid))

    def explain(
        self, path: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> Cost:
        """What reading a range of a file costs."""
        file = one_file(path, nid)
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image.explain(None, start, stop, nid=nid))

    def index(  # type: ignore[override]
        self,
        root: Name = "/",
        *,
        glob: str | bytes | None = None,
        extensions: str | bytes | Sequence[str | bytes] | None = None,
        group: Literal["parent"] | int | Callable[[str], str] | None = None,
        threads: int | None = None,
    ) -> ShardedIndex:
        """The regular files below a directory, as `Image.index` chooses and groups them: those of the first shard in
        path order, then those of the second.

        What all have in common stays in memory: how many files each shard has, and the names of the classes. The table
        of a shard is made when one of its rows is asked for, and dropped when the shard leaves the window. To count
        files and classes, this opens each shard once, unless it is asked for all files without classes.
        """
        choice = IndexChoice(
            encode(root),
            glob,
            extensions if isinstance(extensions, (str, bytes, type(None))) else tuple(extensions),
            group,
        )
        return ShardedIndex.chosen(self, choice, threads)

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
        overwrite: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        report: dict[str, Any] = {}
        for number in range(len(self.manifest)):
            image = self.shard(number)
            chosen = [member for member in members if _has(image, member)]
            if members and not chosen:
                continue
            report = image._extract(chosen, target, policy=policy, overwrite=overwrite, threads=threads, progress=progress)
        return report

    def _with_attributes(self, what: What, follow: bool, call: Callable[[Image, Any], T]) -> T:
        number = self._lookup(what, follow)
        if number < DIRECTORY:
            return self._shard_file(number, what, call)
        path = self._directory(number)
        for image in self._tree.images_with(path):
            if _has(image, path):
                return call(image, b"/" + path)
        raise failure(errno.ENOENT, _shown(what), self.name)

    def _of_file(self, what: What, follow: bool, directory_error: int, call: Callable[[Image, int], T]) -> T:
        number = self._lookup(what, follow)
        if number >= DIRECTORY:
            raise failure(directory_error, _shown(what), self.name)
        return self._shard_file(number, what, call)

    def _shard_file(self, number: int, what: What, call: Callable[[Image, int], T]) -> T:
        image = self._window.get(number >> NID_BITS).image
        try:
            return call(image, number & (1 << NID_BITS) - 1)
        except OSError as error:
            # The shard knows a nid.
            name_file(error, _shown(what), image)
            raise

    def _directory(self, number: int) -> bytes:
        return self._tree.directories.path(number ^ DIRECTORY)


def _reopen(place: str, window: int, absolute: bool, options: dict[str, Any], uuid: bytes) -> ShardedImage:
    """A set of shards that was pickled: it has to be the one that it was."""
    image = open(place, window=window, absolute=absolute, **options)
    if image.uuid != uuid:
        raise failure(errno.ESTALE, None, image.name, "other shards than when it was pickled")
    return image


def _storage_options(options: dict[str, Any]) -> dict[str, Any]:
    """What is for fsspec, of the options of `kilnfs.open`."""
    return {name: value for name, value in options.items() if name not in _IMAGE_OPTIONS}


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
