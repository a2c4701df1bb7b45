"""Window of the open shards of a process."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from .._names import failure
from .._urls import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .._image import Image
    from .._native import Index
    from ._manifest import Manifest


class OpenShard:
    """Image of an open shard, and its indexes by their arguments, which are dropped with it."""

    __slots__ = ("image", "indexes")

    def __init__(self, image: Image) -> None:
        self.image = image
        self.indexes: dict[Hashable, Index] = {}

    def index(self, choice: Hashable, make: Callable[[Image], Index]) -> Index:
        """Returns the index for `choice`, and makes it at the first call."""
        index = self.indexes.get(choice)
        if index is None:
            index = self.indexes.setdefault(choice, make(self.image))
        return index


class _Opened:
    """Open shards of one process."""

    __slots__ = ("lock", "pid", "shards")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = Lock()
        self.shards: OrderedDict[int, OpenShard] = OrderedDict()


class ShardWindow:
    """Open shards of a manifest, by number. The least recently used one is dropped for another.

    Methods may be called from any thread. A forked process shares no lock and no cache with its
    parent: it opens its own shards. """

    def __init__(self, place: str, manifest: Manifest, size: int, options: dict[str, Any]) -> None:
        self._place, self._manifest, self._options = place, manifest, options
        self.size = size
        """Largest number of open shards."""
        self._is_closed = False
        self._opened = _Opened()

    def _own(self) -> _Opened:
        if self._opened.pid != os.getpid():
            self._opened = _Opened()
        return self._opened

    def __len__(self) -> int:
        return len(self._own().shards)

    def __contains__(self, number: int) -> bool:
        return number in self._own().shards

    @property
    def closed(self) -> bool:
        """True if the window was closed."""
        return self._is_closed

    def close(self) -> None:
        """Drops all shards. No more are opened."""
        self._is_closed = True
        self._opened = _Opened()

    def check_open(self) -> None:
        """Raises ValueError if the window was closed."""
        if self._is_closed:
            raise ValueError(f"the shards of {self._place!r} are closed")

    def images(self) -> list[Image]:
        """Returns the images of the open shards."""
        opened = self._own()
        with opened.lock:
            return [shard.image for shard in opened.shards.values()]

    def get(self, number: int) -> OpenShard:
        """Returns a shard, and opens it if necessary."""
        self.check_open()
        opened = self._own()
        with opened.lock:
            shard = opened.shards.get(number)
            if shard is not None:
                opened.shards.move_to_end(number)
                return shard
        # The lock is not held: two threads may open the same shard, and one of the two is kept.
        made = self._open(number)
        with opened.lock:
            shard = opened.shards.setdefault(number, made)
            opened.shards.move_to_end(number)
            while len(opened.shards) > self.size:
                # Not closed, because another thread may be reading from it.
                opened.shards.popitem(last=False)
            return shard

    def _open(self, number: int) -> OpenShard:
        from .._image import Image

        name, uuid = self._manifest.names[number], self._manifest.uuids[number]
        image = Image(name, **self._options)
        if image.uuid.hex() != uuid.replace("-", ""):
            found = image.uuid.hex()
            image.close()
            message = f"shards[{number}].uuid = {uuid!r}: {redact(name)} is another image, with the UUID {found}"
            raise failure(errno.ESTALE, None, self._place, f"{self._place}: {message}")
        return OpenShard(image)
