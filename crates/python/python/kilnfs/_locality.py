"""Block-window shuffle as a sampler without PyTorch: the samples of each batch, the position in an
epoch, and its restoring.

`kilnfs.torch` turns it into samplers of PyTorch by another base class.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _storage
from ._samples import chosen

if TYPE_CHECKING:
    from ._native import Image, LocalityOrder

ALGORITHM = 1
"""Version of the algorithm that derives the order from blocks and options."""

_Item = TypeVar("_Item")


class Locality(Generic[_Item]):
    """Batches of a dataset in an order that is random for training and local for storage: the
    block-window shuffle.

    Samples are read by blocks of adjacent stored data. Blocks are in random order, and samples of
    `window_blocks` blocks are mixed. The order of an epoch is a function of the arguments. It does
    not depend on the number of ranks (as long as `batch_size * world_size` stays the same), on the
    number of workers, or on earlier reads, so an epoch can continue at any batch.

    * `dataset`: a `kilnfs.Samples` or an object of a derived class, a `torch.utils.data.Subset` of
      one, or a `kilnfs.Index` that is bound to its image.
    * `batch_size`: number of samples of a rank in each step. `rank`: number of this process, of
      `world_size` processes.
    * `lanes`: number of parts of the dataset from which each step takes equally many samples. 1 for
      local images; the number of nodes if each node fetches its own data.
    * `block_bytes`, `window_blocks`: "auto", or numbers. By default, blocks have 256 KiB on an SSD,
      4 MiB on other local storage, 3.3 MiB for sources with a cache of kilnfs (URLs, file objects).
      Windows have 64 blocks if data is stored in random order, else 256, or 4 for each sample of a
      step if that is more. `window_bytes` limits them: 1 GiB, or a quarter of the memory; five
      sixteenths of the cache of kilnfs.
    * `subset`: only these samples, by their number in the dataset.
    * `shuffle=False`: samples in stored order. `drop_last`: True to leave out samples that do not
      fill the last step. Otherwise they are a shorter batch, as with PyTorch's samplers, and each
      sample comes once. With `world_size` above 1, samples from the start of the epoch fill the
      last step instead, and come twice, as with PyTorch's `DistributedSampler`: all ranks have
      equally many batches of `batch_size`.
    * `prefetch`: True to announce the next blocks to the system.

    Each iteration is an epoch: the one that was set, and the next one after each iteration that
    returned batches.

    >>> from kilnfs._locality import LocalityBatches
    >>> sampler = LocalityBatches(kilnfs.Samples("train.erofs"), 1, seed=4)
    >>> first, second = list(sampler), list(sampler)
    >>> sorted(first), sorted(second), sampler.epoch
    ([[0], [1], [2]], [[0], [1], [2]], 1)
    >>> sampler.set_epoch(0)
    >>> batches = iter(sampler)
    >>> [next(batches), next(batches)] == first[:2]
    True
    >>> resumed = LocalityBatches(kilnfs.Samples("train.erofs"), 1, seed=4)
    >>> resumed.load_state_dict(sampler.state_dict())
    >>> list(resumed) == first[2:], list(resumed) == second
    (True, True)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        lanes: int | None = None,
        block_bytes: int | str = "auto",
        window_blocks: int | str = "auto",
        window_bytes: int | None = None,
        subset: Sequence[int] | None = None,
        shuffle: bool = True,
        drop_last: bool = True,
        prefetch: bool = True,
    ) -> None:
        here = self._world()
        self.rank = _whole("rank", here[0] if rank is None else rank, 0)
        """Number of this process, from 0 on."""
        self.world_size = _whole("world_size", here[1] if world_size is None else world_size, 1)
        """Number of processes."""
        if self.rank >= self.world_size:
            raise ValueError(f"rank is {self.rank}, but must be below world_size, which is {self.world_size}")
        self.batch_size = _whole("batch_size", batch_size, 1)
        """Number of samples of this process in a step."""
        self.seed = _whole("seed", seed, 0)
        """Seed of the order."""
        self.shuffle = bool(shuffle)
        """True if the order is random; otherwise it is that of storage."""
        self.drop_last = bool(drop_last)
        """True if samples that do not fill the last step are left out."""
        self._prefetch = bool(prefetch)
        self._dataset = dataset
        self._index, self._rows, self._places = chosen(dataset, subset)
        name = self._image.name
        cache: int | None = getattr(self._image, "_source_cache", None)
        self.lanes = _lanes(name, self.world_size) if lanes is None else _whole("lanes", lanes, 1)
        """Number of parts of the dataset from which each step takes equally many samples."""
        self.block_bytes = (
            _storage.block_bytes(name, cache) if block_bytes == "auto" else _whole("block_bytes", block_bytes, 1)
        )
        """Number of stored bytes of a block."""
        self._window_blocks = None if window_blocks == "auto" else _whole("window_blocks", window_blocks, 1)
        self.window_bytes = _storage.window_bytes(cache) if window_bytes is None else _whole("window_bytes", window_bytes, 1)
        """Largest number of stored bytes of a window."""
        self._order = self._new_order()
        if self._order.window_capped and self._order.blocks > self._order.window_blocks * self.lanes:
            warnings.warn(
                f"the window is limited to {self._order.window_blocks} blocks by window_bytes, {self.window_bytes}: "
                "report() shows the effect",
                stacklevel=2,
            )
        if len(self._index) and not self._order.steps:
            raise ValueError(
                f"{len(self._index)} samples are fewer than a batch of {self.batch_global} of all ranks: "
                "use drop_last=False"
            )
        # Start of the next iteration (epoch, step) if it was set; otherwise it is the next epoch.
        self._start: tuple[int, int] | None = (0, 0)
        # Position (epoch, step) behind the last returned batch.
        self._at = (0, 0)
        self._forget_iterations()

    # The iteration that was used last, and the start of one that a loader starts, drops and starts
    # again.
    def _forget_iterations(self, again: tuple[int, int] | None = None) -> None:
        self._last: _Iteration | None = None
        self._again = again

    def _new_order(self) -> LocalityOrder:
        from ._native import LocalityOrder

        return LocalityOrder(
            self._index,
            self.batch_global,
            seed=self.seed,
            lanes=self.lanes,
            block_bytes=self.block_bytes,
            window_blocks=self._window_blocks,
            window_bytes=self.window_bytes,
            shuffle=self.shuffle,
            last_batch="drop" if self.drop_last else "short" if self.world_size == 1 else "fill",
        )

    def _world(self) -> tuple[int, int]:
        """Returns the default rank and world size."""
        return 0, 1

    @property
    def _image(self) -> Image:
        image = self._index.image
        if image is None:
            raise ValueError("the index is not bound to an image: use `bind`")
        return image

    @property
    def batch_global(self) -> int:
        """Number of samples of a step, of all ranks together."""
        return self.batch_size * self.world_size

    @property
    def steps(self) -> int:
        """Number of batches of each rank in an epoch."""
        return self._order.steps

    @property
    def window_blocks(self) -> int:
        """Number of blocks whose samples are mixed, in each lane."""
        return self._order.window_blocks

    @property
    def epoch(self) -> int:
        """Epoch that is being read, or that the first iteration will read."""
        return self._at[0]

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. Keeps the position that `load_state_dict` has
        restored if it is in this epoch."""
        epoch = _whole("epoch", epoch, 0)
        if self._start is not None and self._start[0] == epoch:
            return
        self._start = (epoch, 0)
        if self._at[0] != epoch or self._at[1] >= self.steps:
            # Iterations that are under way are not used any more.
            self._at = self._start
            self._forget_iterations()

    def order(self, epoch: int) -> memoryview:
        """Returns all samples of an epoch, of all ranks, in the order of their visit: 'I'. Includes
        samples that fill the last step of several ranks."""
        order = self._order.order(_whole("epoch", epoch, 0))
        places = self._places
        return order if places is None else memoryview(array("I", [places[row] for row in order]))

    def report(self, labels: Sequence[int] | None = None) -> dict[str, float]:
        """Returns figures about the mixing of the order and its reads: see `LocalityOrder.report`.
        `labels` are those of all samples of the dataset, by default those of the index."""
        column: Any = labels
        if labels is None:
            column = self._index.labels
        elif self._rows is not None:
            column = array("I", [labels[row] for row in self._rows])
        elif not isinstance(labels, (memoryview, array, bytes, bytearray)):
            column = array("I", labels)
        return self._order.report(self.epoch, column)

    # The state: the arguments of the order, and the position in it.

    def _identity(self) -> dict[str, Any]:
        return {
            "algorithm": ALGORITHM,
            "image_uuid": self._index.uuid.hex(),
            "index_digest": self._index.digest[:16].hex(),
            "n_samples": len(self._index),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "batch_global": self.batch_global,
            "lanes": self.lanes,
            "block_bytes": self.block_bytes,
            "window_blocks": self.window_blocks,
        }

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Returns the position in the epoch, for `load_state_dict`: numbers and text, about 300
        bytes as JSON.

        Loaders with workers request batches before training uses them. With such a loader, pass the
        number of `batches` that training has used in this iteration: `for i, batch in
        enumerate(loader): …; state = sampler.state_dict(batches=i + 1)`. Without it, ValueError is
        raised while the loader has batches that training has not used.
        `torchdata.stateful_dataloader` counts itself. """
        epoch, step = self._at
        if batches is None and self._last is not None and self._last.is_ahead(self.steps):
            raise ValueError(
                f"the loader's workers have requested batches up to {step} of epoch {epoch}, and training has not used "
                "all of them: pass the number of used batches of this iteration, state_dict(batches=...)"
            )
        if batches is not None:
            batches = _whole("batches", batches, 0)
            drawn = 0
            if self._last is not None:
                epoch, step, drawn = self._last.epoch, self._last.first, self._last.step - self._last.first
            if batches > drawn:
                raise ValueError(f"batches is {batches}, but this iteration has returned {drawn}")
            step += batches
        return {**self._identity(), "epoch": epoch, "position": step * self.batch_global}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the position of `state_dict`: the next iteration begins with the next batch of
        the same epoch, or with the next epoch if that one was complete.

        Raises ValueError that names the field for a state of another order.
        """
        for field, expected in self._identity().items():
            found = state.get(field)
            if found != expected or isinstance(found, bool) != isinstance(expected, bool):
                raise ValueError(
                    f"{field} of the saved state is {_shown(state, field)}, but that of this sampler is {expected!r}"
                )
        epoch, position = (state.get(field) for field in ("epoch", "position"))
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
            raise ValueError(
                f"epoch of the saved state is {_shown(state, 'epoch')}, but must be an integer, 0 or more"
            )
        batch, end = self.batch_global, self.steps * self.batch_global
        if not isinstance(position, int) or isinstance(position, bool) or not 0 <= position <= end or position % batch:
            raise ValueError(
                f"position of the saved state is {_shown(state, 'position')}, but must be a multiple of {batch} "
                f"(batch_global) and at most {end}"
            )
        complete = position == end and end > 0
        self._start = self._at = (epoch + 1, 0) if complete else (epoch, position // batch)
        # StatefulDataLoader restores the end of an epoch in an iteration that it drops at once,
        # after workers have requested batches.
        self._forget_iterations(again=self._start if complete else None)

    # Iterations. Their start is determined at their first batch, because loaders call `iter` more
    # often than they iterate.

    def _begin(self, iteration: _Iteration) -> None:
        incomplete = self._last is not None and self._last.step < self.steps
        if self._start is not None:
            iteration.epoch, iteration.first = self._start
        elif self._again is not None and incomplete:
            iteration.epoch, iteration.first = self._again
            self._again = None
        else:
            iteration.epoch, iteration.first = self._at[0] + 1, 0
            self._again = None
        self._start = None
        iteration.step = iteration.first
        iteration.loader = _loader_with_workers()
        self._last, self._at = iteration, (iteration.epoch, iteration.first)

    def _draw(self, iteration: _Iteration) -> list[int]:
        """Returns the next batch; `_done` confirms it."""
        if iteration.step < 0:
            self._begin(iteration)
        if iteration.step >= self.steps:
            raise StopIteration
        where = (iteration.epoch, iteration.step, self.rank, self.world_size)
        if self._prefetch:
            # The first window was not announced by an earlier one: it is announced at once.
            begins = iteration.step == iteration.first
            try:
                for rows in (self._order.underway(*where) if begins else (), self._order.upcoming(*where)):
                    if len(rows):
                        self._image.prefetch(self._index, rows=rows)
            except OSError:
                pass  # only a hint: a read reports the error
        batch = self._order.batch(*where)
        places = self._places
        return batch.tolist() if places is None else [places[row] for row in batch]

    def _done(self, iteration: _Iteration) -> None:
        iteration.step += 1
        if self._last is iteration:
            self._at = (iteration.epoch, iteration.step)

    # A copy or a pickle begins at the position of this object.

    def __getstate__(self) -> dict[str, Any]:
        epoch, step = self._at
        start = self._start or ((epoch + 1, 0) if step and step >= self.steps else (epoch, step))
        left_out = ("_order", "_index", "_rows", "_places", "_last", "_again")
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return {**state, "_start": start, "_at": start, "_subset": self._places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        subset = state.pop("_subset")
        self.__dict__.update(state)
        self._index, self._rows, self._places = chosen(self._dataset, subset)
        self._forget_iterations()
        self._order = self._new_order()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__}.{type(self).__qualname__} of {len(self._index)} samples, "
            f"{self.steps} batches of {self.batch_size} for rank {self.rank} of {self.world_size}, epoch {self.epoch}>"
        )


class LocalityBatches(Locality[list[int]]):
    """Sampler of batches of a rank: lists of sample numbers."""

    def __iter__(self) -> Iterator[list[int]]:
        return _Batches(self)

    def __len__(self) -> int:
        return self.steps


class LocalityItems(Locality[int]):
    """Sampler of single samples, for loaders that make batches of `batch_size` themselves."""

    def __iter__(self) -> Iterator[int]:
        return _Items(self)

    def __len__(self) -> int:
        whole = self.steps * self.batch_size
        return whole if self.drop_last or self.world_size > 1 else len(self._index)


class _Iteration:
    """Position of one iteration. It has no state for stateful loaders: the sampler has it."""

    def __init__(self, sampler: Locality[Any]) -> None:
        self.sampler = sampler
        self.epoch = self.first = 0
        self.step = -1  # not begun
        self.loader: Callable[[], Any] | None = None
        """Weak reference to the loader's iterator, if it requests batches ahead of training."""

    def is_ahead(self, steps: int) -> bool:
        """Returns true if a loader with workers has batches that it has not returned to
        training."""
        if self.loader is None or self.step <= self.first:
            return False
        loader = self.loader()
        sent, received = getattr(loader, "_send_idx", None), getattr(loader, "_rcvd_idx", None)
        if isinstance(sent, int) and isinstance(received, int):
            return received < sent
        # The loader's iterator is gone, or of another class: the number of returned batches is
        # unknown.
        return self.step < steps


