"""Datasets of samples for any framework: an image, an index of its files, and the decoding of files
into samples."""

from __future__ import annotations

import errno
import operator
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from ._names import failure, name_file, note_sample
from ._urls import redact

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import TypeVar

    from ._image import Image
    from ._native import Batch, Index

    from ._parts import Parts

    Source: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes] | Image
    Decode: TypeAlias = str | Callable[[memoryview], Any]

    Sample = TypeVar("Sample", default=Any)
else:
    from typing import TypeVar

    Sample = TypeVar("Sample")


class Samples(Sequence[Sample]):
    """Files below a directory of an image as samples, in path order: `samples[i]` is (data, label),
    or only data if there are no classes. `kilnfs.Samples[tuple[bytes, int]]` gives type checkers
    the type of a sample.

    A class is a directory in `root`, and a label is the position of the class in `classes`. `image`
    is the path or URL of an image, or an open one.

    * `extensions` (such as `".jpg"`) and `glob` select files. `group` defines the class of a file,
      as for `Image.index`: by default its directory in `root` (files beside these directories are
      left out), None for no classes. `index` replaces all of these and `root`: a `kilnfs.Index`, or
      the path of a saved one, which all processes then share.
    * `parts` makes a sample of several files: `{"image": ".jpg", "label": ".json"}` of `a/1.jpg`
      and `a/1.json`, whose stem is `a/1`. Data is a dictionary with these names then, and one call
      reads all parts of all samples of a batch. `decode` may be a dictionary by part ("bytes" for
      other parts). A sample with a missing part raises FileNotFoundError that names the stem, or is
      left out with `missing="skip"`. `files` are those of the first part. To find the samples, all
      names are read, some 2 µs per file.
    * `decode` makes data from the contents of a file: "bytes", "buffer" (a writable memoryview), or
      a function of such a memoryview. `transform` and `target_transform` are applied to data and
      label.
    * `threads`: number of threads that read a batch, by default 1 in a child process, such as a
      worker of a loader, and elsewhere up to 4.
    * Other arguments are those of `kilnfs.open`.

    Slices and `samples.__getitems__(indices)` return lists, which one call reads in stored order.
    Objects can be pickled, and used after a fork: each process opens the image when it reads for
    the first time.

    JAX's grain accepts it as a data source, Keras's PyDataset uses its methods;
    `kilnfs.torch.Dataset` is the same for PyTorch.

    >>> samples = kilnfs.Samples("train.erofs")
    >>> len(samples), samples.classes, samples[0]
    (3, ['cat', 'dog'], (b'meow\\n', 0))
    >>> samples.__getitems__([2, 0])
    [(b'woof\\n', 1), (b'meow\\n', 0)]
    >>> samples.samples[2]
    ('dog/1.txt', 1)

    >>> import json
    >>> def from_json(contents):
    ...     return json.loads(bytes(contents))
    >>> with kilnfs.Builder() as tree:
    ...     _ = tree.add_many([("1.jpg", b"picture"), ("1.json", b'{"is": "cat"}')])
    ...     _ = tree.write("pairs.erofs", overwrite=True)
    >>> parts = {"image": ".jpg", "label": ".json"}
    >>> kilnfs.Samples("pairs.erofs", parts=parts, decode={"label": from_json})[0]
    {'image': b'picture', 'label': {'is': 'cat'}}
    """

    def __init__(
        self,
        image: Source,
        root: str | bytes = "/",
        *,
        extensions: str | Iterable[str] | None = None,
        glob: str | None = None,
        group: Literal["parent"] | int | Callable[[str], str] | None = 1,
        index: Index | str | os.PathLike[str] | None = None,
        parts: Mapping[str, str] | None = None,
        missing: Literal["raise", "skip"] = "raise",
        decode: Decode | Mapping[str, Decode] = "bytes",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        self._check_decode(decode, parts)
        if missing not in ("raise", "skip"):
            raise ValueError(f"missing is {missing!r}, but must be 'raise' or 'skip'")
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}, but must be 1 or more")
        self.decode = decode
        """Decoding of contents into data, as given."""
        self.transform = transform
        """Function that is applied to data, or None."""
        self.target_transform = target_transform
        """Function that is applied to labels, or None."""
        self.threads = threads
        """Number of threads that read a batch; None: 1 in a child process, elsewhere up to 4."""
        self._options = options
        self._image: Image | None = None
        # UUID and version (ETag, …) of the image that was opened first: other processes must find
        # the same.
        self._opened: tuple[bytes, str | None] | None = None
        self._index: Index | None = None
        self._first: Index | None = None
        self._parts: Parts | None = None
        self._index_path: str | None = None
        self._expected_digest: bytes | None = None
        self._source: Source
        if isinstance(image, (str, bytes)) or hasattr(image, "__fspath__"):
            self._source = _absolute(image)
        else:
            if options:
                raise TypeError(f"image is already open: {', '.join(options)} cannot be given")
            self._source = self._image = image
        if parts is not None and extensions is not None:
            raise TypeError("parts selects the files: extensions cannot be given")
        if index is None:
            ends = _listed(extensions) if parts is None else list(parts.values())
            chosen: dict[str, Any] = {"extensions": ends, "glob": glob, "threads": threads}
            found = self.image.index(root, group=group, **chosen)
            # Without directories there are no classes.
            self._index = self.image.index(root, **chosen) if group == 1 and not found.classes else found
            self._find_parts(parts, missing)
            return
        if extensions is not None or glob is not None or root not in ("/", b"/", "", b"") or group != 1:
            raise TypeError("index selects the files: root, extensions, glob and group cannot be given")
        if isinstance(index, (str, os.PathLike)):
            self._index_path = os.path.abspath(index)
            self._expected_digest = self._members.digest
        else:
            self._index = index.bind(self.image)
        self._find_parts(parts, missing)

    def _check_decode(self, decode: Decode | Mapping[str, Decode], parts: Mapping[str, str] | None) -> None:
        if parts is not None and not parts:
            raise ValueError("parts: use at least one")
        by_part = decode.items() if isinstance(decode, Mapping) else [("", decode)]
        for part, way in by_part:
            of = f"decode[{part!r}]" if isinstance(decode, Mapping) else "decode"
            if isinstance(decode, Mapping) and (parts is None or part not in parts):
                raise ValueError(f"{of}: not a name in parts")
            if not callable(way) and way not in self._decoders:
                names = ", ".join(repr(name) for name in self._decoders)
                raise ValueError(f"{of} is {way!r}, but must be {names} or a function")

    def _find_parts(self, parts: Mapping[str, str] | None, missing: Literal["raise", "skip"]) -> None:
        if parts is not None:
            from ._parts import Parts

            self._parts = Parts.of(self._members, parts, missing, self.image.name)

    _decoders: tuple[str, ...] = ("bytes", "buffer")

    @property
    def image(self) -> Image:
        """Open image of this process."""
        if self._image is None:
            source = self._source
            if not isinstance(source, (str, bytes)):
                raise TypeError(f"{source!r} is not a path")
            from ._open import open

            image = open(source, **self._options)
            opened = (image.uuid, getattr(image, "_version", None))
            if self._opened not in (None, opened):
                then, now = self._opened, opened
                raise failure(errno.ESTALE, None, image.name, f"the image has changed: {then} then, {now} now")
            self._image, self._opened = image, opened
        return self._image

    @property
    def files(self) -> Index:
        """Index: paths, nids, sizes and labels of the files, one for each sample (the first of
        several parts)."""
        if self._parts is None:
            return self._members
        if self._first is None:
            self._first = self._members.subset(self._parts.first() or ())
        return self._first

    @property
    def _members(self) -> Index:
        """Index of all files of all samples."""
        if self._index is None:
            if self._index_path is None:
                raise TypeError("neither an index nor its path")
            from ._native import Index

            index = Index.load(self._index_path, self.image)
            if self._expected_digest not in (None, index.digest):
                raise OSError(errno.ESTALE, "the index has changed since the dataset was made", self._index_path)
            self._index = index
        elif self._index.image is None:
            self._index = self._index.bind(self.image)
        return self._index

    @property
    def classes(self) -> list[str]:
        """Names of the classes, sorted by their bytes; a label is a position in this list."""
        return self.files.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def targets(self) -> memoryview | None:
        """Label of each sample, as a buffer of unsigned 32-bit integers; None if there are no
        classes."""
        return self.files.labels if self.files.classes else None

    @property
    def samples(self) -> PathLabels:
        """Pairs (path in the image, label) of all samples, made at access. The label is -1 if there
        are no classes."""
        return PathLabels(self.files, self.targets)

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return self.__getitems__(range(len(self))[index])
        row = _row(index, len(self))
        label = None if self.targets is None else self.targets[row]
        if self._parts is not None:
            return self._made(next(self._of_parts(self._parts, (row,))), row, label)
        if self.decode != "bytes":
            return self._made(self.contents([row])[0][0], row, label)
        try:
            data = self.image.read(nid=self.files.nids[row])
        except OSError as error:
            name_file(error, self._path_of(row), self.image)
            raise
        return self._made(data, row, label)

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Sample]:
        """Returns these samples, read by one call."""
        if type(self).__getitem__ is not type(self)._own_getitem:
            # A subclass has overridden the access to a sample.
            return [self[index] for index in indices]
        if self._parts is not None:
            rows = self._rows(indices)
            data: Iterator[Any] = self._of_parts(self._parts, rows)
        else:
            batch, rows = self.contents(indices)
            data = map(batch.tobytes if self.decode == "bytes" else batch.__getitem__, range(len(rows)))
        labels = self.targets
        picked = None if labels is None else array("q", [labels[row] for row in rows])
        finished = map(self._made, data, rows) if picked is None else map(self._made, data, rows, picked)
        plain = self._parts is None and not callable(self.decode)
        if not plain or self.transform is not None or self.target_transform is not None:
            return list(finished)
        samples: SampleList[Any] = SampleList(finished)
        samples.batch, samples.labels = batch, picked
        return samples

    def __iter__(self) -> Iterator[Sample]:
        # By batches, so that the memory of a batch is freed after it.
        for start in range(0, len(self), 64):
            yield from self.__getitems__(range(start, min(start + 64, len(self))))

    _own_getitem = __getitem__

    def contents(self, indices: Iterable[SupportsIndex]) -> tuple[Batch, array[int]]:
        """Returns the contents of the files of these samples (the first of several parts), and
        their rows in the index."""
        rows = self._rows(indices)
        if self._parts is None:
            return self._read(self.files, rows), rows
        first = self._parts.first()
        return self._read(self._members, array("Q", [first[row] for row in rows])), rows

    def _rows(self, indices: Iterable[SupportsIndex]) -> array[int]:
        count = len(self)
        return array("Q", [_row(index, count) for index in indices])

    def _read(self, index: Index, rows: array[int]) -> Batch:
        threads = 1 if self.threads is None and _in_child() else self.threads
        return self.image.read_many(index, rows=rows or (), threads=threads)

    def _of_parts(self, parts: Parts, samples: Sequence[int]) -> Iterator[list[memoryview]]:
        """Yields the contents of all parts of each of these samples, read by one call."""
        batch, width = self._read(self._members, parts.of_samples(samples)), len(parts.names)
        return (batch[at : at + width] for at in range(0, len(samples) * width, width))

    def replace_index(self, index: Index) -> None:
        """Replaces the samples by others of the same image."""
        self._index, self._index_path, self._expected_digest = index.bind(self.image), None, None
        self._parts = self._first = None

    def _made(self, contents: Any, row: int, label: int | None = None) -> Any:
        """Returns the sample of a row. Exceptions of `decode` and the transforms get a note with
        the sample."""
        try:
            return self._finished(self._data(contents), label)
        except Exception as error:
            note_sample(error, row, self._path_of(row), self.image)
            raise

    def _path_of(self, row: int) -> str | None:
        """Returns the path of a row, for an error; None if it cannot be read."""
        try:
            return self.files.path(row)
        except (OSError, ValueError):
            return None

    def _data(self, contents: Any) -> Any:
        """Decodes the contents of a sample's file, or of all its parts."""
        if self._parts is None:
            return contents if self.decode == "bytes" else self._decoded(contents, self.decode)
        names, decode = self._parts.names, self.decode
        by_part = decode if isinstance(decode, Mapping) else dict.fromkeys(names, decode)
        return {
            name: self._decoded(part, by_part.get(name, "bytes")) for name, part in zip(names, contents, strict=True)
        }

    def _decoded(self, contents: memoryview, decode: Any) -> Any:
        if callable(decode):
            return decode(contents)
        return contents.tobytes() if decode == "bytes" else contents

    def _finished(self, data: Any, label: int | None = None) -> Any:
        if self.transform is not None:
            data = self.transform(data)
        if label is None:
            return data
        return data, label if self.target_transform is None else self.target_transform(label)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._image is not self._source:
            state["_image"] = None
        if self._index_path is not None:
            state["_index"] = None
        # Derived from the others at access.
        state["_first"] = None
        return state

    def __repr__(self) -> str:
        name = self._source if isinstance(self._source, (str, bytes)) else self.image.name
        name = redact(name) if isinstance(name, str) else name
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{kind} of {name!r}, {len(self)} samples, {len(self.classes)} classes>"


