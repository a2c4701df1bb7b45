"""`kilnfs.torch` in `torch.utils.data.DataLoader`: all ways of starting workers, epochs, places in the middle of
one."""

from __future__ import annotations

import json
import os
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: crates/python/tests/torch_root.sh test")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import torch  # noqa: E402
from kilnfs.torch import Collated, Dataset, LocalityBatchSampler, LocalitySampler, collate  # noqa: E402
from samples_for_tests import contents, make_set, pack  # noqa: E402
from torch.utils.data import DataLoader, Subset, random_split  # noqa: E402

CHOICES: dict[str, Any] = {"block_bytes": 32 << 10, "window_blocks": 5}
WAYS = [(0, None, False)] + [
    (workers, method, persistent)
    for workers in (1, 4)
    for method in ("fork", "spawn", "forkserver")
    for persistent in (False, True)
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_set(tmp_path_factory.mktemp("torch") / "set")


@pytest.fixture(scope="module")
def image(source: Path) -> Path:
    return pack(source, source.parent / "set.erofs")


def loaded(batch: Collated) -> list[tuple[bytes, int]]:
    """The samples of a batch."""
    assert batch.labels is not None
    ends = batch.offsets.tolist()
    return [
        (batch.data[start:end].numpy().tobytes(), int(label))
        for start, end, label in zip(ends, ends[1:], batch.labels, strict=False)
    ]


def expected(source: Path) -> list[tuple[bytes, int]]:
    return [(data, int(path[6])) for path, data in contents(source)]


@pytest.mark.parametrize(("workers", "method", "persistent"), WAYS)
def test_each_epoch_has_the_samples_of_its_order(
    source: Path, image: Path, workers: int, method: str | None, persistent: bool
) -> None:
    samples = expected(source)
    dataset = Dataset(image)
    sampler = LocalityBatchSampler(dataset, 20, **CHOICES)
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    assert len(loader) == len(samples) // 20
    for epoch in range(2):
        rows = list(LocalityBatchSampler(dataset, 20, **CHOICES).order(epoch))
        got = [sample for batch in loader for sample in loaded(batch)]
        assert got == [samples[row] for row in rows], f"epoch {epoch}"


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_place_in_the_middle_of_an_epoch(source: Path, image: Path, workers: int, persistent: bool) -> None:
    samples = expected(source)
    dataset = Dataset(image)

    def loader_of(sampler: LocalityBatchSampler) -> Any:
        return DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=collate,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
            persistent_workers=persistent,
        )

    order = LocalityBatchSampler(dataset, 20, **CHOICES).order(0).tolist()
    used: list[tuple[bytes, int]] = []
    state: dict[str, Any] | None = None
    # Three processes, one after the other, as far as the loader can tell.
    for count in (3, 4, 100):
        sampler = LocalityBatchSampler(dataset, 20, **CHOICES)
        if state is not None:
            sampler.load_state_dict(json.loads(json.dumps(state)))
        loader = loader_of(sampler)
        for number, batch in enumerate(islice(loader, count)):
            used += loaded(batch)
            state = sampler.state_dict(batches=number + 1)
    assert used == [samples[row] for row in order]
    assert state is not None
    sampler.load_state_dict(state)
    assert [sample for batch in loader for sample in loaded(batch)] == [
        samples[row] for row in LocalityBatchSampler(dataset, 20, **CHOICES).order(1)
    ]


def test_samples_one_by_one_make_the_same_batches(image: Path) -> None:
    dataset = Dataset(image)
    by_batch = [
        loaded(b)
        for b in DataLoader(dataset, batch_sampler=LocalityBatchSampler(dataset, 20, **CHOICES), collate_fn=collate)
    ]
    by_item = DataLoader(dataset, sampler=LocalitySampler(dataset, 20, **CHOICES), batch_size=20, collate_fn=collate)
    assert [loaded(batch) for batch in by_item] == by_batch
    assert len(by_item) == len(by_batch)


def test_tensors_transforms_and_the_default_collate(source: Path, image: Path) -> None:
    samples = expected(source)
    dataset = Dataset(image, decode="tensor")
    data, label = dataset[30]
    assert data.dtype == torch.uint8 and (data.numpy().tobytes(), label) == samples[30]
    heads = Dataset(image, decode="tensor", transform=_head)
    batch, labels = next(iter(DataLoader(heads, batch_size=16, shuffle=False)))
    assert batch.shape == (16, 8) and labels.tolist() == [label for _, label in samples[:16]]
    assert batch[3].numpy().tobytes() == samples[3][0][:8]
    with pytest.raises(ValueError, match="'tensor'"):
        Dataset(image, decode="jpeg")


