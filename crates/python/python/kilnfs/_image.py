"""Open image: `kilnfs.Image`."""

from __future__ import annotations

import errno
import os

from . import _native
from ._names import encode, failure
from ._retry import RETRIES
from ._root_hash import root_hashes
from ._verbs import ImageVerbs

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, BinaryIO, Literal, Self

    from typing_extensions import Buffer

    from ._names import Name
    from ._reports import ImageInfo
    from ._root_hash import RootHash

    ImageSource = str | bytes | os.PathLike[str] | os.PathLike[bytes] | BinaryIO | Buffer


# The native class comes first: its methods implement the primitives that `ImageVerbs` declares
# abstract.
class Image(_native.Image, ImageVerbs):
    """Open image, made by `open`. It has the methods of `zipfile.ZipFile` and of `os`, and its
    paths are like those of `pathlib`.

    All methods may be called from any thread, and in a forked process. `with` or `close` closes the
    image; memory that was returned stays valid. An image that was opened by path or URL can be
    pickled: it is opened again when the pickle is loaded. """

    _options: dict[str, Any]
    _reopen_as: str | bytes | None
    _location_and_uuid: tuple[int | str | bytes, bytes]
    _version: str | None
    """Version of the contents of a remote image, for example its ETag; None if it is unknown."""
    _source_cache: int | None
    """Capacity in bytes of the source's cache; None if the system caches."""

    def __new__(
        cls,
        image: ImageSource,
        *,
        offset: int = 0,
        devices: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]] = (),
        objects: str | bytes | os.PathLike[Any] | Sequence[str | bytes | os.PathLike[Any]] = (),
        cache_bytes: int = 6 << 20,
        verify_checksum: bool = True,
        mmap: bool = False,
        retries: int = RETRIES,
        verify: bool = False,
        root_hash: RootHash | None = None,
        hash_tree: ImageSource | Sequence[ImageSource] | None = None,
        **storage_options: Any,
    ) -> Self:
        source, name, again = _recognise(image, retries, storage_options)
        trees = [_recognise_tree(tree, retries, storage_options) for tree in _trees(hash_tree)]
        hashes = root_hashes(root_hash)
        options: dict[str, Any] = {
            "offset": offset,
            # Absolute, so that a worker with another working directory finds them.
            "devices": [os.path.abspath(os.fsencode(device)) for device in devices],
            "objects": _directories(objects),
            "cache_bytes": cache_bytes,
            "verify_checksum": verify_checksum,
            "mmap": mmap,
            "verify": verify,
        }
        try:
            self = super().__new__(
                cls, source, name, **options, root_hash=hashes, hash_tree=[tree for tree, _, _ in trees]
            )
        except OSError:
            if isinstance(source, bytes) and os.path.isdir(source):
                raise failure(errno.EISDIR, name, name) from None
            raise
        self._source_cache = getattr(source, "cache_length", None)
        trees_again = [tree for _, _, tree in trees]
        self._reopen_as = None if None in trees_again else again
        self._version = version_of(source)
        self._options = options | {"retries": retries} | storage_options
        if hashes:
            self._options |= {"root_hash": hashes, "hash_tree": trees_again}
        # An image in memory is equal to no other.
        self._location_and_uuid = (id(self) if again is None else again, self.uuid)
        return self

    @property
    def _identity(self) -> tuple[int | str | bytes, bytes]:
        return self._location_and_uuid

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
    def info(self) -> ImageInfo:
        """Fields of the superblock.

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
        """Returns the regular files below a directory as a table of 16 bytes per file, in path
        order, for `read_many` and datasets.

        `glob` is matched with the path from `root`, `extensions` with the end of the name. `group`
        defines the class of a file: the name of its directory ("parent"), the directory at a depth
        below `root` (1 for those in it), or the result of a function of its path.

        Costs a read of all metadata below `root`, which are fetched if the image is remote, with
        the ends of files that are stored among them. An index that was packed with the image
        (`kilnfs.pack(index=…)`) with the same arguments is one request.

        >>> index = image.index(extensions=".txt", group="parent")
        >>> list(index), list(index.labels), index.classes
        (['about.txt', 'cat/1.txt', 'cat/2.txt', 'dog/1.txt'], [0, 1, 1, 2], ['', 'cat', 'dog'])
        """
        index = self._index(root, **index_choice(glob, extensions, group), threads=threads)
        if group is None or isinstance(group, int):
            return index
        from ._labels import labelled

        return labelled(index, group)



def index_choice(glob: Any, extensions: Any, group: Any) -> dict[str, Any]:
    """Returns the arguments of `Image.index` in the form of the native module."""
    if extensions is None:
        extensions = ()
    elif isinstance(extensions, (str, bytes)):
        extensions = (extensions,)
    return {
        "extensions": [encode(extension) for extension in extensions],
        "glob": None if glob is None else encode(glob),
        "depth": group if isinstance(group, int) else None,
    }


def _directories(objects: Any) -> list[bytes]:
    """Returns the absolute paths of one directory or several."""
    dirs = [objects] if isinstance(objects, (str, bytes, os.PathLike)) else objects
    return [os.path.abspath(os.fsencode(path)) for path in dirs]


def version_of(source: object) -> str | None:
    """Returns the version of a source, which changes with its contents; None if it has none, as
    local files."""
    identity: tuple[int, str | None] | None = getattr(source, "identity", None)
    return None if identity is None else identity[1]


def refuse_changed(image: Image, uuid: bytes, length: int, version: str | None) -> None:
    """Closes the image and raises OSError (ESTALE) if it has changed since it was pickled."""
    if (image.uuid, image.source_length, image._version) == (uuid, length, version):
        return
    now = f"uuid {image.uuid.hex()}, {image.source_length} bytes, {image._version}"
    image.close()
    then = f"uuid {uuid.hex()}, {length} bytes, {version}"
    raise failure(errno.ESTALE, None, image.name, f"the image has changed since it was pickled: {then} then, {now} now")


def _reopen(
    cls: type[Image], again: str | bytes, options: dict[str, Any], uuid: bytes, length: int, version: str | None
) -> Image:
    """Opens a pickled image. It must not have changed: an index of another image would lead to
    other files."""
    image = cls(again, **options)
    refuse_changed(image, uuid, length, version)
    return image


def _trees(given: ImageSource | Sequence[ImageSource] | None) -> Sequence[ImageSource]:
    if given is None:
        return ()
    return given if isinstance(given, (list, tuple)) else (given,)


def _recognise_tree(
    tree: object, retries: int, storage_options: dict[str, Any]
) -> tuple[Any, str, str | bytes | None]:
    """Returns the same as `_recognise` for a file with a hash tree, which may be local beside a
    remote image."""
    is_url = isinstance(tree, str) and "://" in tree
    return _recognise(tree, retries, storage_options if is_url else {})


def _recognise(
    image: object, retries: int, storage_options: dict[str, Any]
) -> tuple[Any, str, str | bytes | None]:
    """Returns source and name for the native module, and the path or URL that opens it again in
    another process."""
    if isinstance(image, str) and "://" in image:
        from ._source import is_url, open_url

        if is_url(image):
            target = open_url(image, retries=retries, **storage_options)
            # The name has no password, as errors show it; the URL that opens it again has.
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
