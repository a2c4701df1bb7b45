"""EROFS images as a filesystem of fsspec, with the protocol `erofs`: for pandas, pyarrow, datasets,
zarr and other packages that accept fsspec URLs.

    pandas.read_csv("erofs://tables/a.csv::file:///data/set.erofs")
    fsspec.open("erofs://a/b.txt::s3://bucket/set.erofs", s3={"anon": True})
    fsspec.filesystem("erofs", fo="https://host/set.erofs").find("train")

Images are read, never written: methods that write raise `OSError` (EROFS). Symbolic links are
followed by `open` and `info`, and have type "link" in `ls`, `find` and `walk`. """

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from glob import has_magic
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn, overload

from ._file import BufferedFile, File
from ._fs_get import appearing
from ._fs_images import opened
from ._fs_info import FoundInfo, Sizes, followed_info_of, info_of
from ._fs_walk import levels, walk
from ._fsspec_types import AbstractFileSystem, isfilelike, tokenize
from ._names import decode, is_absence, joined, read_only
from ._retry import RETRIES
from ._root_hash import root_hashes

if TYPE_CHECKING:
    from ._root_hash import RootHash
    from collections.abc import Callable, Iterator, Mapping, Sequence

_FAR = (1 << 63) - 1
"""End of a range up to the end of the file."""


class ErofsFile(BufferedFile):
    """File from `ErofsFileSystem.open`: an `io.BufferedReader` with the attributes of fsspec's
    files."""

    def __init__(self, fs: ErofsFileSystem, path: str, buffer_size: int | None = None) -> None:
        raw = File(fs.image, path)
        # A file that fits is read by one call.
        super().__init__(raw, buffer_size or min(max(raw.size, 4 << 10), 128 << 10))
        self.fs = fs
        """Filesystem of the file."""
        self.path = path
        """Path, without the protocol."""
        self.blocksize = buffer_size
        """Length of the buffer in bytes, as given; None for the default."""

    @property
    def details(self) -> dict[str, Any]:
        """Metadata, as from `info`."""
        return self.fs.info(self.path)

    @property
    def full_name(self) -> str:
        """Path with the protocol."""
        return f"erofs://{self.path}"

    def __reduce__(self) -> tuple[object, ...]:
        return _file_at, (self.fs, self.path, self.blocksize, self.tell())


def _file_at(fs: ErofsFileSystem, path: str, buffer_size: int | None, position: int) -> ErofsFile:
    file = ErofsFile(fs, path, buffer_size)
    file.seek(position)
    return file


