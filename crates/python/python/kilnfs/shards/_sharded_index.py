"""The files of all shards in rows, without a table of all rows."""

from __future__ import annotations

import errno
import operator
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from .._names import decode, encode, failure, is_absence, refuse_foreign
from ._manifest import ManifestError
from ._shard_tree import DIRECTORY, NID_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal, SupportsIndex

    from .._image import Image
    from .._native import Index
    from ._sharded_image import ShardedImage


class IndexChoice(NamedTuple):
    """Which files have rows, and what their classes are: arguments of `Image.index`."""

    root: bytes = b"/"
    glob: str | bytes | None = None
    extensions: str | bytes | tuple[str | bytes, ...] | None = None
    group: Literal["parent"] | int | Callable[[str], str] | None = None

    def of(self, image: Image, threads: int | None = None) -> Index:
        """The index of one shard, with its own classes."""
        root, glob, extensions, group = self
        try:
            return image.index(root, glob=glob, extensions=extensions, group=group, threads=threads)
        except OSError as error:
            if not is_absence(error):
                raise
        # A shard knows the directories that lead to its own files.
        return image.index().subset(())


class _Column(Sequence[int]):
    """A number for each row, looked up when it is asked for."""

    def __init__(self, files: ShardedIndex, name: str) -> None:
        self._files, self._name = files, name

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, row: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> array[int]: ...
    def __getitem__(self, row: SupportsIndex | slice) -> int | array[int]:
        if isinstance(row, slice):
            return array("Q", [self[one] for one in range(len(self))[row]])
        at = operator.index(row)
        shard, at = self._files.locate(at + len(self) if at < 0 else at)
        value: int = getattr(self._files.shard(shard), self._name)[at]
        return shard << NID_BITS | value if self._name == "nids" else value


class ShardedIndex(Sequence[str]):
    """Regular files of all shards: those of the first shard in path order, then those of the second. Made by
    `ShardedImage.index`.

    It has the columns of `kilnfs.Index`, looked up row by row: the table of a shard is made when one of its rows is
    asked for, and dropped when the shard leaves the window. So rows are best asked for shard by shard; `shard(number)`
    is a whole table, with the classes of all.
    """

    def __init__(self, image: ShardedImage, choice: IndexChoice, counts: Sequence[int], classes: list[str]) -> None:
        self.image = image
        """The shards."""
        self.classes = classes
        """Names of the classes of all shards, sorted by their bytes; a label is a place in this list."""
        self._choice = choice
        self._counts = array("Q", counts)
        self._ends = array("Q", accumulate(counts))

    @classmethod
    def of_all(cls, image: ShardedImage) -> ShardedIndex:
        """Of all regular files: the manifest knows how many there are."""
        ends = image.manifest.sample_ends
        return cls(image, IndexChoice(), [end - start for start, end in zip((0, *ends), ends, strict=False)], [])

    @classmethod
    def chosen(cls, image: ShardedImage, choice: IndexChoice, threads: int | None) -> ShardedIndex:
        """Of files that are chosen or have classes: each shard is opened once."""
        number = image._lookup(choice.root, True)
        if number < DIRECTORY:
            raise failure(errno.ENOTDIR, decode(choice.root), image.name)
        # Links lead to it, perhaps by other shards.
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

    @overload
    def __getitem__(self, i: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: SupportsIndex | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self.path(row) for row in range(len(self))[i]]
        return self.path(i)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        try:
            return self.path(self.find(path)) == path
        except FileNotFoundError:
            return False

    def locate(self, row: SupportsIndex) -> tuple[int, int]:
        """Shard of a row, and its row in the index of that shard: a binary search."""
        at = operator.index(row)
        if not 0 <= at < len(self):
            raise IndexError(f"sample {at} of {len(self)}")
        shard = bisect_right(self._ends, at)
        return shard, at - self._ends[shard] + self._counts[shard]

    def shard(self, number: int) -> Index:
        """The index of one shard, with the classes of all."""
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
        """These rows, in this order: 8 bytes each."""
        return ShardedSubset(self, array("Q", [operator.index(row) for row in rows]))

    def rows(self, number: int) -> range:
        """The rows of one shard."""
        return range(self._ends[number] - self._counts[number], self._ends[number])

    def number(self, row: SupportsIndex) -> int:
        """What the methods of a `ShardedImage` take for the file of a row."""
        return self.nids[operator.index(row)]

    @property
    def nids(self) -> Sequence[int]:
        """Numbers of the files: that of the shard, and below it, in 64 bits, the nid there."""
        return _Column(self, "nids")

    @property
    def sizes(self) -> Sequence[int]:
        """Lengths in bytes."""
        return _Column(self, "sizes")

    @property
    def labels(self) -> Sequence[int] | None:
        """The class of each file, as a place in `classes`; None where there are no classes."""
        return _Column(self, "labels") if self._choice.group is not None else None

    @property
    def uuid(self) -> bytes:
        """That of the set of shards."""
        return self.image.uuid

    @property
    def __kilnfs_uuid__(self) -> bytes:
        return self.uuid

    def path(self, i: SupportsIndex) -> str:
        """The path of a row, without a slash in front. Negative rows are counted from the end."""
        row = operator.index(i)
        shard, at = self.locate(row + len(self) if row < 0 else row)
        return self.shard(shard).path(at)

    def find(self, path: Any) -> int:
        """The row of a path. FileNotFoundError where none has it."""
        raw = b"/".join(name for name in encode(path).split(b"/") if name not in (b"", b"."))
        shard = self.image._tree.shard_of(raw)
        return self.shard(shard).find(raw) + self.rows(shard).start

    def bind(self, image: ShardedImage) -> ShardedIndex:
        """The same index for another object that has these shards open. ESTALE where they are others."""
        refuse_foreign(self, image)
        return ShardedIndex(image, self._choice, self._counts, self.classes)

    def __reduce__(self) -> tuple[object, ...]:
        return ShardedIndex, (self.image, self._choice, self._counts, self.classes)

    def __repr__(self) -> str:
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return f"<kilnfs.shards.ShardedIndex of {len(self)} files in {len(self._counts)} shards{classes}>"


