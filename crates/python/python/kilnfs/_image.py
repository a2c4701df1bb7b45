"""`kilnfs.open` and the image that it gives."""

from __future__ import annotations

import errno
import os

from . import _native
from ._names import encode, failure, one_file
from ._retry import RETRIES
from ._verbs_zip import ZipVerbs

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, BinaryIO, Literal, Self, SupportsIndex, TypeGuard, overload

    from typing_extensions import Buffer

    from ._names import Name
    from ._path import Path
    from ._reports import Cost, Extent, ImageInfo
    from .shards import ShardedImage

    ImageSource = str | bytes | os.PathLike[str] | os.PathLike[bytes] | BinaryIO | Buffer
else:

    def overload(function):
        return function


class Image(ZipVerbs):
    """An open image. It has the methods of `zipfile.ZipFile`, of `os` for its paths, and makes paths as `pathlib` does;
    made by `open`.

    All methods may be called from any thread, and in a process that was forked. With `with`, or by `close`, it is
    closed; memory that was given out stays valid. An image that was opened by its path or URL can be pickled: the other
    side opens it again.
    """

    _options: dict[str, Any]
    _reopen_as: str | bytes | None
    _identity: tuple[int | str | bytes, bytes]
    _version: str | None
    """Version of the contents of a remote image: its ETag, say. None where nothing is known."""
    _source_cache: int | None
    """Bytes that the source keeps of what was read; None where the system does that."""

    def __new__(
        cls,
        image: ImageSource,
        *,
        offset: int = 0,
        devices: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]] = (),
        cache_bytes: int = 6 << 20,
        verify_checksum: bool = True,
        mmap: bool = False,
        retries: int = RETRIES,
        verify: bool = False,
        **storage_options: Any,
    ) -> Self:
        source, name, again = _recognise(image, retries, storage_options)
        options: dict[str, Any] = {
            "offset": offset,
            # Absolute, so that a worker with another working directory finds them.
            "devices": [os.path.abspath(os.fsencode(device)) for device in devices],
            "cache_bytes": cache_bytes,
            "verify_checksum": verify_checksum,
            "mmap": mmap,
            "verify": verify,
        }
        try:
            self = super().__new__(cls, source, name, **options)
        except OSError:
            if isinstance(source, bytes) and os.path.isdir(source):
                raise failure(errno.EISDIR, name, name) from None
            raise
        self._source_cache = getattr(source, "cache_length", None)
        self._reopen_as = again
        self._version = version_of(source)
        self._options = options | {"retries": retries} | storage_options
        # Of images in memory none is another.
        self._identity = (id(self) if again is None else again, self.uuid)
        return self

    def __enter__(self) -> Self:
        if self.closed:
            raise ValueError(f"the image {self.name!r} is closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<kilnfs.{type(self).__name__} {self.name!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Callable[..., Image], tuple[object, ...]]:
        if self._reopen_as is None:
            raise TypeError(
                f"the image {self.name!r} was opened from memory or a file object, which another process does not "
                "have: write it to a file and open its path, or open it in each process"
            )
        if self.closed:
            raise ValueError(f"the image {self.name!r} is closed")
        return _reopen, (type(self), self._reopen_as, self._options, self.uuid, self.source_length, self._version)

    @property
    def root(self) -> Path:
        """The root directory."""
        return self.path("/")

    def path(self, path: Name = "/") -> Path:
        """A path of the image, from its root.

        >>> image.path("cat/1.txt").read_bytes()
        b'meow\\n'
        """
        from ._names import as_text, refuse_foreign
        from ._path import Path

        refuse_foreign(path, self)
        return Path(self, "/", as_text(path))

    def __truediv__(self, name: Name) -> Path:
        if not (isinstance(name, (str, bytes)) or hasattr(type(name), "__kilnfs_path__")):
            return NotImplemented
        return self.path(name)

    @property
    def info(self) -> ImageInfo:
        """What the superblock says.

        >>> image.info.block_size
        4096
        """
        from ._reports import ImageInfo

        return ImageInfo.of(self._superblock())

    def index(
        self,
        root: Name = "/",
        *,
        glob: str | bytes | None = None,
        extensions: str | bytes | Sequence[str | bytes] | None = None,
        group: Literal["parent"] | int | Callable[[str], str] | None = None,
        threads: int | None = None,
    ) -> _native.Index:
        """The regular files below a directory as a table of 16 bytes a file, in path order; for `read_many` and for
        datasets.

        `glob` is matched with the path from `root`, `extensions` with the end of the name. `group` says what the class
        of a file is: the name of its directory ("parent"), the directory at a depth below `root` (1 for those in it),
        or what a function makes of its path.

        Costs a look at all metadata below `root`: of an image behind a URL they are fetched, with the ends of files
        that lie among them. An index that was packed with the image (`kilnfs.pack(index=…)`) and asked for by the same
        arguments is one request.

        >>> index = image.index(extensions=".txt", group="parent")
        >>> list(index), list(index.labels), index.classes
        (['about.txt', 'cat/1.txt', 'cat/2.txt', 'dog/1.txt'], [0, 1, 1, 2], ['', 'cat', 'dog'])
        """
        index = self._index(root, **_index_choice(glob, extensions, group), threads=threads)
        if group is None or isinstance(group, int):
            return index
        from ._labels import labelled

        return labelled(index, group)

    def extents(self, path: Name | None = None, *, nid: SupportsIndex | None = None) -> list[Extent]:
        """Where the contents of a file are stored, piece by piece.

        >>> [(extent.start, extent.length) for extent in image.extents("cat/1.txt")]
        [(0, 5)]
        """
        from ._reports import Extent

        return [Extent.of(extent) for extent in self._extents(one_file(path, nid))]

    def explain(
        self,
        path: Name | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        nid: SupportsIndex | None = None,
    ) -> Cost:
        """What reading a range of a file costs: bytes fetched, bytes decoded.

        >>> image.explain("cat/1.txt").wanted
        5
        """
        from ._reports import Cost

        return Cost.of(self._explain(one_file(path, nid), start, stop))


@overload
def open(
    image: Literal["manifest.json", b"manifest.json"],
    *,
    window: int = ...,
    absolute: bool = ...,
    cache_bytes: int = ...,
    verify_checksum: bool = ...,
    mmap: bool = ...,
    verify: bool = ...,
    **storage_options: Any,
) -> ShardedImage: ...
@overload
def open(
    image: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    window: int,
    absolute: bool = ...,
    cache_bytes: int = ...,
    verify_checksum: bool = ...,
    mmap: bool = ...,
    verify: bool = ...,
    **storage_options: Any,
) -> ShardedImage: ...
@overload
def open(
    image: ImageSource,
    *,
    offset: int = ...,
    devices: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]] = ...,
    cache_bytes: int = ...,
    verify_checksum: bool = ...,
    mmap: bool = ...,
    verify: bool = ...,
    **storage_options: Any,
) -> Image: ...
def open(
    image: ImageSource,
    *,
    offset: int = 0,
    devices: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]] = (),
    cache_bytes: int = 6 << 20,
    verify_checksum: bool = True,
    mmap: bool = False,
    retries: int = RETRIES,
    verify: bool = False,
    **storage_options: Any,
) -> Image:
    """Open an image, or the manifest of one that is divided into shards.

    `image` is the path of a file, a URL that fsspec knows (`https://…`, `s3://…`; `storage_options` are for it), a
    manifest of shards (`….json`, by path or URL), a binary file object, or the image itself in memory. `bytes` with a
    NUL in it are an image, others a path.

    `offset` is the first byte of the image in a larger file; `devices` are the paths of extra devices, in the order of
    its table. `cache_bytes` limits what is kept in memory, per process. `mmap=True` maps the file: faster, but if
    somebody shortens it or its disk fails, the process is killed by SIGBUS instead of getting an OSError.

    `retries` is how often a read of a URL is tried again where its error may pass: a lost or refused connection, a
    timeout, the answers 408, 425, 429, 500, 502, 503 and 504 of a web server. Pauses are 0.5, 1, 2, … s, 30 s at most,
    and as long as the server asks for.

    A remote image has to stay the same file while it is open. One that was replaced is an `OSError` (ESTALE): at once
    where the store takes a condition with each request, or names the version in each answer (web servers with ETags or
    times of modification, S3, Google Cloud Storage); else after 64 MiB or 60 s of reading. What was read in between
    cannot be recalled.

    `verify=True` compares the contents of each file that is read whole with their digest and raises CorruptImageError
    where they differ. Files without a digest and parts of files are not compared: images have digests that are packed
    so (`kilnfs.pack(content_digests=True)`), and `check().contents` says how far. It costs the hashing of what is read
    (SHA-256), and no second read.

    For type checkers "manifest.json" and calls with `window=` are a `kilnfs.shards.ShardedImage`; of a manifest by
    another name `kilnfs.shards.open` has that type.

    >>> image = kilnfs.open("train.erofs")
    >>> image.read("dog/1.txt")
    b'woof\\n'
    >>> image.close()
    """
    options: dict[str, Any] = {
        "offset": offset,
        "devices": devices,
        "cache_bytes": cache_bytes,
        "verify_checksum": verify_checksum,
        "mmap": mmap,
        "retries": retries,
        "verify": verify,
    }
    if _is_manifest(image):
        from .shards import open as open_shards

        # It has the methods of an image.
        return open_shards(image, **options, **storage_options)
    return Image(image, **options, **storage_options)


