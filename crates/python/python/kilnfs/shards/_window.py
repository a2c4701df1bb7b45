"""The shards that a process has open: as many as its window has room for."""

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
    """The image of a shard, and the indexes that were made of it, by what was asked for. They are dropped with it."""

    __slots__ = ("image", "indexes")

    def __init__(self, image: Image) -> None:
        self.image = image
        self.indexes: dict[Hashable, Index] = {}

    def index(self, choice: Hashable, make: Callable[[Image], Index]) -> Index:
        """The index that is asked for by `choice`, made when it is first."""
        index = self.indexes.get(choice)
        if index is None:
            index = self.indexes.setdefault(choice, make(self.image))
        return index


class _Opened:
    """What one process has open."""

    __slots__ = ("lock", "pid", "shards")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = Lock()
        self.shards: OrderedDict[int, OpenShard] = OrderedDict()


class ShardWindow:
    """The shards of a manifest that are open, by number. The one that was used least recently is dropped for another.

    Any thread may call. A process that was forked shares no lock, and no cache, with the one it comes from: it opens
    shards of its own.
    """

    def __init__(self, place: str, manifest: Manifest, size: int, options: dict[str, Any]) -> None:
        self._place, self._manifest, self._options = place, manifest, options
        self.size = size
        """Shards that may be open."""
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
        """Whether it was closed."""
        return self._is_closed

    def close(self) -> None:
        """Open no more, and drop all."""
        self._is_closed = True
        self._opened = _Opened()

    def check_open(self) -> None:
        """ValueError where it was closed."""
        if self._is_closed:
            raise ValueError(f"the shards of {self._place!r} are closed")

    def images(self) -> list[Image]:
        """Those that are open."""
        opened = self._own()
        with opened.lock:
            return [shard.image for shard in opened.shards.values()]

    def get(self, number: int) -> OpenShard:
        """A shard, opened if it is not."""
        self.check_open()
        opened = self._own()
        with opened.lock:
            shard = opened.shards.get(number)
            if shard is not None:
                opened.shards.move_to_end(number)
                return shard
        # Other threads go on meanwhile. Two that want the same shard open it twice, and one of them is kept.
        made = self._open(number)
        with opened.lock:
            shard = opened.shards.setdefault(number, made)
            opened.shards.move_to_end(number)
            while len(opened.shards) > self.size:
                # Not closed: another thread may read from it, and has it then.
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
