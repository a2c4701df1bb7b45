"""Shards of a manifest as one tree, with the methods of an image."""

from __future__ import annotations

import errno
import os
from array import array
from functools import cached_property
from hashlib import blake2b
from stat import S_IFDIR
from typing import TYPE_CHECKING, Any

from .._names import decode, encode, failure, is_absence, name_file, one_file, refuse_foreign
from .._native import Index
from .._urls import redact
from .._verbs import ImageVerbs
from ._manifest import read_manifest
from ._shard_tree import DIRECTORY, NID_BITS, ShardTree
from ._sharded_batch import ShardedBatch, by_shard, nids_of
from ._sharded_index import IndexChoice, ShardedIndex
from ._window import ShardWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Literal, NoReturn, Self, SupportsIndex, TypeVar

    from typing_extensions import Buffer

    from .._image import Image
    from .._names import FileRef, Name
    from ._manifest import Manifest

    T = TypeVar("T")

WINDOW = 8
"""Default number of shards that are open at once."""
_IMAGE_OPTIONS = frozenset(("cache_bytes", "verify_checksum", "mmap", "retries", "verify"))


def open(
    manifest: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    window: int = WINDOW,
    absolute: bool = False,
    offset: int = 0,
    devices: Sequence[object] = (),
    objects: object = (),
    root_hash: object = None,
    hash_tree: object = None,
    **options: Any,
) -> ShardedImage:
    """Opens all shards of the manifest at a path or URL as one tree. `kilnfs.open` does the same if
    a path ends with `.json`.

    * `window`: number of shards that are open at once, with the indexes of their samples; the least
      recently used one is dropped.
    * `absolute`: True if shards may have absolute names. Names that lead out of the manifest's
      directory by `..` are always refused.
    * `options`: those of `kilnfs.open`, for each shard.
    """
    if offset or devices or objects:
        raise ValueError("a manifest has neither offset, devices nor objects")
    if root_hash is not None or hash_tree is not None:
        raise ValueError("a root hash is that of one image, and a manifest has several: open its shards one by one")
    if window < 1:
        raise ValueError(f"window={window}: use 1 or more")
    place = os.fsdecode(manifest)
    if "://" not in place:
        # Absolute, so that a worker with another working directory finds it.
        place = os.path.abspath(place)
    read = read_manifest(place, absolute=absolute, storage_options=_storage_options(options))
    return ShardedImage(place, read, window=window, absolute=absolute, options=options)


