"""Open images of `kilnfs.fs` in this process: one for each file, shared by all filesystem objects
that refer to it.

fsspec makes a filesystem object for each thread. They share an image and its caches through a weak
table: an image is closed when the last object that uses it is gone. """

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from . import _native
from ._fsspec_source import Target
from ._fsspec_types import tokenize
from ._image import Image, refuse_changed, version_of
from ._retry import RETRIES
from ._source import FileObjectSource

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from typing import Self


class FsImage(Image):
    """Subclass of `kilnfs.Image` that is opened by protocol, path and options of fsspec, which a
    URL cannot always express."""

    _target: Target | None

    def __new__(cls, source: bytes | _native.Source, name: str, target: Target | None, options: dict[str, Any]) -> Self:
        self = _native.Image.__new__(cls, source, name, **options)
        self._reopen_as = None if target is None else name
        self._options = options
        self._version = version_of(source)
        # Two URLs may be shown by one name.
        self._location_and_uuid = (id(self) if target is None else tokenize(target.protocol, target.path), self.uuid)
        self._target = target
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        if self._target is None or self.closed:
            return super().__reduce__()
        return _reopened, (type(self), self._target, self._options, self.uuid, self.source_length, self._version)


def _reopened(
    cls: type[FsImage], target: Target, options: dict[str, Any], uuid: bytes, length: int, version: str | None
) -> FsImage:
    image = cls(target.open(), target.name, target, options)
    refuse_changed(image, uuid, length, version)
    return image


class Opened:
    """Open image, with its file and version."""

    def __init__(self, image: FsImage, identity: tuple[Hashable, ...], target: Target | None) -> None:
        self.image = image
        self.identity = identity
        """Length, version (ETag or time of modification; `None` for local files) and UUID: the same
        in all processes."""
        self.target = target
        """Target by which another process opens the image; `None` for a file object."""


class _Table:
    def __init__(self) -> None:
        self.lock = Lock()
        self.images: WeakValueDictionary[Hashable, Opened] = WeakValueDictionary()
        self.opening: dict[Hashable, Lock] = {}


_tables: dict[int, _Table] = {}
"""Tables by process id: a forked child must not wait for a lock that a thread of its parent
held."""


def opened(
    fo: Any,
    protocol: str | None,
    target_options: Mapping[str, Any] | None,
    image_options: dict[str, Any],
    retries: int = RETRIES,
) -> Opened:
    """Returns the image in the file `fo` (path, URL or file object), shared with all other users of
    the same file in this process.

    Files are the same if URL, options, and current length and ETag (or time of modification) are
    equal. """
    if not isinstance(fo, (str, os.PathLike)):
        source = FileObjectSource(fo)
        image = FsImage(source, source.name, None, image_options)
        return Opened(image, (source.length(), None, image.uuid), None)
    target = Target(protocol, os.fspath(fo), target_options, retries)
    where = target.open()
    stamp: tuple[Hashable, ...]
    if isinstance(where, bytes):
        name = os.fsdecode(where)
        found = os.stat(name)
        target = Target("file", name, {})
        length, version = found.st_size, None
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    else:
        name = where.name
        stamp = length, version = where.identity
    key = (stamp, tokenize(target.protocol, target.path, target.options, image_options))
    table = _tables.get(os.getpid())
    if table is None:
        table = _tables.setdefault(os.getpid(), _Table())
    with table.lock:
        opening = table.opening.setdefault(key, Lock())
    # Only threads that open the same image wait here.
    with opening:
        with table.lock:
            entry = table.images.get(key)
        if entry is None:
            image = FsImage(where, name, target, image_options)
            entry = Opened(image, (length, version, image.uuid), target)
        with table.lock:
            table.images[key] = entry
            table.opening.pop(key, None)
    return entry
