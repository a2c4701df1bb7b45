"""Images as datasets of PyTorch, and samplers that shuffle them with mostly sequential reads.

A training loop begins with ::

    dataset = kilnfs.torch.Dataset("train.erofs", extensions=".jpg", decode=decode_picture,
    transform=augment) sampler = kilnfs.torch.LocalityBatchSampler(dataset, 256) loader =
    torch.utils.data.DataLoader(dataset, batch_sampler=sampler, num_workers=8) """

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.utils.data

from ._locality import LocalityBatches, LocalityItems
from ._samples import PathLabels, Sample, SampleList, Samples

if TYPE_CHECKING:
    from ._native import Batch, Index
    from ._samples import Decode, Source

__all__ = ["Collated", "Dataset", "LocalityBatchSampler", "LocalitySampler", "PathLabels", "SampleList", "collate"]


class Dataset(Samples[Sample], torch.utils.data.Dataset[Sample]):
    """Dataset for `torch.utils.data.DataLoader`: a `kilnfs.Samples` that reads a batch by one call
    of `__getitems__`.

    `decode` is "buffer" (a writable memoryview), "bytes", "tensor" (one-dimensional, uint8), or a
    function of a memoryview. Without it and without transforms, `collate_fn=kilnfs.torch.collate`
    makes batches. """

    _decoders = ("bytes", "buffer", "tensor")

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
        decode: Decode | Mapping[str, Decode] = "buffer",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            image,
            root,
            extensions=extensions,
            glob=glob,
            group=group,
            index=index,
            parts=parts,
            missing=missing,
            decode=decode,
            transform=transform,
            target_transform=target_transform,
            threads=threads,
            **options,
        )

    def _decoded(self, contents: memoryview, decode: Any) -> Any:
        return as_tensor(contents) if decode == "tensor" else super()._decoded(contents, decode)


def as_tensor(contents: Any) -> torch.Tensor:
    """Returns a writable buffer as a uint8 tensor, without a copy."""
    return torch.frombuffer(contents, dtype=torch.uint8) if len(contents) else torch.empty(0, dtype=torch.uint8)


class Collated(NamedTuple):
    """Contents of the samples of a batch in one tensor. Sample i is `data[offsets[i]:offsets[i +
    1]]`."""

    data: torch.Tensor
    """Concatenated samples, uint8."""
    offsets: torch.Tensor
    """Start of each sample, and the end of the last one, int64."""
    labels: torch.Tensor | None
    """Labels, int64; None if there are no classes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # One tensor contains everything, so that a worker sends one descriptor of shared memory for
        # a batch.
        whole = _whole_of(self)
        if whole is None:
            return Collated, tuple(self)
        return _views, (whole, len(self.data), len(self.offsets) - 1, self.labels is not None)


def collate(samples: Sequence[Any]) -> Collated:
    """Makes batches of the unchanged contents of files: for
    `DataLoader(collate_fn=kilnfs.torch.collate)` of a dataset with decode "buffer", "bytes" or
    "tensor". Samples are contents, or (contents, label).

    A batch that a `Dataset` has read by one call is not copied in the process of the loader, and
    copied once, to shared memory, in a worker. """
    batch: Batch | None = getattr(samples, "batch", None)
    if batch is not None and isinstance(samples, SampleList):
        data, offsets = as_tensor(batch.data), torch.tensor(batch.offsets.tolist())
        labels = None if samples.labels is None else torch.tensor(samples.labels.tolist(), dtype=torch.int64)
    else:
        labelled = bool(samples) and isinstance(samples[0], (tuple, list))
        contents = [
            as_tensor(bytearray(each) if isinstance(each, bytes) else each)
            for each in (s[0] if labelled else s for s in samples)
        ]
        data = torch.cat(contents) if contents else torch.empty(0, dtype=torch.uint8)
        ends = array("q", [0])
        for each in contents:
            ends.append(ends[-1] + len(each))
        offsets = torch.tensor(ends.tolist())
        labels = torch.tensor([int(sample[1]) for sample in samples], dtype=torch.int64) if labelled else None
    collated = Collated(data, offsets, labels)
    return collated if torch.utils.data.get_worker_info() is None else _in_one(collated)


def _in_one(collated: Collated) -> Collated:
    """Copies a batch to one tensor in shared memory: numbers first, as they must be aligned, then
    the data."""
    data, offsets, labels = collated
    count = len(offsets) - 1
    length = 8 * (count + 1) + (0 if labels is None else 8 * count) + len(data)
    storage = torch.UntypedStorage._new_shared(length)
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload]
    views = _views(whole, len(data), count, labels is not None)
    views.data.copy_(data)
    views.offsets.copy_(offsets)
    if views.labels is not None and labels is not None:
        views.labels.copy_(labels)
    return views


def _views(whole: torch.Tensor, length: int, count: int, labelled: bool) -> Collated:
    numbers = 8 * (count + 1)
    end = numbers + (8 * count if labelled else 0)
    labels = whole[numbers:end].view(torch.int64) if labelled else None
    return Collated(whole[end : end + length], whole[:numbers].view(torch.int64), labels)


def _whole_of(collated: Collated) -> torch.Tensor | None:
    data, offsets, labels = collated
    storage = offsets.untyped_storage()
    others = [data] if labels is None else [data, labels]
    if (
        any(each.untyped_storage().data_ptr() != storage.data_ptr() for each in others)
        or offsets.storage_offset()
        or not len(data)
    ):
        return None
    return torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload, no-any-return]


def _distributed() -> tuple[int, int]:
    """Returns rank and world size of `torch.distributed`, or (0, 1) if it is not initialised."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


class LocalityBatchSampler(LocalityBatches, torch.utils.data.Sampler[list[int]]):
    __doc__ = LocalityBatches.__base__.__doc__

    def _world(self) -> tuple[int, int]:
        return _distributed()


class LocalitySampler(LocalityItems, torch.utils.data.Sampler[int]):
    """Sampler of single samples in the order of `LocalityBatchSampler`: for `DataLoader(sampler=…,
    batch_size=…)`, with the same batch size for both."""

    def _world(self) -> tuple[int, int]:
        return _distributed()
