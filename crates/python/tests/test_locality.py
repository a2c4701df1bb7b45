"""Samplers without PyTorch: orders, ranks, states. Six of these tests are bugs that other libraries have had when an
epoch was resumed."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kilnfs import _storage
from kilnfs._locality import LocalityBatches, LocalityItems, _lanes
from kilnfs._samples import Samples
from samples_for_tests import make_set, pack

CHOICES: dict[str, Any] = {"block_bytes": 32 << 10, "window_blocks": 5}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    directory = tmp_path_factory.mktemp("locality")
    return Samples(pack(make_set(directory / "set"), directory / "set.erofs"))


def batches(dataset: Any, batch_size: int = 10, **choices: Any) -> LocalityBatches:
    return LocalityBatches(dataset, batch_size, **{**CHOICES, **choices})


def epoch_of(dataset: Any, epoch: int, **choices: Any) -> list[list[int]]:
    sampler = batches(dataset, **choices)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_an_epoch_is_a_permutation(samples: Samples) -> None:
    sampler = batches(samples, drop_last=False)
    given = list(sampler)
    visited = [row for batch in given for row in batch]
    count = len(samples)
    assert count % 10, "the last batch is shorter"
    assert sorted(visited) == list(range(count)), "each sample once"
    assert [len(batch) for batch in given] == [10] * (count // 10) + [count % 10]
    assert len(given) == len(sampler)
    assert visited == sampler.order(0).tolist()
    assert visited != sorted(visited)
    dropped = [row for batch in batches(samples) for row in batch]
    assert dropped == visited[: count // 10 * 10]


@pytest.mark.parametrize("lanes", [1, 5])
def test_the_last_batch_is_short_where_one_rank_takes_it(samples: Samples, lanes: int) -> None:
    for shuffle in (True, False):
        choices: dict[str, Any] = {**CHOICES, "lanes": lanes, "shuffle": shuffle, "drop_last": False}
        items = LocalityItems(samples, 50, **choices)
        assert sorted(items) == list(range(len(samples))) and len(items) == len(samples)
        sampler = LocalityBatches(samples, 50, **choices)
        given = list(sampler)
        assert sorted(sum(given, [])) == list(range(len(samples)))
        # A state of the last batch but one leads to it, and one of the end to the next epoch.
        iterator = iter(again := LocalityBatches(samples, 50, **choices))
        assert list(islice(iterator, len(given) - 1)) == given[:-1]
        resumed = LocalityBatches(samples, 50, **choices)
        resumed.load_state_dict(again.state_dict())
        assert list(resumed) == given[-1:]
        again = LocalityBatches(samples, 50, **choices)
        again.load_state_dict(resumed.state_dict())
        assert again.epoch == 1


def test_ranks_have_equally_many_batches_of_equally_many_samples(samples: Samples) -> None:
    count = len(samples)
    ranks = [list(batches(samples, rank=rank, world_size=3, drop_last=False)) for rank in range(3)]
    assert {len(batch) for rank in ranks for batch in rank} == {10} and count % 30
    assert {len(rank) for rank in ranks} == {-(-count // 30)}
    visited = [row for step in zip(*ranks, strict=True) for batch in step for row in batch]
    assert set(visited) == set(range(count))
    assert visited[count:] == visited[: len(visited) - count], "the start of the epoch fills the last step"
    assert visited == batches(samples, rank=0, world_size=3, drop_last=False).order(0).tolist()


def test_each_iteration_is_another_epoch_and_the_same_anywhere(samples: Samples) -> None:
    sampler = batches(samples)
    epochs = [list(sampler) for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert epochs == [epoch_of(samples, epoch) for epoch in range(3)]
    assert epochs[0] != epoch_of(samples, 0, seed=1)
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1]
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1], "it was asked for again"
    assert epoch_of(samples, 0, shuffle=False) == epoch_of(samples, 5, shuffle=False)


def test_loaders_that_call_iter_more_often_than_they_iterate(samples: Samples) -> None:
    sampler = batches(samples)
    iter(sampler), iter(sampler)
    assert list(sampler) == epoch_of(samples, 0)
    # An iteration that was left early: no batch of it comes again as the start of another.
    next(iter(sampler))
    assert sampler.epoch == 1
    assert list(sampler) == epoch_of(samples, 2)


def test_ranks_share_the_global_batches(samples: Samples) -> None:
    for world_size in (1, 2, 3, 6):
        ranks = [
            list(LocalityBatches(samples, 12 // world_size, rank=rank, world_size=world_size, **CHOICES))
            for rank in range(world_size)
        ]
        assert {len(rank) for rank in ranks} == {len(samples) // 12}
        together = [sum(parts, []) for parts in zip(*ranks, strict=True)]
        assert together == list(LocalityBatches(samples, 12, **CHOICES)), f"of {world_size} ranks"


def test_items_are_the_batches_one_by_one(samples: Samples) -> None:
    items = LocalityItems(samples, 10, **CHOICES)
    expected = epoch_of(samples, 0)
    assert len(items) == 10 * len(expected)
    iterator = iter(items)
    taken = list(islice(iterator, 25))
    assert taken == sum(expected, [])[:25]
    assert items.state_dict()["position"] == 20, "only whole batches count"
    resumed = LocalityItems(samples, 10, **CHOICES)
    resumed.load_state_dict(items.state_dict())
    assert list(resumed) == sum(expected[2:], [])
    assert list(resumed) == sum(epoch_of(samples, 1), [])


def test_a_subset_is_visited_and_nothing_else(samples: Samples) -> None:
    subset = [row for row in range(len(samples)) if row % 3 == 1]
    sampler = batches(samples, subset=subset, drop_last=False)
    assert {row for batch in sampler for row in batch} == set(subset)
    assert set(sampler.order(4)) == set(subset)

    class Subset:
        """As `torch.utils.data.Subset`, and as `random_split` makes."""

        def __init__(self, dataset: Any, indices: list[int]) -> None:
            self.dataset, self.indices = dataset, indices

    places = [[subset[place] for place in batch] for batch in batches(Subset(samples, subset), drop_last=False)]
    assert places == epoch_of(samples, 0, subset=subset, drop_last=False), "its own numbers, the same samples"
    nested = Subset(Subset(samples, subset), list(range(0, len(subset), 2)))
    assert {place for batch in batches(nested, drop_last=False) for place in batch} == set(range(len(nested.indices)))
    for row in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError, match=f"sample {row} of {len(samples)}"):
            batches(samples, subset=[0, row])
    again = pickle.loads(pickle.dumps(sampler))
    assert again.state_dict() == {**sampler.state_dict(), "epoch": 1, "position": 0}
    assert list(again) == epoch_of(samples, 1, subset=subset, drop_last=False)


def test_states_are_small_plain_and_complete(samples: Samples) -> None:
    sampler = batches(samples)
    iterator = iter(sampler)
    list(islice(iterator, 4))
    state = sampler.state_dict()
    assert json.loads(json.dumps(state)) == state and len(json.dumps(state)) < 400
    assert (state["epoch"], state["position"]) == (0, 40)
    fields = (
        "algorithm seed epoch position n_samples batch_global lanes block_bytes window_blocks image_uuid index_digest"
    )
    assert set(fields.split()) <= set(state)
    resumed = batches(samples)
    resumed.load_state_dict(state)
    assert list(resumed) == list(iterator)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("algorithm", 2),
        ("image_uuid", "0" * 32),
        ("index_digest", "0" * 32),
        ("n_samples", 5),
        ("seed", 1),
        ("shuffle", False),
        ("drop_last", False),
        ("batch_global", 20),
        ("lanes", 2),
        ("block_bytes", 4096),
        ("window_blocks", 6),
        ("epoch", -1),
        ("epoch", "1"),
        ("position", 5),
        ("position", 10**9),
        ("position", -10),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_its_field(samples: Samples, field: str, other: Any) -> None:
    sampler = batches(samples)
    state = sampler.state_dict()
    with pytest.raises(ValueError) as caught:
        sampler.load_state_dict({**state, field: other})
    assert str(caught.value).startswith(f"{field} of the saved state is {other!r}, but ")
    if field not in ("epoch", "position"):
        assert repr(state[field]) in str(caught.value)
    with pytest.raises(ValueError, match=f"^{field} of the saved state is missing"):
        sampler.load_state_dict({name: value for name, value in state.items() if name != field})
    assert list(sampler) == epoch_of(samples, 0), "what was refused has changed nothing"


def test_ranks_may_be_others_after_a_resume(samples: Samples) -> None:
    two = LocalityBatches(samples, 6, rank=1, world_size=2, **CHOICES)
    list(islice(two, 3))
    three = [LocalityBatches(samples, 4, rank=rank, world_size=3, **CHOICES) for rank in range(3)]
    for rank in three:
        rank.load_state_dict(two.state_dict())
    together = [sum(parts, []) for parts in zip(*three, strict=True)]
    assert together == list(LocalityBatches(samples, 12, **CHOICES))[3:]


# What other libraries have had.


def saved_after(dataset: Any, count: int, epoch: int = 0) -> dict[str, Any]:
    sampler = batches(dataset)
    sampler.set_epoch(epoch)
    list(islice(sampler, count))
    return sampler.state_dict()


def test_torchdata_1437_no_epoch_is_dropped_after_a_resume_at_its_end(samples: Samples) -> None:
    steps = len(batches(samples))
    resumed = batches(samples)
    resumed.load_state_dict(saved_after(samples, steps))
    # StatefulDataLoader restores an iteration that had ended, lets workers ask for batches, drops it, and begins a new
    # one.
    restored = iter(resumed)
    list(islice(restored, 4))
    epochs = [list(resumed) for _ in range(2)]
    assert epochs == [epoch_of(samples, 1), epoch_of(samples, 2)]


def test_torchdata_1513_the_epoch_is_restored(samples: Samples) -> None:
    resumed = batches(samples)
    resumed.load_state_dict(saved_after(samples, 5, epoch=3))
    assert resumed.epoch == 3
    assert list(resumed) == epoch_of(samples, 3)[5:]
    assert list(resumed) == epoch_of(samples, 4)


def test_verl_7401_a_state_of_the_end_of_an_epoch_is_the_start_of_the_next(samples: Samples) -> None:
    steps = len(batches(samples))
    state = saved_after(samples, steps, epoch=2)
    resumed = batches(samples)
    resumed.load_state_dict(state)
    assert resumed.epoch == 3
    # A loop as trainers write it, which begins with the sampler's epoch: no epoch is empty, none is skipped.
    for epoch in range(resumed.epoch, 5):
        resumed.set_epoch(epoch)
        assert list(resumed) == epoch_of(samples, epoch)


def test_accelerate_4233_batches_are_skipped_in_the_permutation_of_their_epoch(samples: Samples) -> None:
    for epoch in (1, 2):
        state = saved_after(samples, 7, epoch=epoch)
        for set_first in (True, False):
            resumed = batches(samples)
            if set_first:
                resumed.set_epoch(epoch)
            resumed.load_state_dict(state)
            if not set_first:
                resumed.set_epoch(epoch)
            assert list(resumed) == epoch_of(samples, epoch)[7:]


def test_datasets_7447_epochs_after_a_resume_have_their_full_length(samples: Samples) -> None:
    steps = len(batches(samples))
    resumed = batches(samples)
    resumed.load_state_dict(saved_after(samples, 9))
    assert [len(list(resumed)) for _ in range(4)] == [steps - 9, steps, steps, steps]
    assert len(resumed) == steps, "the length is that of an epoch"


def test_kempnerforge_57_a_second_resume_is_as_exact_as_the_first(samples: Samples) -> None:
    expected = epoch_of(samples, 0)

    def train(sampler: LocalityBatches, count: int, ahead: int) -> tuple[list[list[int]], dict[str, Any]]:
        """As a loader does it whose workers ask for `ahead` batches more than are used."""
        iterator = iter(sampler)
        drawn = list(islice(iterator, count + ahead))
        return drawn[:count], sampler.state_dict(batches=count)

    used, state = train(batches(samples), 3, 4)
    for count in (5, 2, 6):
        resumed = batches(samples)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        more, state = train(resumed, count, 4)
        used += more
    assert used == expected[: 3 + 5 + 2 + 6]


def test_veomni_the_restored_place_is_used_once(samples: Samples) -> None:
    resumed = batches(samples)
    resumed.load_state_dict(saved_after(samples, 8, epoch=1))
    for epoch in range(1, 4):
        resumed.set_epoch(epoch)
        assert list(resumed) == epoch_of(samples, epoch)[8 if epoch == 1 else 0 :]
    resumed.load_state_dict(saved_after(samples, 8, epoch=1))
    resumed.set_epoch(2)
    assert list(resumed) == epoch_of(samples, 2), "another epoch begins at its start"


def test_batches_that_were_used_cannot_be_more_than_were_handed_out(samples: Samples) -> None:
    sampler = batches(samples)
    assert sampler.state_dict(batches=0)["position"] == 0
    with pytest.raises(ValueError, match="batches is 1, but this iteration has returned 0"):
        sampler.state_dict(batches=1)
    list(islice(sampler, 6))
    assert sampler.state_dict(batches=6)["position"] == 60
    assert sampler.state_dict(batches=2)["position"] == 20
    with pytest.raises(ValueError, match="batches is 7, but this iteration has returned 6"):
        sampler.state_dict(batches=7)


def test_setting_the_epoch_that_is_being_read_does_not_lose_its_place(samples: Samples) -> None:
    sampler = batches(samples)
    iterator = iter(sampler)
    list(islice(iterator, 3))
    sampler.set_epoch(0)
    next(iterator)
    assert sampler.state_dict()["position"] == 40
    sampler.set_epoch(2)
    next(iterator)
    assert (sampler.state_dict()["epoch"], sampler.state_dict()["position"]) == (2, 0), (
        "nobody asks that iteration any more"
    )
    assert list(sampler) == epoch_of(samples, 2)


def test_copies_and_pickles_go_on_where_the_sampler_stands(samples: Samples) -> None:
    sampler = batches(samples)
    iterator = iter(sampler)
    list(islice(iterator, 5))
    pickled, copied = pickle.loads(pickle.dumps(sampler)), copy.copy(sampler)
    expected = epoch_of(samples, 0)[5:]
    assert list(pickled) == list(copied) == list(iterator) == expected
    assert list(pickled) == list(sampler) == epoch_of(samples, 1)
    assert list(pickle.loads(pickle.dumps(sampler))) == epoch_of(samples, 2)


def test_samples_are_announced_before_they_are_read_and_once(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[list[int]] = []

    class Order:
        """The native order, overheard."""

        def __init__(self, order: Any) -> None:
            self._order = order

        def __getattr__(self, name: str) -> Any:
            return getattr(self._order, name)

        def upcoming(self, *where: int) -> Any:
            rows = self._order.upcoming(*where)
            announced.append(list(rows))
            return rows

    sampler = batches(samples)
    monkeypatch.setattr(sampler, "_order", Order(sampler._order))
    read: list[list[int]] = list(sampler)
    rows = [row for part in announced for row in part]
    assert len(rows) == len(set(rows)), "nothing is announced twice"
    assert len(announced) == len(read)
    seen: set[int] = set()
    known: set[int] = set()
    late = 0
    for batch, part in zip(read, announced, strict=True):
        late += sum(row in known and row not in seen for row in batch)
        seen |= set(batch)
        known |= set(part)
    assert late > len(samples) // 2, "most samples were announced when they are read"
    assert max(map(len, announced)) < len(samples) // 3, "evenly"
    silent = batches(samples, prefetch=False)
    monkeypatch.setattr(silent, "_order", Order(silent._order))
    announced.clear()
    list(silent)
    assert announced == []


def test_arguments_are_checked_by_name(samples: Samples) -> None:
    for wrong, message in [
        ({"batch_size": 0}, "batch_size is 0, but must be 1 or more"),
        ({"seed": -1}, "seed is -1"),
        ({"rank": 2, "world_size": 2}, "rank is 2, but must be below world_size, which is 2"),
        ({"lanes": 0}, "lanes is 0"),
        ({"lanes": 3}, "lanes"),
        ({"block_bytes": 0}, "block_bytes is 0"),
        ({"window_blocks": 0}, "window_blocks is 0"),
        ({"window_bytes": 0}, "window_bytes is 0"),
        ({"batch_size": 100_000}, "use drop_last=False"),
    ]:
        with pytest.raises(ValueError, match=message):
            batches(samples, **{"batch_size": 10, **wrong})
    for wrong in ({"batch_size": "10"}, {"seed": 1.5}, {"window_blocks": "all"}, {"block_bytes": "4M"}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            batches(samples, **{"batch_size": 10, **wrong})
    with pytest.raises(TypeError, match="neither a dataset of kilnfs nor an index"):
        LocalityBatches([1, 2, 3], 2)
    with pytest.raises(ValueError, match="epoch is -1"):
        batches(samples).set_epoch(-1)


def test_reports_say_how_well_batches_are_mixed(samples: Samples) -> None:
    wide, narrow = (
        batches(samples, window_blocks=1000).report(),
        batches(samples, window_blocks=1, batch_size=8).report(),
    )
    assert wide["dispersion"] < 1.3 < narrow["dispersion"]
    labels = [row % 2 for row in range(len(samples))]
    assert batches(samples, window_blocks=1000).report(labels)["dispersion"] < 1.5


def test_a_window_that_was_limited_is_told(samples: Samples) -> None:
    with pytest.warns(UserWarning, match="limited to 2 blocks by window_bytes"):
        LocalityBatches(samples, 10, block_bytes=32 << 10, window_bytes=64 << 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # All blocks are in the window as it is.
        LocalityBatches(samples, 10, block_bytes=1 << 20, window_bytes=100 << 20)


def test_blocks_by_where_an_image_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _storage.window_bytes(64 << 20) == 20 << 20
    assert _storage.block_bytes("s3://bucket/set.erofs", 64 << 20) == (20 << 20) // 6
    assert _storage.block_bytes(str(tmp_path / "nothing"), None) == 4 << 20
    assert _storage.block_bytes(str(tmp_path), None) in (256 << 10, 4 << 20)
    monkeypatch.setattr(_storage, "_is_flash", lambda device: True)
    monkeypatch.setattr(_storage, "_block_device", lambda device: device)
    assert _storage.block_bytes(str(tmp_path), None) == 256 << 10
    monkeypatch.setattr(_storage, "_is_flash", lambda device: False)
    monkeypatch.setattr(_storage, "_in_memory", lambda device: False)
    assert _storage.block_bytes(str(tmp_path), None) == 4 << 20
    monkeypatch.setattr(_storage, "_in_memory", lambda device: True)
    assert _storage.block_bytes(str(tmp_path), None) == 256 << 10
    assert 0 < _storage.window_bytes(None) <= 1 << 30


def test_a_lane_for_each_node_that_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert _lanes("s3://bucket/set.erofs", 16) == 4
    assert _lanes("/data/set.erofs", 16) == 1
    assert _lanes("s3://bucket/set.erofs", 6) == 1, "nodes are not alike"
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert _lanes("s3://bucket/set.erofs", 16) == 1


def test_an_image_behind_a_url(samples: Samples) -> None:
    pytest.importorskip("fsspec")
    import fsspec

    with open(samples.image.name, "rb") as image:
        fsspec.filesystem("memory").pipe("/locality/set.erofs", image.read())
    remote = Samples("memory://locality/set.erofs")
    sampler = LocalityBatches(remote, 10, window_blocks=5)
    assert (sampler.block_bytes, sampler.window_bytes) == ((20 << 20) // 6, 20 << 20)
    for batch in sampler:
        assert remote.__getitems__(batch) == samples.__getitems__(batch)
    again = pickle.loads(pickle.dumps(sampler))
    assert list(again) == epoch_of(samples, 1, block_bytes=2 << 20)


def test_no_samples(samples: Samples) -> None:
    empty = batches(samples, subset=[])
    assert len(empty) == 0 and list(empty) == list(empty) == []
    state = empty.state_dict()
    empty.load_state_dict(state)
    assert list(empty) == []


def test_the_fetcher_of_pytorch_reads_a_batch_at_once(samples: Samples) -> None:
    """What `torch.utils.data._utils.fetch._MapDatasetFetcher.fetch` does, and `DataLoader` with `batch_sampler`,
    without PyTorch."""

    def loader(dataset: Any, sampler: LocalityBatches, collate: Any) -> Iterator[Any]:
        for indices in sampler:
            assert hasattr(dataset, "__getitems__") and dataset.__getitems__
            yield collate(dataset.__getitems__(indices))

    sampler = batches(samples)
    rows = epoch_of(samples, 0)
    count = 0
    for expected, batch in zip(rows, loader(samples, sampler, lambda data: data), strict=True):
        assert list(batch) == [samples[row] for row in expected]
        assert b"".join(data for data, _ in batch) == bytes(batch.batch.data)
        count += len(batch)
    assert count == len(rows) * 10


class Loader:
    """Loader of PyTorch with workers, as a sampler sees it: batches are asked for ahead of those that are passed on."""

    def __init__(self, sampler: Any, workers: int = 2, prefetch: int = 2) -> None:
        self._batches, self._num_workers, self._prefetch = iter(sampler), workers, prefetch
        self._send_idx = self._rcvd_idx = 0
        self._sent: list[Any] = []

    def _next_index(self) -> Any:
        return next(self._batches)

    def _put(self) -> None:
        try:
            self._sent.append(self._next_index())
        except StopIteration:
            return
        self._send_idx += 1

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._num_workers * self._prefetch or 1):
            self._put()
        while self._sent:
            batch = self._sent.pop(0)
            self._rcvd_idx += 1
            if self._num_workers:
                self._put()
            yield batch
            if not self._num_workers:
                self._put()


def test_a_state_that_workers_have_drawn_ahead_of_is_refused(samples: Samples) -> None:
    sampler = batches(samples)
    loader = Loader(sampler)
    for number, _ in enumerate(loader):
        if number == 4:
            break
    with pytest.raises(ValueError, match=r"requested batches up to 9 of epoch 0.*state_dict\(batches=\.\.\.\)"):
        sampler.state_dict()
    assert sampler.state_dict(batches=number + 1)["position"] == 50
    del loader
    with pytest.raises(ValueError, match="state_dict"):
        sampler.state_dict()
    # An epoch that was used to its end.
    sampler = batches(samples)
    loader = Loader(sampler)
    assert len(list(loader)) == sampler.steps
    assert sampler.state_dict()["position"] == sampler.steps * 10
    # Without workers nothing is drawn ahead.
    sampler = batches(samples)
    for number, _ in enumerate(Loader(sampler, workers=0)):
        assert sampler.state_dict()["position"] == 10 * (number + 1)
        if number == 3:
            break