def _head(data: torch.Tensor) -> torch.Tensor:
    return data[:8]


def test_collate_takes_what_other_datasets_give(source: Path, image: Path) -> None:
    samples = expected(source)
    whole = collate([(memoryview(bytearray(data)), label) for data, label in samples[:9]])
    assert loaded(whole) == samples[:9] == loaded(collate(samples[:9]))
    assert loaded(collate(Dataset(image).__getitems__(range(9)))) == samples[:9]
    plain = collate([b"ab", b"", b"c"])
    assert (plain.data.tolist(), plain.offsets.tolist(), plain.labels) == ([97, 98, 99], [0, 2, 2, 3], None)
    unlabelled = collate(Dataset(image, "/class 1").__getitems__([0, 1]))
    assert unlabelled.labels is None and len(unlabelled.offsets) == 3
    for batch in (whole, plain):
        again = pickle.loads(pickle.dumps(batch))
        assert [None if part is None else part.tolist() for part in again] == [
            None if part is None else part.tolist() for part in batch
        ]


def test_a_batch_of_a_worker_is_one_piece_of_shared_memory(image: Path) -> None:
    dataset = Dataset(image)
    loader = DataLoader(dataset, batch_size=50, collate_fn=collate, num_workers=1, multiprocessing_context="fork")
    for batch in loader:
        assert batch.labels is not None
        assert len({part.untyped_storage().data_ptr() for part in batch}) == 1
        assert batch.data.is_shared()


def test_many_batches_keep_no_descriptors(image: Path) -> None:
    dataset = Dataset(image)
    loader = DataLoader(dataset, batch_size=4, collate_fn=collate, num_workers=2, multiprocessing_context="fork")
    list(loader)
    before = len(os.listdir("/proc/self/fd"))
    kept = list(loader)
    held = len(os.listdir("/proc/self/fd")) - before
    # One for each batch that is kept (the default way of sharing), not three.
    assert held <= len(kept) + 16
    del kept


def test_subsets_and_splits(source: Path, image: Path) -> None:
    samples = expected(source)
    dataset = Dataset(image)
    train, valid = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(5))
    assert isinstance(train, Subset)
    got = []
    for part in (train, valid):
        sampler = LocalityBatchSampler(part, 10, drop_last=False, **CHOICES)
        got.append(
            {
                sample
                for batch in DataLoader(part, batch_sampler=sampler, collate_fn=collate)
                for sample in loaded(batch)
            }
        )
        assert got[-1] == {samples[row] for row in part.indices}
    assert not got[0] & got[1]


def test_rank_and_world_size_are_those_of_the_process_group(image: Path, tmp_path: Path) -> None:
    dataset = Dataset(image)
    assert LocalityBatchSampler(dataset, 5, **CHOICES).world_size == 1
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        sampler = LocalityBatchSampler(dataset, 5, **CHOICES)
        assert (sampler.rank, sampler.world_size) == (0, 1)
        assert LocalityBatchSampler(dataset, 5, rank=1, world_size=3, **CHOICES).rank == 1
    finally:
        torch.distributed.destroy_process_group()


def _train(rank: int, image: Path, directory: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/group", rank=rank, world_size=2)
    dataset = Dataset(image)
    sampler = LocalityBatchSampler(dataset, 8, **CHOICES)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    got = [sample for batch in loader for sample in loaded(batch)]
    (directory / f"rank {rank}").write_bytes(pickle.dumps(got))
    torch.distributed.destroy_process_group()


def test_two_ranks_share_an_epoch(source: Path, image: Path, tmp_path: Path) -> None:
    samples = expected(source)
    torch.multiprocessing.spawn(_train, (image, tmp_path), nprocs=2)
    ranks = [pickle.loads((tmp_path / f"rank {rank}").read_bytes()) for rank in range(2)]
    order = LocalityBatchSampler(Dataset(image), 16, **CHOICES).order(0).tolist()
    together = [sample for start in range(0, len(ranks[0]), 8) for rank in ranks for sample in rank[start : start + 8]]
    assert together == [samples[row] for row in order]