class ShardedImage(ImageVerbs):
    """Shards of a dataset as one tree. Made by `open`.

    It has the methods of `kilnfs.Image`. A lookup of a file opens one shard; a listing of a
    directory opens those that may have files in it, all of them with `by="hash"`. Symbolic links
    may lead from one shard to another. Samples have numbers from 0 on: those of the first shard in
    path order, then those of the second. Methods may be called from any thread, and in a forked
    process, which opens shards of its own. """

    def __init__(self, place: str, manifest: Manifest, *, window: int, absolute: bool, options: dict[str, Any]) -> None:
        self.manifest = manifest
        """Manifest: names, UUIDs and counts of all shards."""
        self._place, self._absolute, self._options = place, absolute, options
        # Names in errors, without passwords.
        self._window = ShardWindow(redact(place), manifest, window, options)
        self._tree = ShardTree(redact(place), manifest, self._window, _storage_options(options))

    @property
    def name(self) -> str:
        """Path or URL of the manifest, without a password."""
        return redact(self._place)

    @property
    def closed(self) -> bool:
        """True if the shards were closed."""
        return self._window.closed

    @cached_property
    def uuid(self) -> bytes:
        """UUID of the set, 16 bytes, derived from the UUIDs of all shards."""
        return blake2b("".join(self.manifest.uuids).encode(), digest_size=16).digest()

    @property
    def _identity(self) -> tuple[int | str | bytes, bytes]:
        return self._place, self.uuid

    def close(self) -> None:
        """Closes the shards. Methods raise ValueError from now on. Memory that was returned stays
        valid."""
        self._window.close()

    def __enter__(self) -> Self:
        self._window.check_open()
        return self

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<kilnfs.shards.ShardedImage {self.name!r} of {len(self.manifest)} shards{state}>"

    def __reduce__(self) -> tuple[Callable[..., ShardedImage], tuple[object, ...]]:
        self._window.check_open()
        return _reopen, (self._place, self._window.size, self._absolute, self._options, self.uuid)

    def stats(self) -> dict[str, int]:
        """Returns the sums of the counters of all open shards, and their number as
        `shards_open`."""
        total: dict[str, int] = {}
        for image in self._window.images():
            for name, count in image.stats().items():
                total[name] = total.get(name, 0) + count
        return {**total, "shards_open": len(self._window)}

    # samples by number

    def __len__(self) -> int:
        """Returns the number of samples: regular files of all shards."""
        return self.manifest.samples

    def __iter__(self) -> Iterator[str]:
        """Yields the paths of the samples, by number. Opens one shard after the other."""
        return map(self.sample_path, range(len(self)))

    def locate(self, number: int) -> tuple[int, int]:
        """Returns the shard of a sample and its row in the index of that shard. Costs a binary
        search."""
        return self._samples.locate(number)

    def shard(self, number: int) -> Image:
        """Returns the image of a shard, and opens it if it is not in the window."""
        return self._window.get(number).image

    def shard_index(self, number: int) -> Index:
        """Returns the index of a shard's samples, which is made at the first access and dropped
        with the shard."""
        return self._samples.shard(number)

    @cached_property
    def _samples(self) -> ShardedIndex:
        return ShardedIndex.of_all(self)

    def sample_path(self, number: int) -> str:
        """Returns the path of a sample."""
        shard, row = self.locate(number)
        return self.shard_index(shard).path(row)

    def read_sample(self, number: int) -> bytes:
        """Returns the contents of a sample."""
        shard, row = self.locate(number)
        index = self.shard_index(shard)
        try:
            return self.shard(shard).read(nid=index.nids[row])
        except OSError as error:
            name_file(error, index.path(row), self.shard(shard))
            raise

    def read_samples(self, numbers: Iterable[int], *, threads: int | None = None) -> ShardedBatch:
        """Returns the contents of samples in the order of the arguments. Reads each shard once, in
        stored order."""
        return self.read_many(self._samples, rows=numbers, threads=threads)

    def find(self, path: Any) -> int:
        """Returns the number of the sample at a path. Raises FileNotFoundError if there is none."""
        return self._samples.find(path)

    # primitives of ImageVerbs

    def _lookup(self, file: FileRef, follow: bool) -> int:
        if isinstance(file, int):
            return file
        refuse_foreign(file, self)
        return self._tree.resolve(encode(file), follow)

    def _stat(self, file: FileRef, follow: bool) -> tuple[tuple[int, ...], dict[str, int]]:
        number = self._lookup(file, follow)
        if number < DIRECTORY:
            (mode, _, *rest), more = self._shard_file(number, file, lambda image, nid: image._stat(nid, False))
            return (mode, number, *rest), more
        path = self._directory(number)
        for image in self._tree.images_with(path):
            try:
                (mode, _, device, _, *rest), more = image._stat(b"/" + path, False)
            except OSError as error:
                if is_absence(error):
                    continue
                raise
            # Each shard has only the directories that lead to its own files, so links are counted
            # in the whole tree.
            return (mode, number, device, 2 + len(self._tree.directories.children(path)), *rest), more
        raise failure(errno.ENOENT, _shown(file), self.name)

    def _listdir(self, file: FileRef) -> list[tuple[bytes, int, int]]:
        number = self._lookup(file, True)
        if number < DIRECTORY:
            raise failure(errno.ENOTDIR, _shown(file), self.name)
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

    def _readlink(self, file: FileRef) -> bytes:
        return self._of_file(file, False, errno.EINVAL, lambda image, nid: image._readlink(nid))

    def _listxattr(self, file: FileRef, follow: bool) -> list[bytes]:
        return self._with_attributes(file, follow, lambda image, path: image._listxattr(path, False))

    def _getxattr(self, file: FileRef, name: bytes, follow: bool) -> bytes:
        return self._with_attributes(file, follow, lambda image, path: image._getxattr(path, name, False))

    def read(
        self, path: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> bytes:
        """Returns the contents of a file, or a part of them."""
        file = one_file(path, nid)
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image.read(None, start, stop, nid=nid))

    def read_into(
        self,
        path: Name | None = None,
        buffer: Buffer | None = None,
        *,
        start: int = 0,
        nid: SupportsIndex | None = None,
    ) -> int:
        """Reads a part of a file into a buffer, and returns the number of bytes read: fewer only at
        the end of the file."""
        file = one_file(path, nid)

        def read(image: Image, nid: int) -> int:
            return image.read_into(None, buffer, start=start, nid=nid)

        return self._of_file(file, True, errno.EISDIR, read)

    def view(
        self, path: Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> memoryview:
        """Returns a read-only view of a file, without a copy if possible."""
        file = one_file(path, nid)
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image.view(None, start, stop, nid=nid))

    def read_many(
        self,
        files: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
        threads: int | None = None,
    ) -> ShardedBatch:
        """Returns the contents of many files in the order of the arguments. Reads each shard once,
        in stored order.

        `files` are paths, or an index of these shards, of which `rows` selects some; `nids` are
        numbers of files. """
        numbers, path_of = self._files(files, rows, nids)
        return ShardedBatch.read(self, numbers, threads, path_of)

    def views(
        self,
        files: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
    ) -> list[memoryview]:
        """Returns read-only views of many files in the order of the arguments, as `Image.views` of
        each shard."""
        numbers, _ = self._files(files, rows, nids)
        found: list[memoryview] = [memoryview(b"")] * len(numbers)
        for shard, chosen in by_shard(numbers):
            for (place, _), view in zip(chosen, self.shard(shard).views(nids=nids_of(chosen)), strict=True):
                found[place] = view
        return found

    def iter_many(
        self,
        files: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
        threads: int | None = None,
        window_bytes: int = 64 << 20,
    ) -> Iterator[tuple[int, memoryview]]:
        """Iterates over files, one shard after the other, in stored order, with `window_bytes` of
        memory. Yields the position of each file in the arguments, and its contents. """
        parts = by_shard(self._files(files, rows, nids)[0])
        return self._iterate(parts, threads, window_bytes)

    def _iterate(
        self, parts: list[tuple[int, list[tuple[int, int]]]], threads: int | None, window_bytes: int
    ) -> Iterator[tuple[int, memoryview]]:
        for shard, chosen in parts:
            image = self.shard(shard)
            for place, contents in image.iter_many(nids=nids_of(chosen), threads=threads, window_bytes=window_bytes):
                yield chosen[place][0], contents

    def prefetch(
        self,
        files: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
    ) -> int:
        """Announces that these files will be read soon, and returns the number of bytes that were
        announced to the storage. Opens their shards: announcements for more shards than fit into
        the window are lost. """
        parts = by_shard(self._files(files, rows, nids)[0])
        return sum(self.shard(shard).prefetch(nids=nids_of(chosen)) for shard, chosen in parts)

    def physical_order(
        self,
        files: Iterable[Name] | ShardedIndex | None = None,
        *,
        rows: Iterable[SupportsIndex] | Buffer | None = None,
        nids: Iterable[SupportsIndex] | Buffer | None = None,
    ) -> memoryview:
        """Returns the positions of the files in the arguments, in stored order, shard by shard:
        'Q'."""
        order = array("Q")
        for shard, chosen in by_shard(self._files(files, rows, nids)[0]):
            order.extend(chosen[place][0] for place in self.shard(shard).physical_order(nids=nids_of(chosen)))
        return memoryview(order)

    @property
    def source_length(self) -> int:
        """Total length of all shards in bytes."""
        return sum(self.manifest.sizes)

    @property
    def info(self) -> NoReturn:
        """Not available, as each shard has its own superblock: use `image.shard(number).info`."""
        raise AttributeError("each shard has its own superblock: use image.shard(number).info")

    def positions(self, *arguments: object, **more: object) -> NoReturn:
        """Not available, as addresses belong to one image: use `image.shard(number).positions`."""
        raise TypeError("addresses belong to one image: use image.shard(number).positions")

    def _files(
        self,
        files: Iterable[Name] | ShardedIndex | None,
        rows: Iterable[SupportsIndex] | Buffer | None,
        nids: Iterable[SupportsIndex] | Buffer | None,
    ) -> tuple[list[int], Callable[[int], str | None]]:
        """Returns the numbers of the files of a call, and a function from a position to a path, for
        errors."""
        if files is None and nids is None:
            raise TypeError("an index or paths are missing, or nids=")
        if files is not None and nids is not None:
            raise TypeError("an index or paths, or nids=, not both")
        wanted: Any = rows
        if isinstance(files, ShardedIndex):
            index = files if files.image is self else files.bind(self)
            found = range(len(index)) if rows is None else list(wanted)
            return [index.number(row) for row in found], lambda place: index.path(found[place])
        if isinstance(files, Index) and files.uuid.hex() not in (uuid.replace("-", "") for uuid in self.manifest.uuids):
            text = f"the index belongs to an image with UUID {files.uuid.hex()}, and no shard has it"
            raise failure(errno.ESTALE, None, self.name, text)
        if rows is not None:
            raise TypeError("rows select from an index, which is missing")
        if files is None:
            given: Any = nids
            return [number.__index__() for number in given], lambda place: None
        if isinstance(files, (str, bytes)):
            raise TypeError("a list of paths, not one path")
        paths = list(files.to_pylist() if hasattr(files, "to_pylist") else files)
        return [self._file_number(path) for path in paths], lambda place: _shown(paths[place])

    def _file_number(self, path: Name) -> int:
        number = self._lookup(one_file(path), True)
        if number >= DIRECTORY:
            raise failure(errno.EISDIR, _shown(path), self.name)
        return number

    def _extents(self, file: FileRef) -> list[dict[str, Any]]:
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image._extents(nid))

    def _explain(self, file: FileRef, start: int | None = None, stop: int | None = None) -> dict[str, Any]:
        return self._of_file(file, True, errno.EISDIR, lambda image, nid: image._explain(nid, start, stop))

    def index(
        self,
        root: Name = "/",
        *,
        glob: str | bytes | None = None,
        extensions: str | bytes | Sequence[str | bytes] | None = None,
        group: Literal["parent"] | int | Callable[[str], str] | None = None,
        threads: int | None = None,
    ) -> ShardedIndex:
        """Returns the regular files below a directory, selected and grouped as by `Image.index`:
        those of the first shard in path order, then those of the second.

        Only the number of files of each shard and the names of the classes stay in memory. The
        table of a shard is made when one of its rows is accessed, and dropped when the shard leaves
        the window. To count files and classes, each shard is opened once, except for an index of
        all files without classes. """
        choice = IndexChoice(
            encode(root),
            glob,
            extensions if isinstance(extensions, (str, bytes, type(None))) else tuple(extensions),
            group,
        )
        return ShardedIndex.chosen(self, choice, threads)

    def _check(
        self, *, threads: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        report: dict[str, Any] = {}
        for number in range(len(self.manifest)):
            report = self.shard(number)._check(threads=threads, progress=progress)
            if report["problem_count"]:
                break
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
            report = image._extract(
                chosen, target, policy=policy, overwrite=overwrite, threads=threads, progress=progress
            )
        return report

    def _with_attributes(self, file: FileRef, follow: bool, call: Callable[[Image, Any], T]) -> T:
        number = self._lookup(file, follow)
        if number < DIRECTORY:
            return self._shard_file(number, file, call)
        path = self._directory(number)
        for image in self._tree.images_with(path):
            if _has(image, path):
                return call(image, b"/" + path)
        raise failure(errno.ENOENT, _shown(file), self.name)

    def _of_file(self, file: FileRef, follow: bool, directory_error: int, call: Callable[[Image, int], T]) -> T:
        number = self._lookup(file, follow)
        if number >= DIRECTORY:
            raise failure(directory_error, _shown(file), self.name)
        return self._shard_file(number, file, call)

    def _shard_file(self, number: int, file: FileRef, call: Callable[[Image, int], T]) -> T:
        image = self._window.get(number >> NID_BITS).image
        try:
            return call(image, number & (1 << NID_BITS) - 1)
        except OSError as error:
            # The error of the shard names only the nid.
            name_file(error, _shown(file), image)
            raise

    def _directory(self, number: int) -> bytes:
        return self._tree.directories.path(number ^ DIRECTORY)


def _reopen(place: str, window: int, absolute: bool, options: dict[str, Any], uuid: bytes) -> ShardedImage:
    """Opens a pickled set of shards, which must not have changed."""
    image = open(place, window=window, absolute=absolute, **options)
    if image.uuid != uuid:
        raise failure(errno.ESTALE, None, image.name, "the shards have changed since the image was pickled")
    return image


def _storage_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of `kilnfs.open` that are for fsspec."""
    return {name: value for name, value in options.items() if name not in _IMAGE_OPTIONS}


def _has(image: Image, path: bytes) -> bool:
    try:
        image._lookup(b"/" + path, False)
    except OSError as error:
        if is_absence(error):
            return False
        raise
    return True


def _shown(file: FileRef) -> str | None:
    return None if isinstance(file, int) else decode(encode(file))