def _index_choice(glob: Any, extensions: Any, group: Any) -> dict[str, Any]:
    """Arguments of `Image.index` as the native side takes them."""
    if extensions is None:
        extensions = ()
    elif isinstance(extensions, (str, bytes)):
        extensions = (extensions,)
    return {
        "extensions": [encode(extension) for extension in extensions],
        "glob": None if glob is None else encode(glob),
        "depth": group if isinstance(group, int) else None,
    }


def index_arguments(choice: bool | Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Image.index` by which an index is packed; those that `Samples` gives if it is True."""
    if isinstance(choice, bool):
        return {"group": 1}
    arguments = dict(choice)
    unknown = arguments.keys() - {"root", "glob", "extensions", "group"}
    if unknown:
        raise TypeError(f"index: {min(unknown)!r}: use root, glob, extensions and group")
    group = arguments.get("group")
    if not (group is None or isinstance(group, int)):
        raise ValueError(f"index: group={group!r}: use a depth, or None")
    return arguments


def store_index(image: str | bytes | os.PathLike[str] | os.PathLike[bytes], choice: bool | Mapping[str, Any]) -> int:
    """Write an index behind an image, as `kilnfs.pack(index=…)` takes it. Returns its length in bytes."""
    arguments = index_arguments(choice)
    with Image(image) as opened:
        if choice is True and not opened.index(group=1).classes:
            # As `Samples` asks where there are no classes.
            arguments = {}
        root, *rest = (arguments.get(name) for name in ("root", "glob", "extensions", "group"))
        return opened._store_index(os.fsencode(image), "/" if root is None else root, **_index_choice(*rest))


def version_of(source: object) -> str | None:
    """Returns the version of a source, which changes with its contents; None if it tells none, as local files."""
    identity: tuple[int, str | None] | None = getattr(source, "identity", None)
    return None if identity is None else identity[1]


def refuse_changed(image: Image, uuid: bytes, length: int, version: str | None) -> None:
    """Close an image that is another one than it was in the process that it comes from, and raise OSError (ESTALE)."""
    if (image.uuid, image.source_length, image._version) == (uuid, length, version):
        return
    now = f"uuid {image.uuid.hex()}, {image.source_length} bytes, {image._version}"
    image.close()
    then = f"uuid {uuid.hex()}, {length} bytes, {version}"
    raise failure(errno.ESTALE, None, image.name, f"the image is another one now: {now}; pickled with {then}")


def _reopen(
    cls: type[Image], again: str | bytes, options: dict[str, Any], uuid: bytes, length: int, version: str | None
) -> Image:
    """An image that was pickled. It has to be the one that it was: an index of another would lead to other files."""
    image = cls(again, **options)
    refuse_changed(image, uuid, length, version)
    return image


def _recognise(
    image: object, retries: int, storage_options: dict[str, Any]
) -> tuple[Any, str, str | bytes | None]:
    """Source and name for the native side, and what opens it again in another process."""
    if isinstance(image, str) and "://" in image:
        from ._source import is_url, open_url

        if is_url(image):
            target = open_url(image, retries=retries, **storage_options)
            # Without a password, as errors show it; what opens it again has all of it.
            return target, os.fsdecode(target) if isinstance(target, bytes) else target.name, image
    if storage_options:
        names = ", ".join(sorted(storage_options))
        raise TypeError(f"options for fsspec without a URL, or options that open() does not have: {names}")
    if isinstance(image, (str, os.PathLike)) or (isinstance(image, bytes) and b"\0" not in image):
        path = os.fsencode(image)
        return path, os.fsdecode(path), os.path.abspath(path)
    try:
        view = memoryview(image)  # type: ignore[arg-type]
    except TypeError:
        pass
    else:
        return view, "<memory>", None
    if hasattr(image, "read") and hasattr(image, "seek"):
        from ._source import FileObjectSource

        source = FileObjectSource(image)
        return source, source.name, None
    raise TypeError(f"an image is a path, a URL, a binary file object or a buffer, not {type(image).__name__}")


def _is_manifest(image: ImageSource) -> TypeGuard[str | bytes | os.PathLike[str] | os.PathLike[bytes]]:
    """Whether this is the path or URL of a manifest of shards."""
    path = os.fspath(image) if isinstance(image, os.PathLike) else image
    if isinstance(path, str):
        return path.endswith(".json")
    return isinstance(path, bytes) and path.endswith(b".json") and b"\0" not in path