class _Batches(_Iteration, Iterator[list[int]]):
    def __next__(self) -> list[int]:
        batch = self.sampler._draw(self)
        self.sampler._done(self)
        return batch


class _Items(_Iteration, Iterator[int]):
    _left: Iterator[int] = iter(())
    _count = 0

    def __next__(self) -> int:
        if not self._count:
            batch = self.sampler._draw(self)
            self._left, self._count = iter(batch), len(batch)
        self._count -= 1
        if not self._count:
            # Positions are counted in whole batches.
            self.sampler._done(self)
        return next(self._left)


def _loader_with_workers() -> Callable[[], Any] | None:
    """Returns a weak reference to the iterator of PyTorch's DataLoader that requests a batch now,
    if it has workers: such an iterator requests batches before training uses them, which a sampler
    cannot see otherwise.

    The iterator of torchdata's StatefulDataLoader does not count: it takes a state with each batch.
    """
    frame = sys._getframe(2)
    for _ in range(8):
        if frame.f_code.co_name == "_next_index":
            loader = frame.f_locals.get("self")
            stateful = type(loader).__module__.startswith("torchdata.")
            return weakref.ref(loader) if getattr(loader, "_num_workers", 0) and not stateful else None
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _lanes(name: str, world_size: int) -> int:
    """Returns the number of nodes, from torchrun, if each node fetches its own data; else 1."""
    if not _storage.is_remote(name):
        return 1
    try:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", ""))
    except ValueError:
        return 1
    return world_size // local if local > 0 and world_size % local == 0 else 1


def _whole(field: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{field} is {value!r}, but must be an integer")
    number = int(value.__index__())
    if number < least:
        raise ValueError(f"{field} is {number}, but must be {least} or more")
    return number


def _shown(state: dict[str, Any], field: str) -> str:
    return repr(state[field]) if field in state else "missing"
