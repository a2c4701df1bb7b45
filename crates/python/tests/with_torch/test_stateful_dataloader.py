"""`torchdata.stateful_dataloader.StatefulDataLoader`: the sampler's state is part of the loader's."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: crates/python/tests/torch_root.sh test")
pytest.importorskip("torchvision", reason="torchvision is not installed")

from kilnfs.torch import Dataset, LocalityBatchSampler, LocalitySampler  # noqa: E402
from samples_for_tests import make_set, pack  # noqa: E402

stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

WAYS = [(0, False), (2, False), (2, True)]


def _first_line(data: memoryview) -> str:
    return bytes(data).partition(b"\n")[0].decode()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    directory = tmp_path_factory.mktemp("stateful")
    return Dataset(pack(make_set(directory / "set"), directory / "set.erofs"), decode=_first_line)


def loader_of(dataset: Dataset, workers: int, persistent: bool, kind: str = "batches", every: int = 1) -> Any:
    choices: dict[str, Any] = {"block_bytes": 32 << 10, "window_blocks": 5}
    common: dict[str, Any] = {
        "num_workers": workers,
        "persistent_workers": persistent,
        "multiprocessing_context": "fork" if workers else None,
        "snapshot_every_n_steps": every,
    }
    if kind == "batches":
        return stateful.StatefulDataLoader(
            dataset, batch_sampler=LocalityBatchSampler(dataset, 20, **choices), **common
        )
    return stateful.StatefulDataLoader(
        dataset, sampler=LocalitySampler(dataset, 20, **choices), batch_size=20, drop_last=True, **common
    )


def epochs_of(dataset: Dataset, count: int) -> list[list[str]]:
    sampler = LocalityBatchSampler(dataset, 20, block_bytes=32 << 10, window_blocks=5)
    return [[dataset[row][0] for row in sampler.order(epoch)] for epoch in range(count)]


def names(batches: Any) -> list[str]:
    return [name for batch, _ in batches for name in batch]


@pytest.mark.parametrize(("workers", "persistent"), WAYS)
@pytest.mark.parametrize(("kind", "every"), [("batches", 1), ("batches", 3), ("items", 1)])
def test_a_place_in_the_middle(dataset: Dataset, workers: int, persistent: bool, kind: str, every: int) -> None:
    first, second, third = epochs_of(dataset, 3)
    loader = loader_of(dataset, workers, persistent, kind, every)
    assert names(loader) == first
    used = names(islice(loader, 5))
    for count in (4, 1000):
        state = loader.state_dict()
        loader = loader_of(dataset, workers, persistent, kind, every)
        loader.load_state_dict(state)
        used += names(islice(loader, count))
    assert used == second
    assert names(loader) == third, "epochs after a resume are whole"


@pytest.mark.parametrize(("workers", "persistent"), WAYS)
@pytest.mark.parametrize("exhausted", [True, False])
def test_the_end_of_an_epoch(dataset: Dataset, workers: int, persistent: bool, exhausted: bool) -> None:
    first, second, third = epochs_of(dataset, 3)
    loader = loader_of(dataset, workers, persistent)
    # With all batches used, before or after the loader has noticed that there are no more.
    assert names(loader if exhausted else islice(loader, len(loader))) == first
    state = loader.state_dict()
    loader = loader_of(dataset, workers, persistent)
    loader.load_state_dict(state)
    assert names(loader) == second
    assert names(loader) == third