class ShardedSubset(Sequence[str]):
    """Some rows of a `ShardedIndex`, in another order. Made by its `subset`."""

    def __init__(self, files: ShardedIndex, rows: array[int]) -> None:
        self._files, self._rows = files, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, i: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: SupportsIndex | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self._files.path(row) for row in self._rows[i]]
        return self.path(i)

    def path(self, i: SupportsIndex) -> str:
        """The path of a row, without a slash in front. Negative rows are counted from the end."""
        return self._files.path(self._rows[i])

    def shard(self, number: int) -> Index:
        """The index of one shard, of all rows that the whole index has there."""
        return self._files.shard(number)

    @property
    def image(self) -> ShardedImage:
        """The shards."""
        return self._files.image

    @property
    def classes(self) -> list[str]:
        """Names of the classes of all shards, sorted by their bytes; a label is a place in this list."""
        return self._files.classes

    @property
    def nids(self) -> Sequence[int]:
        """Numbers of the files, as those of the whole index."""
        return _Picked(self._files.nids, self._rows)

    @property
    def sizes(self) -> Sequence[int]:
        """Lengths in bytes."""
        return _Picked(self._files.sizes, self._rows)

    @property
    def labels(self) -> Sequence[int] | None:
        """The class of each file, as a place in `classes`; None where there are no classes."""
        labels = self._files.labels
        return None if labels is None else _Picked(labels, self._rows)

    @property
    def uuid(self) -> bytes:
        """That of the set of shards."""
        return self._files.uuid

    def __repr__(self) -> str:
        return f"<kilnfs.shards.ShardedSubset of {len(self)} files>"


class _Picked(Sequence[int]):
    """Some rows of a column."""

    def __init__(self, column: Sequence[int], rows: array[int]) -> None:
        self._column, self._rows = column, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> array[int]: ...
    def __getitem__(self, row: SupportsIndex | slice) -> int | array[int]:
        if isinstance(row, slice):
            return array("Q", [self._column[one] for one in self._rows[row]])
        return self._column[self._rows[row]]
