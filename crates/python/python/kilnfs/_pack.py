"""Packing: `pack`, `estimate` and `Builder`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import IO, Literal, Self, TypeAlias

    from typing_extensions import Buffer

    HostPath: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
    TreePath: TypeAlias = str | bytes
    Sources: TypeAlias = HostPath | Sequence[HostPath | tuple[HostPath, TreePath]]
    Preset: TypeAlias = Literal["plain", "fast", "balanced", "archive", "dataset", "backup"]
    Hints: TypeAlias = Mapping[str, str | None] | Iterable[tuple[str, str | None]]
    Progress: TypeAlias = Callable[[int, int], object]

PRESETS: tuple[Preset, ...] = ("plain", "fast", "balanced", "archive", "dataset")


@dataclass(frozen=True, slots=True)
class PackResult:
    """What a pack has made. Equal to itself after pickling."""

    files: int
    """Regular files, hard links counted once."""
    bytes: int
    """Bytes in them."""
    image_bytes: int
    """Size of the image, and of the index behind it."""
    seconds: float
    """Wall time of all phases: scan, plan, pack, sync."""
    cpu_seconds: float
    """User and system time of the process meanwhile."""
    peak_bytes: int
    """The most memory that the process has had resident so far."""
    uuid: str
    """The image's UUID, which comes from its contents, in hexadecimal groups."""
    min_kernel: str
    """The oldest Linux that mounts the image."""
    order: str
    """In which order data are stored: `"path"`, `"shuffle"` or `"list"`."""
    warnings: tuple[str, ...] = ()
    """Likely mistakes, and what is to be known of the source: paths of the order and hints that are about nothing in
    it, bytes behind the end mark of a tar archive, attributes that were left out.
    """
    left_out_xattrs: dict[str, int] = field(default_factory=dict, hash=False)
    """Extended attributes, and entries of ACLs, that EROFS cannot hold and that were left out: how many of each name."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an image would be. Each `…_error` is half the length of an interval that holds the truth in 95 of 100
    cases.
    """

    preset: str
    """The preset that it is about."""
    refused: str | None = None
    """Why this preset cannot be had together with the other options; the figures are 0 then."""
    bytes: int = 0
    """Bytes in the files of the source."""
    image_bytes: int = 0
    """Size of the image."""
    image_bytes_error: int = 0
    """Its error, in bytes."""
    seconds: float = 0.0
    """Wall time of packing."""
    seconds_error: float = 0.0
    """Its error, in seconds."""
    cpu_seconds: float = 0.0
    """CPU time of packing."""
    cpu_seconds_error: float = 0.0
    """Its error, in seconds."""
    min_kernel: str = ""
    """The oldest Linux that mounts the image."""
    sampled_bytes: int = 0
    """Bytes that were packed for the estimate. Where it is all that is to be packed, sizes are exact."""