class SampleList(list[Sample]):
    """Samples, with the buffer that contains them all, so that collate functions need not copy
    each."""

    batch: Batch | None = None
    """Contents of all samples, in their order."""
    labels: array[int] | None = None
    """Labels of all samples, 'q'; None if there are no classes."""


class PathLabels(Sequence[tuple[str, int]]):
    """Pairs (path, label) of the files of an index, made at access, without memory for each
    file."""

    def __init__(self, files: Index, labels: Sequence[int] | memoryview | None) -> None:
        self.files = files
        self.labels = labels

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: SupportsIndex) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        row = _row(index, len(self))
        return self.files.path(row), -1 if self.labels is None else self.labels[row]

    def __getstate__(self) -> dict[str, Any]:
        # A memoryview cannot be pickled.
        labels = array("I", self.labels) if isinstance(self.labels, memoryview) else self.labels
        return {"files": self.files, "labels": labels}

    def __repr__(self) -> str:
        return f"<{len(self)} paths and labels>"


def chosen(dataset: Any, subset: Sequence[int] | None) -> tuple[Index, Sequence[int] | None, Sequence[int] | None]:
    """Returns the index of the samples to visit, their rows in the index of the dataset, and their
    numbers in the dataset (None: their rows in the returned index)."""
    chain = []
    while not hasattr(dataset, "files") and hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        chain.append(dataset.indices)
        dataset = dataset.dataset
    index: Index = getattr(dataset, "files", dataset)
    if not hasattr(index, "nids"):
        raise TypeError(f"{dataset!r} is neither a dataset of kilnfs nor an index")
    if hasattr(index, "shard"):
        way = "visit one after the other, each as a dataset with index=index.shard(number)"
        raise TypeError(f"{dataset!r}: its samples are in shards: {way}")
    rows: Sequence[int] | None = None
    for indices in reversed(chain):
        rows = [int(row) for row in indices] if rows is None else [rows[row] for row in indices]
    places: Sequence[int] | None = None
    if subset is not None:
        count = len(index if rows is None else rows)
        places = array("Q", [_row(place, count) for place in subset])
        rows = places if rows is None else [rows[place] for place in places]
    if rows is None:
        return index, None, None
    image = index.image
    rows = array("Q", rows)
    part = index.subset(rows or ())
    if part.image is None and image is not None:
        part = part.bind(image)
    return part, rows, places


def _row(index: SupportsIndex, count: int) -> int:
    row = operator.index(index)
    if not -count <= row < count:
        raise IndexError(f"sample {row} of {count}")
    return row + count if row < 0 else row


def _absolute(image: Any) -> str | bytes:
    # Workers may run in another directory.
    path: str | bytes = os.fspath(image)
    return path if isinstance(path, str) and "://" in path else os.path.abspath(path)


def _listed(extensions: str | Iterable[str] | None) -> list[str] | None:
    return [extensions] if isinstance(extensions, str) else None if extensions is None else list(extensions)


def _in_child() -> bool:
    """Returns true if this process was started by multiprocessing, as workers of loaders are."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
