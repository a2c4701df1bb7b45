"""Replacement for `torchvision.datasets.ImageFolder` that reads an image, and JPEG decoding of
whole batches.

Instead of `torchvision.datasets.ImageFolder("/data/train", transform)` use ::

    dataset = kilnfs.torchvision.ImageFolder("train.erofs", transform)
"""

from __future__ import annotations

import io
import os
import stat
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch
import torchvision.datasets
from torchvision.datasets.folder import IMG_EXTENSIONS

from ._names import note_sample
from ._samples import PathLabels, Samples
from ._urls import redact
from .torch import Collated, as_tensor

if TYPE_CHECKING:
    from ._image import Image
    from ._native import Batch, Index
    from ._samples import Source

__all__ = ["ImageFolder", "decode_jpeg", "pil_loader"]


def pil_loader(file: io.BytesIO) -> Any:
    """Decodes a picture as RGB by Pillow, as torchvision's loader does."""
    import PIL.Image

    with PIL.Image.open(file) as picture:
        return picture.convert("RGB")


class _Contents(io.BytesIO):
    """Contents of a sample as a file object, whose name is the path in the image, as loaders use it
    in errors. The path is looked up at access."""

    def __init__(self, contents: memoryview, samples: Samples, row: int) -> None:
        super().__init__(contents)
        self._samples, self._row = samples, row

    @property
    def name(self) -> str:
        """Path in the image."""
        return self._samples._path_of(self._row) or f"sample {self._row}"

    def __repr__(self) -> str:
        return f"<kilnfs contents name={self.name!r}>"


