"""Options of packing: `kilnfs.PackOptions`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Literal, Self, TypeAlias

    HostPath: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
    TreePath: TypeAlias = str | bytes
    Preset: TypeAlias = Literal["plain", "fast", "balanced", "archive", "dataset", "backup"]
    Hints: TypeAlias = Mapping[TreePath, str | None] | Iterable[tuple[TreePath, str | None]]


@dataclass(frozen=True)
class PackOptions:
    """Options of `kilnfs.pack`, `kilnfs.estimate` and `Builder.write`, which take each of them as a
    keyword, too.

    Raises ValueError or TypeError that names the option.

    >>> options = kilnfs.PackOptions(compress="zstd,15", exclude=["*.tmp"])
    >>> options.preset, options.compress
    ('dataset', 'zstd,15')
    """

    preset: Preset = "dataset"
    """`"dataset"` (zstd,3; each file by itself), `"plain"` (uncompressed), `"fast"`, `"balanced"`,
    `"archive"`, or `"backup"` (as `"balanced"`, with digests of contents by which a restore
    verifies)."""
    compress: str | None = None
    """Compression method and level: `"none"`, `"lz4"`, `"lz4hc,12"`, `"zstd,9"`, `"deflate"`,
    `"lzma,6"`. None: that of the preset."""
    cluster_size: int | None = None
    """Largest length in bytes of data that is compressed as one unit. None: that of the preset."""
    kernel: str | None = None
    """Oldest Linux that must be able to mount the image, for example `"6.6"`."""
    order: Literal["path", "shuffle"] | Iterable[TreePath] | None = None
    """Order of stored data; names are always sorted. `"path"`; `"shuffle"`, by `seed`, so that any
    run of stored data is a random sample; or paths whose data come first. None: `"shuffle"` if the
    preset stores each file by itself (`dataset`, `plain`, or `compress="none"`), else `"path"`,
    because small files that are packed together compress better beside their neighbours."""
    seed: int = 0
    """Seed of the order `"shuffle"`."""
    exclude: Iterable[TreePath] = ()
    """Globs of files to leave out, as in .gitignore."""
    hints: Hints | None = None
    """Methods for some files, by glob: `{"*.jpg": "none", "*.txt": "zstd,9:64k"}`."""
    owner: tuple[int, int] | None = None
    """Owner (uid, gid) of all files. None: as in the source."""
    mtime: int | str | None = None
    """Modification time of all files in seconds since 1970, or `"clamp:SECONDS"` for the latest
    one. None: as in the source."""
    strict_xattrs: bool = False
    """True to raise an error for an extended attribute that EROFS cannot store (`com.apple.…`), or
    an entry of an ACL with a name but no id. False: they are left out, and the result counts
    them."""
    concatenated: bool = False
    """True to read concatenated tar archives as one. False: an archive ends at its end mark. Not
    for `Builder.write`: see `Builder.add_tree`."""
    dedupe: Literal["parts", "files", "off"] | None = None
    """Equal data that is stored only once: whole `"files"`, `"parts"` of files, or none (`"off"`).
    None: that of the preset."""
    inline: bool = True
    """False to store ends of uncompressed files in blocks of their own instead of beside inodes.
    The image grows by at most half a block for each such file; `views` of a mapped image copy
    nothing, and a remote `index()` does not fetch these ends."""
    compress_metadata: bool | None = None
    """True to compress inodes and large directories, which needs Linux 6.17. None: if `kernel` is
    that or later, and files are compressed, except with the preset `"dataset"`."""
    content_digests: bool | Literal["sha256", "fsverity-sha256", "fsverity-sha512"] = False
    """Digest of each file's contents to store, so that `check()` and `open(verify=True)` find
    damage in uncompressed files, which nothing else shows. True: `"sha256"`. The digests of
    `"fsverity-sha256"` and `"fsverity-sha512"` are those that Linux measures of files with
    fs-verity."""
    index: bool | Mapping[str, Any] = False
    """Index that is written behind the complete image, in the same file: 16 bytes per file, and the
    paths of directories. True: the index that `kilnfs.Samples` uses; or a dictionary of arguments
    of `Image.index` (`root`, `glob`, `extensions`, `group` as a depth). The same index of a remote
    image then costs one request. Drivers and other programs see an image with bytes behind its
    end."""
    threads: int | None = None
    """Number of threads. None: the number of processors."""
    readers: int | None = None
    """Number of threads that read the source. None: 8. More of them keep a disk or a network busy
    that answers in parallel. The image does not depend on it."""
    overwrite: bool = False
    """True to replace an existing image."""
    dry_run: bool = False
    """True to do everything, but keep no image."""

    def __post_init__(self) -> None:
        if self.index is not False:
            from ._pack_index import index_arguments

            index_arguments(self.index)
        if isinstance(self.exclude, (str, bytes)):
            raise TypeError(f"exclude={self.exclude!r}: use a list of globs")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed={self.seed}: use 0 to 2**64 - 1")
        if self.cluster_size is not None and self.cluster_size < 0:
            raise ValueError(f"cluster_size={self.cluster_size}: use a number of bytes")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads={self.threads}: use 1 or more")
        if self.readers is not None and self.readers < 1:
            raise ValueError(f"readers={self.readers}: use 1 or more")
        if isinstance(self.order, bytes):
            raise TypeError(f"order={self.order!r}: use a list of paths")
        # Iterables are consumed once; the native module reads the attributes as they are here.
        hints = self.hints.items() if isinstance(self.hints, Mapping) else self.hints or ()
        for name, value in (("exclude", tuple(self.exclude)), ("hints", tuple(hints))):
            object.__setattr__(self, name, value)
        if self.owner is not None:
            object.__setattr__(self, "owner", (self.owner[0], self.owner[1]))
        if self.order is not None and not isinstance(self.order, str):
            object.__setattr__(self, "order", tuple(self.order))

    @classmethod
    def of(cls, options: PackOptions | None, keywords: Mapping[str, Any]) -> Self:
        """Returns options with some of them replaced by keywords."""
        return cls(**keywords) if options is None else replace(options, **keywords)  # type: ignore[return-value]


def tree_path(path: TreePath) -> bytes:
    """Returns a path of the image as bytes, in any locale."""
    if isinstance(path, bytes):
        return path
    if isinstance(path, str):
        return path.encode("utf-8", "surrogateescape")
    raise TypeError(f"a path in an image is str or bytes, not {type(path).__name__}")