class ErofsFileSystem(AbstractFileSystem):
    """Filesystem of the files of an image.

    `fo` is the image: a path, a URL, or a binary file object. `target_protocol` and
    `target_options` are those of the filesystem with the image; in chained URLs
    (`erofs://a/b::s3://bucket/x.erofs`) fsspec fills all three. Other arguments are those of
    `kilnfs.open`.

    Objects are cheap: all objects for the same file share one open image in a process. They can be
    pickled (unless made from a file object), and used in forked children. A pickle raises `OSError`
    (ESTALE) when it is loaded if the file has changed. """

    protocol = "erofs"
    root_marker = ""
    cachable = True

    def __init__(
        self,
        fo: str | os.PathLike[str] | BinaryIO = "",
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        *,
        offset: int = 0,
        devices: Sequence[str | bytes] = (),
        cache_bytes: int = 6 << 20,
        verify_checksum: bool = True,
        mmap: bool = False,
        retries: int = RETRIES,
        verify: bool = False,
        root_hash: RootHash | None = None,
        hash_tree: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(fo, str) and not fo:
            raise ValueError(
                "the image is missing: use ErofsFileSystem(fo=PATH or URL), or a chained URL, "
                "erofs://path::file:///image.erofs"
            )
        options = {
            "offset": offset,
            "devices": [os.fsencode(device) for device in devices],
            "cache_bytes": cache_bytes,
            "verify_checksum": verify_checksum,
            "mmap": mmap,
            "verify": verify,
            "root_hash": root_hashes(root_hash),
            "hash_tree": [] if hash_tree is None else [os.fsencode(os.path.abspath(hash_tree))],
        }
        self._opened = opened(fo, target_protocol, target_options, options, retries)
        self.image = self._opened.image
        """Open image, shared by all objects for the same file."""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    @property
    def fsid(self) -> str:
        """Identifier of the filesystem, the same for equal images."""
        return f"erofs-{self.image.uuid.hex()}"

    def __reduce__(self) -> tuple[object, ...]:
        target = self._opened.target
        if target is None:
            raise TypeError(
                "a filesystem that was made from a file object cannot be pickled; make it from a path or URL"
            )
        args, options = list(self.storage_args), dict(self.storage_options)
        # The other process may have another working directory.
        fo = os.fspath(args[0] if args else options["fo"])
        if target.protocol == "file" and "://" not in fo and not os.path.isabs(fo):
            options["fo"] = target.path
            options.update(zip(("target_protocol", "target_options"), args[1:], strict=False))
            args = []
        return _reopened, (type(self), args, options, self._opened.identity)

    # names

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Returns names, or dictionaries as from `info`, of the files in a directory, sorted by
        name. Symbolic links have type "link"."""
        path = self._strip_protocol(path)
        nid = self.image._lookup(path, True)
        if not stat.S_ISDIR(self.image._stat(nid, True)[0][0]):
            return [self.info(path) if detail else path]
        entries = sorted((joined(path, decode(name)), nid) for name, nid, _ in self.image._listdir(nid))
        return [info_of(self.image, name, nid) if detail else name for name, nid in entries]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Returns name, size (bytes), type ("file", "directory" or "other"), mode, uid, gid, mtime
        (seconds), nlink, ino, islink, and the destination of a symbolic link. Links are
        followed."""
        return followed_info_of(self.image, self._strip_protocol(path))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Returns true if a path leads to a file of any type. A damaged image raises its error."""
        return self._mode(path) is not None

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """Returns the same as `exists`, but true for broken symbolic links."""
        try:
            self.image._lookup(self._strip_protocol(path), False)
        except OSError as error:
            if is_absence(error):
                return False
            raise
        return True

    def isfile(self, path: str) -> bool:
        """Returns true if a path leads to a regular file."""
        mode = self._mode(path)
        return mode is not None and stat.S_ISREG(mode)

    def isdir(self, path: str) -> bool:
        """Returns true if a path leads to a directory."""
        mode = self._mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def _mode(self, path: str) -> int | None:
        try:
            return self.image._stat(self._strip_protocol(path), True)[0][0]
        except OSError as error:
            if is_absence(error):
                return None
            raise

    @overload
    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: Literal[False] = False,
        **kwargs: Any,
    ) -> list[str]: ...
    @overload
    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, *, detail: Literal[True], **kwargs: Any
    ) -> dict[str, dict[str, Any]]: ...
    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> list[str] | dict[str, Any]:
        """Returns all files below a directory, sorted by path. Costs one call for each directory,
        and one for all sizes at the first access."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        mode = self._mode(path)
        if mode is None:
            return {} if detail else []
        if not stat.S_ISDIR(mode):
            return {path: self.info(path)} if detail else [path]
        found: dict[str, Any] = {path: self.info(path)} if withdirs and path else {}
        sizes = Sizes(self.image, path) if maxdepth is None else None
        for _, _, entries in levels(self.image, path, maxdepth):
            for name, nid, kind in entries:
                if withdirs or not stat.S_ISDIR(kind):
                    found[name] = FoundInfo(self.image, name, nid, kind, sizes) if detail else None
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Literal["omit", "raise"] | Callable[[OSError], object] = "omit",
        **kwargs: Any,
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yields path, directories and files, as `os.walk`; with `detail=True` dictionaries of
        `info` by name. Links are among the files."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        return walk(self.image, self._strip_protocol(path), maxdepth, topdown, on_error, bool(kwargs.get("detail")))

    # contents

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> ErofsFile:
        if mode != "rb":
            self._read_only(path)
        return ErofsFile(self, self._strip_protocol(path), block_size)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Returns the bytes of a file from `start` to `end`; negative limits count from its end."""
        path = self._strip_protocol(path)
        start, end = self._range(path, start, end)
        return self.image.read(path, start, end)

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | list[int | None] | None,
        ends: int | list[int | None] | None,
        max_gap: int | None = None,
        on_error: Literal["return", "raise"] = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Returns a range of each file, read by one call in stored order. `max_gap` is ignored:
        neighbours in the image are fetched together."""
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        first = starts if isinstance(starts, list) else [starts] * len(paths)
        last = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(first) == len(last) == len(paths):
            raise ValueError(f"{len(paths)} paths, {len(first)} starts, {len(last)} ends")
        names = [self._strip_protocol(path) for path in paths]
        out: list[Any] = [None] * len(names)
        wanted: list[int] = []
        ranges: list[tuple[int, int]] = []
        for i, name in enumerate(names):
            try:
                ranges.append(self._range(name, first[i], last[i]))
                wanted.append(i)
            except OSError as error:
                out[i] = error
        batch = self.image.read_many([names[i] for i in wanted], ranges=ranges, on_error="return")
        errors = batch.errors
        for nth, i in enumerate(wanted):
            out[i] = errors[nth] if nth in errors else batch.tobytes(nth)
        if on_error != "return":
            for answer in out:
                if isinstance(answer, OSError):
                    raise answer
        return out

    def cat(
        self,
        path: str | list[str],
        recursive: bool = False,
        on_error: Literal["raise", "omit", "return"] = "raise",
        **kwargs: Any,
    ) -> bytes | dict[str, Any]:
        """Returns the bytes of a file; for several files, or all below directories (`recursive`), a
        dictionary by path, read by one call."""
        paths = self.expand_path(path)
        if isinstance(path, str) and paths == [self._strip_protocol(path)] and not (recursive and self.isdir(path)):
            return self.cat_file(paths[0], **kwargs)
        if recursive:
            found: dict[str, dict[str, Any]] = {}
            for top in paths:
                found.update(self.find(top, detail=True))
            types = ((name, found[name]["type"]) for name in sorted(found))
            paths = [name for name, kind in types if kind == "file" or (kind == "link" and not self.isdir(name))]
        starts, ends = kwargs.get("start"), kwargs.get("end")
        answers = self.cat_ranges(paths, starts, ends, on_error="raise" if on_error == "raise" else "return")
        both = zip(paths, answers, strict=True)
        return {name: answer for name, answer in both if on_error == "return" or not isinstance(answer, OSError)}

    def _range(self, path: str, start: int | None, end: int | None) -> tuple[int, int]:
        """Returns first byte and end, as for slices."""
        start, end = start or 0, _FAR if end is None else end
        if start < 0 or end < 0:
            size = self.size(path)
            start = max(0, size + start) if start < 0 else start
            end = size + end if end < 0 else end
        return start, max(start, end)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copies files, or with `recursive` directories, to local paths, by the rules of fsspec."""
        rpath, lpath = self._beside_root(rpath, lpath, recursive, maxdepth)
        options = kwargs if callback is None else {**kwargs, "callback": callback}
        super().get(rpath, lpath, recursive=recursive, maxdepth=maxdepth, **options)

    def _beside_root(self, rpath: Any, lpath: Any, recursive: bool, maxdepth: int | None) -> tuple[Any, Any]:
        """Returns arguments with which fsspec copies names of the root directory like those of
        other directories.

        fsspec finds no parent in such a name: to a directory `lpath`, it would copy "a" as `lpath`,
        but "b/a" as `lpath`/a. """
        name = self._strip_protocol(rpath) if isinstance(rpath, str) and isinstance(lpath, str) else ""
        if not name or "/" in name:
            return rpath, lpath
        if has_magic(name):
            found = self.expand_path(name, recursive=recursive, maxdepth=maxdepth)
            found = [path for path in found if recursive or not self.isdir(path)]
            if len(found) == 1:
                return found[0] + "/", os.path.join(lpath, found[0])
        elif (lpath.endswith("/") or os.path.isdir(lpath)) and not rpath.endswith("/"):
            return name + "/", os.path.join(lpath, name)
        return rpath, lpath

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **kwargs: Any) -> None:
        """Copies a file to a local path, where it appears when it is complete, or to an open
        file."""
        if outfile is None and isfilelike(lpath):
            outfile = lpath
        if outfile is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self._open(rpath) as source:
            if callback is not None:
                callback.set_size(source.size)
            if outfile is not None:
                self._copy(source, outfile, callback)
            else:
                with appearing(lpath) as file:
                    self._copy(source, file, callback)

    def _copy(self, source: ErofsFile, target: Any, callback: Any) -> None:
        while data := source.read(self.blocksize):
            target.write(data)
            if callback is not None:
                callback.relative_update(len(data))

    # about files

    def size(self, path: str) -> int:
        """Returns the length of a file in bytes; 0 for a directory."""
        size: int = self.info(path)["size"]
        return size

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Returns the length of each file in bytes."""
        return [self.size(path) for path in paths]

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> int | dict[str, int]:
        """Returns the total length in bytes of all files below a directory, or without `total` that
        of each."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    def modified(self, path: str) -> datetime:
        """Returns the time of modification."""
        nanoseconds = self.image._stat(self._strip_protocol(path), True)[1]["st_mtime_ns"]
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)

    def created(self, path: str) -> datetime:
        """Returns the time of modification: EROFS has no other."""
        return self.modified(path)

    def checksum(self, path: str) -> int:
        """Returns a number that differs if the contents may differ: in another build of the image,
        or at another time of modification."""
        return int(self.ukey(path), 16)

    def ukey(self, path: str) -> str:
        """Returns the same as `checksum` as text; equal in all processes."""
        path = self._strip_protocol(path)
        numbers, more = self.image._stat(path, True)
        target = self._opened.target
        where = self.image.name if target is None else (target.protocol, target.path)
        return tokenize(where, self._opened.identity, path, numbers[1], numbers[6], more["st_mtime_ns"])

    # methods that write

    def _read_only(self, path: Any = "", *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `OSError` (EROFS), as images are read-only."""
        raise read_only(path if isinstance(path, (str, bytes)) else str(path), self.image.name)

    mkdir = makedirs = mkdirs = makedir = rmdir = rm = rm_file = _rm = delete = touch = _read_only
    pipe = pipe_file = write_text = write_bytes = put_file = _read_only
    cp_file = copy = cp = mv = move = rename = _read_only

    def put(self, lpath: Any, rpath: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `OSError` (EROFS)."""
        self._read_only(rpath)

    upload = put


def _reopened(
    cls: type[ErofsFileSystem], args: list[Any], options: dict[str, Any], identity: tuple[object, ...]
) -> ErofsFileSystem:
    fs = cls(*args, **options)
    if fs._opened.identity != identity:
        now = fs._opened.identity
        raise OSError(
            errno.ESTALE, f"the image has changed since it was pickled: {identity} then, {now} now", fs.image.name
        )
    return fs
