"""Index of the files of all shards, without a table of all rows."""

from __future__ import annotations

import errno
import operator
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from .._names import decode, encode, failure, is_absence, refuse_foreign
from ._manifest import ManifestError
from ._shard_tree import DIRECTORY, NID_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal, SupportsIndex

    from .._image import Image
    from .._native import Index
    from ._sharded_image import ShardedImage

T = TypeVar("T")


class IndexChoice(NamedTuple):
    """Arguments of `Image.index`: the files that have rows, and their classes."""

    root: bytes = b"/"
    glob: str | bytes | None = None
    extensions: str | bytes | tuple[str | bytes, ...] | None = None
    group: Literal["parent"] | int | Callable[[str], str] | None = None

    def of(self, image: Image, threads: int | None = None) -> Index:
        """Returns the index of one shard, with its own classes."""
        root, glob, extensions, group = self
        try:
            return image.index(root, glob=glob, extensions=extensions, group=group, threads=threads)
        except OSError as error:
            if not is_absence(error):
                raise
        # A shard has only the directories that lead to its own files.
        return image.index().subset(())


class _Lookup(Sequence[T]):
    """Sequence whose items are looked up one by one."""

    @abstractmethod
    def _item(self, row: int) -> T:
        """Returns the item of a row that exists."""

    @overload
    def __getitem__(self, i: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> list[T]: ...
    def __getitem__(self, i: SupportsIndex | slice) -> T | list[T]:
        count = len(self)
        if isinstance(i, slice):
            return [self._item(row) for row in range(count)[i]]
        row = operator.index(i)
        if not -count <= row < count:
            raise IndexError(f"row {row} of {count}")
        return self._item(row % count)


class _Column(_Lookup[int]):
    """Column of an index: a number for each row."""

    def __init__(self, index: ShardedIndex, name: str) -> None:
        self._index, self._name = index, name

    def __len__(self) -> int:
        return len(self._index)

    def _item(self, row: int) -> int:
        shard, row = self._index.locate(row)
        value: int = getattr(self._index.shard(shard), self._name)[row]
        return shard << NID_BITS | value if self._name == "nids" else value


class _Selected(_Lookup[int]):
    """Some rows of a column."""

    def __init__(self, column: Sequence[int], rows: array[int]) -> None:
        self._column, self._rows = column, rows

    def __len__(self) -> int:
        return len(self._rows)

    def _item(self, row: int) -> int:
        return self._column[self._rows[row]]


class ShardedIndex(_Lookup[str]):
    """Regular files of all shards: those of the first shard in path order, then those of the
    second. Made by `ShardedImage.index`.

    It has the columns of `kilnfs.Index`, looked up row by row: the table of a shard is made when
    one of its rows is accessed, and dropped when the shard leaves the window. Access shard by shard
    is therefore fastest; `shard(number)` is a whole table, with the classes of all shards. """

    def __init__(self, image: ShardedImage, choice: IndexChoice, counts: Sequence[int], classes: list[str]) -> None:
        self.image = image
        """Shards of the index."""
        self.classes = classes
        """Names of the classes of all shards, sorted by their bytes; a label is a position in this
        list."""
        self._choice = choice
        self._counts = array("Q", counts)
        self._ends = array("Q", accumulate(counts))

    @classmethod
    def of_all(cls, image: ShardedImage) -> ShardedIndex:
        """Makes the index of all regular files, whose numbers are in the manifest."""
        ends = image.manifest.sample_ends
        return cls(image, IndexChoice(), [end - start for start, end in zip((0, *ends), ends, strict=False)], [])

    @classmethod
    def chosen(cls, image: ShardedImage, choice: IndexChoice, threads: int | None) -> ShardedIndex:
        """Makes the index of selected files, or of files with classes. Opens each shard once."""
        number = image._lookup(choice.root, True)
        if number < DIRECTORY:
            raise failure(errno.ENOTDIR, decode(choice.root), image.name)
        # The path without links, which may lead through other shards.
        choice = choice._replace(root=b"/" + image._directory(number))
        if choice == IndexChoice():
            return cls.of_all(image)
        counts, classes = [], set()
        for shard in range(len(image.manifest)):
            index = choice.of(image.shard(shard), threads)
            counts.append(len(index))
            classes.update(index.classes)
        return cls(image, choice, counts, sorted(classes, key=encode))

    def __len__(self) -> int:
        return self._ends[-1]

    def _item(self, row: int) -> str:
        shard, row = self.locate(row)
        return self.shard(shard).path(row)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        try:
            return self.path(self.find(path)) == path
        except FileNotFoundError:
            return False

    def locate(self, row: SupportsIndex) -> tuple[int, int]:
        """Returns the shard of a row and the row in the index of that shard. Costs a binary
        search."""
        at = operator.index(row)
        if not 0 <= at < len(self):
            raise IndexError(f"sample {at} of {len(self)}")
        shard = bisect_right(self._ends, at)
        return shard, at - self._ends[shard] + self._counts[shard]

    def shard(self, number: int) -> Index:
        """Returns the index of one shard, with the classes of all shards."""
        return self.image._window.get(number).index(
            (self._choice, *self.classes), lambda image: self._made(number, image)
        )

    def _made(self, number: int, image: Image) -> Index:
        index = self._choice.of(image)
        if len(index) != self._counts[number]:
            message = f"shards[{number}].samples = {self._counts[number]}: {image.name} has {len(index)}"
            raise ManifestError(f"{self.image.name}: {message}")
        if index.classes == self.classes:
            return index
        places = {name: place for place, name in enumerate(self.classes)}
        renamed = [places[name] for name in index.classes]
        labels = index.labels
        return index.with_labels(
            array("I", [] if labels is None else [renamed[label] for label in labels]), self.classes
        )

    def subset(self, rows: Iterable[SupportsIndex]) -> ShardedSubset:
        """Returns these rows, in this order. Costs 8 bytes for each."""
        return ShardedSubset(self, array("Q", [operator.index(row) for row in rows]))

    def rows(self, number: int) -> range:
        """Returns the rows of one shard."""
        return range(self._ends[number] - self._counts[number], self._ends[number])

    def number(self, row: SupportsIndex) -> int:
        """Returns the number of the file of a row, which methods of `ShardedImage` take as
        `nid`."""
        return self.nids[operator.index(row)]

    @property
    def nids(self) -> Sequence[int]:
        """Numbers of the files: the number of the shard above 64 bits of the nid there."""
        return _Column(self, "nids")

    @property
    def sizes(self) -> Sequence[int]:
        """Lengths of the files in bytes."""
        return _Column(self, "sizes")

    @property
    def labels(self) -> Sequence[int] | None:
        """Class of each file, as a position in `classes`; None if there are no classes."""
        return _Column(self, "labels") if self._choice.group is not None else None

    @property
    def uuid(self) -> bytes:
        """UUID of the set of shards, 16 bytes."""
        return self.image.uuid

    @property
    def __kilnfs_uuid__(self) -> bytes:
        return self.uuid

    def path(self, i: SupportsIndex) -> str:
        """Returns the path of a row, without a leading slash. Negative rows count from the end."""
        return self[i]

    def find(self, path: Any) -> int:
        """Returns the row of a path. Raises FileNotFoundError if no row has it."""
        raw = b"/".join(name for name in encode(path).split(b"/") if name not in (b"", b"."))
        shard = self.image._tree.shard_of(raw)
        return self.shard(shard).find(raw) + self.rows(shard).start

    def bind(self, image: ShardedImage) -> ShardedIndex:
        """Returns the index bound to another `ShardedImage` of these shards. Raises OSError
        (ESTALE) for other shards."""
        refuse_foreign(self, image)
        return ShardedIndex(image, self._choice, self._counts, self.classes)

    def __reduce__(self) -> tuple[object, ...]:
        return ShardedIndex, (self.image, self._choice, self._counts, self.classes)

    def __repr__(self) -> str:
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return f"<kilnfs.shards.ShardedIndex of {len(self)} files in {len(self._counts)} shards{classes}>"


class ShardedSubset(_Lookup[str]):
    """Some rows of a `ShardedIndex`, in another order. Made by its `subset`."""

    def __init__(self, index: ShardedIndex, rows: array[int]) -> None:
        self._index, self._rows = index, rows

    def __len__(self) -> int:
        return len(self._rows)

    def _item(self, row: int) -> str:
        return self._index.path(self._rows[row])

    def path(self, i: SupportsIndex) -> str:
        """Returns the path of a row, without a leading slash. Negative rows count from the end."""
        return self[i]

    def shard(self, number: int) -> Index:
        """Returns the index of one shard, with all rows of the whole index there."""
        return self._index.shard(number)

    @property
    def image(self) -> ShardedImage:
        """Shards of the index."""
        return self._index.image

    @property
    def classes(self) -> list[str]:
        """Names of the classes of all shards, sorted by their bytes; a label is a position in this
        list."""
        return self._index.classes

    @property
    def nids(self) -> Sequence[int]:
        """Numbers of the files, as in the whole index."""
        return _Selected(self._index.nids, self._rows)

    @property
    def sizes(self) -> Sequence[int]:
        """Lengths of the files in bytes."""
        return _Selected(self._index.sizes, self._rows)

    @property
    def labels(self) -> Sequence[int] | None:
        """Class of each file, as a position in `classes`; None if there are no classes."""
        labels = self._index.labels
        return None if labels is None else _Selected(labels, self._rows)

    @property
    def uuid(self) -> bytes:
        """UUID of the set of shards, 16 bytes."""
        return self._index.uuid

    def __repr__(self) -> str:
        return f"<kilnfs.shards.ShardedSubset of {len(self)} files>"