def pack(
    source: Sources,
    image: HostPath,
    *,
    preset: Preset = "dataset",
    compress: str | None = None,
    unit: int | None = None,
    kernel: str | None = None,
    order: Literal["path", "shuffle"] | Iterable[TreePath] | None = None,
    seed: int = 0,
    exclude: Iterable[str | bytes] = (),
    hints: Hints | None = None,
    owner: tuple[int, int] | None = None,
    mtime: int | str | None = None,
    strict_xattrs: bool = False,
    concatenated: bool = False,
    dedupe: Literal["parts", "files", "off"] | None = None,
    inline: bool = True,
    content_digests: bool = False,
    index: bool | Mapping[str, Any] = False,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> PackResult:
    """Pack a directory, an archive (tar, zip, cpio; compressed or not) or an image (EROFS, SquashFS, ext4, cramfs, of
    containers).

    `image` appears when it is complete, or not at all. The same input and options give the same bytes, whatever the
    machine and the number of threads.

    * `source`: a path, or several, of which later ones lie over earlier ones; `(path, directory)` puts one below that
      directory.
    * `preset`: `"dataset"` (zstd,3; each file by itself), `"plain"` (not compressed), `"fast"`, `"balanced"`,
      `"archive"`; `"backup"`: as `"balanced"`, with digests of contents by which a restore verifies.
    * `compress`: `"none"`, or a method with a level, `"lz4"`, `"lz4hc,12"`, `"zstd,9"`, `"deflate"`, `"lzma,6"`;
      `unit`: what is compressed as one piece at most, in bytes.
    * `kernel`: `"6.6"`: use only what that Linux mounts.
    * `order`: in which order data are stored; names are sorted always. `"path"`; `"shuffle"`, by `seed`, so that any
      run of stored data is a random sample; or paths whose data come first. The default is `"shuffle"` where the
      preset stores each file by itself (`dataset`, `plain`, or `compress="none"`), and else `"path"`, as packing
      small files together wants neighbours.
    * `exclude`: globs as in .gitignore. `hints`: how some files are compressed, `{"*.jpg": "none", "*.txt":
      "zstd,9:64k"}`.
    * `owner`: (uid, gid) of all. `mtime`: seconds since 1970 for all, or `"clamp:SECONDS"`: none is later.
    * `strict_xattrs`: raise where an extended attribute is one that EROFS cannot hold (`com.apple.…`), or an entry of
      an ACL has a name without an id. Else they are left out, and the result counts them.
    * `concatenated`: read tar archives that lie one behind the other as one; else an archive ends at its end mark.
    * `dedupe`: `"files"` or `"parts"` of equal contents are stored once, or `"off"`.
    * `inline=False`: ends of files that are not compressed are blocks of their own, not bytes beside inodes. The image
      is larger, by half a block for each such file at most; `views` of a mapped image copy nothing, and a remote
      `index()` does not fetch these ends.
    * `content_digests`: the SHA-256 of each file's contents is stored, so that `check()` and `open(verify=True)` find
      damage in files that are stored as they are, which nothing else shows. Files are read once more.
    * `index`: an index is written behind the image once that is complete, in the same file: 16 bytes a file, and the
      paths of directories. True: the one that `kilnfs.Samples` asks for; or a dictionary of arguments of `Image.index`
      (`root`, `glob`, `extensions`, `group` as a depth). Who asks for the same index of an image behind a URL gets it
      by one request. Drivers and other programs see an image with bytes behind its end.
    * `progress(done, total)`: bytes, called on this thread about 20 times a second; an exception in it ends the work,
      as Ctrl-C does.
    * `dry_run`: do everything, but keep no image.

    Raises `OSError` (`FileExistsError` where `image` is there without `overwrite`) and, for options, `ValueError`.

    >>> import os, tempfile
    >>> tmp = tempfile.TemporaryDirectory()
    >>> with open(os.path.join(tmp.name, "a.txt"), "w") as file:
    ...     _ = file.write("text" * 100)
    >>> result = pack(tmp.name, os.path.join(tmp.name, "..", os.path.basename(tmp.name) + ".erofs"))
    >>> result.files, result.bytes, result.order
    (1, 400, 'shuffle')
    >>> os.unlink(tmp.name + ".erofs"); tmp.cleanup()
    """
    options = pack_options(
        preset=preset, compress=compress, unit=unit, kernel=kernel, order=order, seed=seed, exclude=exclude,
        hints=hints, owner=owner, mtime=mtime, strict_xattrs=strict_xattrs, concatenated=concatenated, dedupe=dedupe,
        inline=inline, content_digests=content_digests, index=index, threads=threads, overwrite=overwrite,
        dry_run=dry_run,
    )  # fmt: skip
    packed = _native.pack(_sources(source), _local(image, "image"), options, progress)
    return _result(packed, image, False if dry_run else index)


def estimate(
    source: Sources,
    *,
    presets: Iterable[Preset] = PRESETS,
    compress: str | None = None,
    unit: int | None = None,
    kernel: str | None = None,
    exclude: Iterable[str | bytes] = (),
    hints: Hints | None = None,
    dedupe: Literal["parts", "files", "off"] | None = None,
    inline: bool = True,
    threads: int | None = None,
) -> list[Estimate]:
    """What images of `source` would be, one estimate for each preset: a sample of the data is packed, and nothing is
    written.

    The other arguments are those of `pack`.
    """
    names = list(presets)
    options = pack_options(
        compress=compress,
        unit=unit,
        kernel=kernel,
        order="path",
        exclude=exclude,
        hints=hints,
        dedupe=dedupe,
        inline=inline,
        threads=threads,
    )
    return [Estimate(**figures) for figures in _native.estimate(_sources(source), names, options)]


class Builder:
    """A tree in the making, and then its image.

    What comes later lies over what came earlier, as members of an archive do: a directory over a directory keeps what
    is in it, and anything else replaces what has the path. Directories that only paths tell of have the mode 0o755.
    Owners are root and times the beginning of 1970 unless given, so that the same calls make the same bytes.

    Contents that are given as bytes wait in a nameless file in `spool_dir` (`$TMPDIR`, else /var/tmp): memory grows
    by some 100 bytes a file, whatever its length. Files and trees of this system are read when the image is written;
    one that changed meanwhile is an error. However the work ends, nothing is left of it but a complete image.

    >>> import os, tempfile
    >>> tmp = tempfile.TemporaryDirectory()
    >>> with Builder() as tree:
    ...     tree.add_bytes(b"text", "docs/a.txt")
    ...     tree.symlink("a.txt", "docs/b.txt")
    ...     tree.add_many((f"train/{i}.txt", b"%d" % i) for i in range(100))
    ...     result = tree.write(os.path.join(tmp.name, "image.erofs"))
    100
    >>> result.files
    101
    >>> tmp.cleanup()
    """

    def __init__(self, *, spool_dir: HostPath | None = None) -> None:
        self._native = _native.Builder(None if spool_dir is None else os.fsencode(spool_dir))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget the tree. Further calls raise ValueError."""
        self._native.close()

    def add_bytes(
        self,
        data: Buffer,
        at: TreePath,
        *,
        mode: int = 0o644,
        mtime: float | None = None,
        owner: tuple[int, int] = (0, 0),
    ) -> None:
        """A regular file that holds `data`: bytes, or any object with the buffer protocol (its items as they lie
        in memory).
        """
        self._native.add_bytes(tree_path(at), _bytes(data), _meta(mode, mtime, owner))

    def add_many(
        self,
        files: Iterable[tuple[TreePath, Buffer]],
        *,
        mode: int = 0o644,
        mtime: float | None = None,
        owner: tuple[int, int] = (0, 0),
    ) -> int:
        """Add files, (path, contents) each, and return how many there were. Where the iterable raises, those
        before are there.
        """
        pairs = ((tree_path(at), _bytes(data)) for at, data in files)
        return self._native.add_many(pairs, _meta(mode, mtime, owner))

    def add_file(self, path: HostPath, at: TreePath) -> None:
        """The file at `path` on this system, symbolic links followed, with its owner, mode, times and attributes."""
        self._native.add_file(os.fsencode(path), tree_path(at))

    def add_tree(self, source: HostPath, at: TreePath = "/", *, concatenated: bool = False) -> None:
        """A directory, or any other source that `pack` takes, laid over what is below `at`."""
        self._native.add_tree(os.fsencode(source), tree_path(at), concatenated)

    def from_tar(self, fileobj: IO[bytes], at: TreePath = "/", *, concatenated: bool = False) -> None:
        """A tar archive (compressed or not, or another archive) from an object with `read(size)`, laid over what is
        below `at`. With `concatenated`, archives that lie one behind the other are read as one.

        It is read to its end, and kept in a nameless file until the image is written.
        """
        name = getattr(fileobj, "name", None)
        label = os.fsencode(name) if isinstance(name, (str, bytes)) else b"<archive>"
        self._native.add_archive(fileobj, tree_path(at), label, concatenated)

    def mkdir(
        self, at: TreePath, *, mode: int = 0o755, mtime: float | None = None, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """A directory, or other metadata for the one that is there. Parents that are missing are made."""
        self._native.mkdir(tree_path(at), _meta(mode, mtime, owner))

    def symlink(
        self, target: TreePath, at: TreePath, *, mtime: float | None = None, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """A symbolic link at `at` to `target`."""
        self._native.symlink(tree_path(target), tree_path(at), _meta(0o777, mtime, owner))

    def link(self, existing: TreePath, at: TreePath) -> None:
        """A further name, `at`, of the file `existing` of this tree."""
        self._native.link(tree_path(existing), tree_path(at))

    def setxattr(self, at: TreePath, name: str | bytes, value: Buffer) -> None:
        """Give what is at `at` an extended attribute, `"user.label"` for example.

        Raises OSError (EOPNOTSUPP) for one that EROFS cannot hold: those that sources have are left out, see `pack`.
        """
        self._native.setxattr(tree_path(at), tree_path(name), _bytes(value))

    def write(
        self,
        image: HostPath,
        *,
        preset: Preset = "dataset",
        compress: str | None = None,
        unit: int | None = None,
        kernel: str | None = None,
        order: Literal["path", "shuffle"] | Iterable[TreePath] | None = None,
        seed: int = 0,
        exclude: Iterable[str | bytes] = (),
        hints: Hints | None = None,
        owner: tuple[int, int] | None = None,
        mtime: int | str | None = None,
        strict_xattrs: bool = False,
        dedupe: Literal["parts", "files", "off"] | None = None,
        inline: bool = True,
        content_digests: bool = False,
        index: bool | Mapping[str, Any] = False,
        threads: int | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
        dry_run: bool = False,
    ) -> PackResult:
        """Write the image, with the arguments of `pack`. The tree is gone then.

        Where nothing was read yet (`image` exists, options contradict each other) the tree stays, and `write` may be
        called again.
        """
        options = pack_options(
            preset=preset, compress=compress, unit=unit, kernel=kernel, order=order, seed=seed, exclude=exclude,
            hints=hints, owner=owner, mtime=mtime, strict_xattrs=strict_xattrs, dedupe=dedupe, inline=inline,
            content_digests=content_digests, index=index, threads=threads, overwrite=overwrite, dry_run=dry_run,
        )  # fmt: skip
        written = self._native.write(_local(image, "image"), options, progress)
        return _result(written, image, False if dry_run else index)


def pack_options(
    *,
    preset: str = "dataset",
    compress: str | None = None,
    unit: int | None = None,
    kernel: str | None = None,
    order: str | Iterable[TreePath] | None = None,
    seed: int = 0,
    exclude: Iterable[str | bytes] = (),
    only: bytes | None = None,
    hints: Hints | None = None,
    owner: tuple[int, int] | None = None,
    mtime: int | str | None = None,
    strict_xattrs: bool = False,
    concatenated: bool = False,
    dedupe: str | None = None,
    inline: bool = True,
    content_digests: bool = False,
    index: bool | Mapping[str, Any] = False,
    threads: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> _native.PackOptions:
    """The options as the native module takes them. `only`: the only paths that are packed, with a zero byte behind
    each. `index`, which is written behind the image later, is looked at only.
    """
    if index is not False:
        from ._image import index_arguments

        index_arguments(index)
    if isinstance(exclude, (str, bytes)):
        raise TypeError(f"exclude={exclude!r}: a list of globs is wanted, not one")
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed={seed}: use 0 to 2**64 - 1")
    if unit is not None and unit < 0:
        raise ValueError(f"unit={unit}: use a count of bytes")
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: use 1 or more")
    ways: Iterable[tuple[str, str | None]] = hints.items() if isinstance(hints, Mapping) else hints or ()
    kind: str | None
    listed = b""
    if order is None or isinstance(order, str):
        kind = order
    else:
        # A zero byte behind each path: it may hold any other.
        kind, listed = "list", b"".join(tree_path(path) + b"\0" for path in order)
    if order == "list":
        raise ValueError("order='list': give the list of paths itself")
    return {
        "preset": preset,
        "compress": compress,
        "unit": unit,
        "kernel": kernel,
        "order": kind,
        "order_list": listed,
        "seed": seed,
        "exclude": [tree_path(glob) for glob in exclude],
        "only": only,
        "hints": [(tree_path(glob), "none" if way is None else way) for glob, way in ways],
        "owner": None if owner is None else (owner[0], owner[1]),
        "mtime": None if mtime is None else str(mtime),
        "strict_xattrs": strict_xattrs,
        "concatenated": concatenated,
        "dedupe": dedupe,
        "inline": inline,
        "content_digests": content_digests,
        "threads": threads,
        "overwrite": overwrite,
        "dry_run": dry_run,
    }


def tree_path(path: TreePath) -> bytes:
    """A path of the image as its bytes, whatever the locale is."""
    if isinstance(path, bytes):
        return path
    if isinstance(path, str):
        return path.encode("utf-8", "surrogateescape")
    raise TypeError(f"a path in an image is str or bytes, not {type(path).__name__}")


def _sources(source: Sources) -> list[tuple[bytes, bytes]]:
    if isinstance(source, (str, bytes, os.PathLike)):
        return [(_local(source, "source"), b"")]
    parts = [
        (_local(one[0], "source"), tree_path(one[1])) if isinstance(one, tuple) else (_local(one, "source"), b"")
        for one in source
    ]
    if not parts:
        raise ValueError("source: name one at least")
    return parts


def _local(path: HostPath, argument: str) -> bytes:
    """A path of this system, and no URL."""
    raw = os.fsencode(path)
    scheme = raw.partition(b"://")[0]
    if b"://" in raw and scheme.isalnum():
        raise ValueError(
            f"{argument}={os.fsdecode(raw)!r}: a path of this system is needed, no URL: kilnfs.shards reads from URLs "
            "and writes to them"
        )
    return raw


def _bytes(data: Buffer) -> bytes:
    return data if type(data) is bytes else memoryview(data).tobytes()


def _meta(mode: int, mtime: float | None, owner: tuple[int, int]) -> tuple[int, int, int, int]:
    if not 0 <= mode <= 0o7777:
        raise ValueError(f"mode={mode:#o}: use permissions, 0 to 0o7777")
    uid, gid = owner
    if not (0 <= uid < 0xFFFFFFFF and 0 <= gid < 0xFFFFFFFF):
        raise ValueError(f"owner={owner}: ids are 0 to 4294967294")
    nanoseconds = 0 if mtime is None else mtime * 10**9 if isinstance(mtime, int) else int(mtime * 1e9)
    return mode, uid, gid, nanoseconds


def _result(figures: dict[str, Any], image: HostPath, index: bool | Mapping[str, Any]) -> PackResult:
    """Writes the index that was asked for behind the image, and returns the result of packing."""
    index_bytes = 0
    if index is not False:
        from ._image import store_index

        index_bytes = store_index(image, index)
    return PackResult(
        files=figures["files"],
        bytes=figures["bytes"],
        image_bytes=figures["image_bytes"] + index_bytes,
        seconds=figures["seconds"],
        cpu_seconds=figures["cpu_seconds"],
        peak_bytes=_peak_bytes(),
        uuid=_uuid(figures["uuid"]),
        min_kernel=figures["min_kernel"],
        order=figures["order"],
        warnings=tuple(figures["warnings"]),
        left_out_xattrs=figures["left_out_xattrs"],
    )


def _uuid(digits: bytes) -> str:
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _peak_bytes() -> int:
    import resource

    # Kibibytes on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