class ImageFolder(torchvision.datasets.ImageFolder):
    """Pictures below `directory` of an image, whose directories are classes: the same samples in
    the same order as torchvision's `ImageFolder` finds in the source directory of the image.

    Differences: `root` is the path or URL of the image; paths in `samples` are those in the image;
    `loader` receives a file object with the contents (`io.BytesIO`), whose `name` is the path in
    the image, instead of a path; `samples`, `imgs` and `targets` take 16 bytes per sample, and make
    tuples at access. `index` is a `kilnfs.Index`, or the path of a saved one, of files of
    `directory` with labels. A loader reads each batch by one call, in stored order. """

    loader: Callable[[Any], Any]

    def __init__(
        self,
        root: Source,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[io.BytesIO], Any] = pil_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        directory: str = "/",
        index: Index | str | os.PathLike[str] | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        if index is None:
            extensions = IMG_EXTENSIONS if is_valid_file is None else None
            self._samples = Samples(root, directory, extensions=extensions, decode="buffer", threads=threads, **options)
        else:
            self._samples = Samples(root, index=index, decode="buffer", threads=threads, **options)
        self._targets: array[int] | None = None
        # As DatasetFolder's constructor, but without a list of all targets.
        name = root if isinstance(root, (str, os.PathLike)) else self._samples.image.name
        name = redact(name) if isinstance(name, str) else name
        torchvision.datasets.VisionDataset.__init__(self, name, transform=transform, target_transform=target_transform)
        self.loader = loader
        self.extensions = IMG_EXTENSIONS if is_valid_file is None else None
        self.classes, self.class_to_idx = self.find_classes(directory)
        self.samples = self.make_dataset(directory, self.class_to_idx, self.extensions, is_valid_file, allow_empty)

    @property
    def image(self) -> Image:
        """Open image of this process."""
        return self._samples.image

    @property
    def files(self) -> Index:
        """Index of the files of the samples. Its labels are positions in its own `classes`."""
        return self._samples.files

    @property
    def targets(self) -> Sequence[int]:  # type: ignore[override]
        """Label of each sample: a buffer of unsigned 32-bit integers."""
        labels = self._samples.targets if self._targets is None else self._targets
        return array("I") if labels is None else labels  # type: ignore[return-value]

    @property
    def samples(self) -> Sequence[tuple[str, int]]:  # type: ignore[override]
        """Pairs (path in the image, label) of all samples, made at access. They may be replaced by
        others of the index."""
        return PathLabels(self._samples.files, self.targets)

    @samples.setter
    def samples(self, samples: Sequence[tuple[str, int]]) -> None:
        files = self._samples.files
        if isinstance(samples, PathLabels):
            chosen, labels = samples.files, samples.labels
        else:
            rows = array("Q", [files.find(path) for path, _ in samples])
            chosen, labels = files.subset(rows or ()), array("I", [label for _, label in samples])
        if chosen is not files:
            self._samples.replace_index(chosen)
        self._targets = None if labels is None or isinstance(labels, memoryview) else array("I", labels)

    @property
    def imgs(self) -> Sequence[tuple[str, int]]:  # type: ignore[override]
        """Pairs (path in the image, label), the same as `samples`."""
        return self.samples

    def find_classes(self, directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
        """Returns the directories in `directory` of the image, sorted."""
        entries = self.image._listdir(os.fspath(directory) or "/")
        names = sorted(os.fsdecode(name) for name, _, kind in entries if stat.S_ISDIR(kind))
        if not names:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory!r} of {self.image.name}.")
        return names, {name: label for label, name in enumerate(names)}

    def make_dataset(  # type: ignore[override]
        self,
        directory: str | os.PathLike[str],
        class_to_idx: dict[str, int],
        extensions: Any = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> Any:
        """Returns pairs (path, label) of the valid files in the index that belong to a class of
        `class_to_idx`, in torchvision's order."""
        if not class_to_idx:
            raise ValueError("'class_to_idx' must have at least one entry to collect any samples.")
        files = self._samples.files
        depth = os.fspath(directory).strip("/").count("/") + 1 if os.fspath(directory).strip("/") else 0
        rows, labels, nested = array("Q"), array("I"), False
        for row in range(len(files)):
            path = files.path(row)
            names = path.split("/")
            if (
                len(names) < depth + 2
                or names[depth] not in class_to_idx
                or (is_valid_file is not None and not is_valid_file(path))
            ):
                continue
            nested = nested or len(names) > depth + 2
            rows.append(row)
            labels.append(class_to_idx[names[depth]])
        if nested:
            # The files of a directory come before those of its subdirectories.
            def key(place: int) -> tuple[str, ...]:
                names = files.path(rows[place]).split("/")
                return names[depth], "/".join(names[:-1]), names[-1]

            places = sorted(range(len(rows)), key=key)
            rows, labels = (
                array("Q", [rows[place] for place in places]),
                array("I", [labels[place] for place in places]),
            )
        found = set(labels)
        empty = sorted(name for name, label in class_to_idx.items() if label not in found)
        if empty and not allow_empty:
            supported = "" if not extensions else f" Supported extensions are: {', '.join(extensions)}"
            raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.{supported}")
        if (
            not nested
            and len(rows) == len(files)
            and files.labels is not None
            and files.labels.tolist() == labels.tolist()
        ):
            return PathLabels(files, files.labels)
        return PathLabels(files.subset(rows or ()), labels)

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any]:
        contents, row = self._samples.contents([index])
        return self._named(contents[0], row[0])

    _own_getitem = __getitem__

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[tuple[Any, Any]]:
        """Returns these samples, read by one call."""
        if type(self).__getitem__ is not type(self)._own_getitem:
            # A subclass has overridden the access to a sample.
            return [self[index] for index in indices]
        batch, rows = self._samples.contents(indices)
        return [self._named(batch[place], row) for place, row in enumerate(rows)]

    def _named(self, contents: memoryview, row: int) -> tuple[Any, Any]:
        try:
            return self._finished(contents, row)
        except Exception as error:
            note_sample(error, row, self._samples._path_of(row), self.image)
            raise

    def _finished(self, contents: memoryview, row: int) -> tuple[Any, Any]:
        sample = self.loader(_Contents(contents, self._samples, row))
        if self.transform is not None:
            sample = self.transform(sample)
        label = self.targets[row]
        return sample, label if self.target_transform is None else self.target_transform(label)

    def __len__(self) -> int:
        return len(self._samples)


def decode_jpeg(
    batch: Batch | Collated | Sequence[Any], device: str | torch.device = "cpu", mode: Any = None
) -> list[torch.Tensor]:
    """Decodes the pictures of a batch as uint8 tensors (channels, height, width), by one call of
    `torchvision.io.decode_jpeg`, without Pillow, and on a GPU if `device` is one.

    `batch` is a result of `Image.read_many`, `Dataset.__getitems__` or `collate`, or a sequence of
    buffers. `mode` is torchvision's `ImageReadMode`. """
    from torchvision.io import ImageReadMode
    from torchvision.io import decode_jpeg as decode

    if isinstance(batch, Collated):
        ends = batch.offsets.tolist()
        parts = [batch.data[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    else:
        contents = [_contents(batch[place]) for place in range(len(batch))]
        parts = [as_tensor(bytearray(each) if isinstance(each, bytes) else each) for each in contents]
    if not parts:
        return []
    decoded = decode(parts, mode=ImageReadMode.UNCHANGED if mode is None else mode, device=device)
    return decoded if isinstance(decoded, list) else [decoded]


def _contents(sample: Any) -> Any:
    return sample[0] if isinstance(sample, tuple) else sample
