"""Base class of contestants, and the exception of those that cannot run here."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol

from sets import Tree

# What a sample comes as: `bytes`, `memoryview`, an array of NumPy, a buffer of Arrow. All have a length and the buffer
# protocol.
Buffer = Any

# Orders in which samples are asked for.
SEQUENTIAL, SHUFFLED, LOCAL = "sequential", "shuffled", "local shuffle"


class Missing(Exception):
    """A contestant cannot run here; the message is the reason, and stands in its row."""


# CPU seconds so far of each process that serves a mount.
Clock = Callable[[], dict[int, float]]


class OpenFile(Protocol):
    """Opens a container as a file object: the plain file, or one that is slow and counts."""

    def __call__(self, path: Path) -> BinaryIO: ...


class Contestant(ABC):
    """A container of samples and one way to read it. Peers are imported by methods only: listing contestants needs none
    of them.

    The life of one: `build` once, `attach`, then `open`, `read` as often as wanted, `close`, and at last `detach`.
    Between `attach` and `detach`, several processes may open it.
    """

    label: ClassVar[str]  # of its row
    container: ClassVar[str]  # what `build` makes; contestants with the same container share it
    environment: ClassVar[str] = "peers"  # the virtual environment that it runs in
    sequential_only: ClassVar[bool] = False
    most_samples: ClassVar[int | None] = None  # of one measurement: the slow ones read fewer
    uses_threads: ClassVar[bool] = False  # `threads` changes what it does
    takes_file_object: ClassVar[bool] = False  # `open_file` is used
    only_sets: ClassVar[str] = "ISJ"
    only_slow: ClassVar[bool] = False  # takes part where requests are slow, not in the other cases

    def __init__(self, tree: Tree, place: Path, threads: int = 1, open_file: OpenFile | None = None) -> None:
        """`place` is the directory of the container; it exists while `build` runs and after."""
        self.tree = tree
        self.place = place
        self.threads = threads
        self.open_file = open_file

    @abstractmethod
    def version(self) -> str:
        """The version of what does the work. Raises Missing, or ImportError, if it cannot run here."""

    def recipe(self) -> str:
        """Recipe of the container; a container made by another recipe is made again."""
        return self.version()

    def build(self) -> None:
        """Make the container of all files, below `place`."""

    def size(self) -> int:
        """Bytes that the container takes on the disk."""
        return allocated(self.place)

    def attach(self) -> Clock | None:
        """Mount what must be mounted. Returns the clock of who serves it, whose CPU time is then counted."""
        return None

    def detach(self) -> None:
        """Undo `attach`."""

    @abstractmethod
    def open(self, order: str) -> None:
        """Make ready to read; `order` is a hint, as users can give it, too."""

    @abstractmethod
    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        """The samples with these ids, in this order. They stay valid until the next call."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def local_order(self, batch: int, seed: int, options: dict[str, int]) -> Iterator[list[int]]:
        """Batches of an epoch in an order of the contestant's own that saves requests, made while they are read, as it
        may announce what follows. It is open then. `options` are those of its sampler. Raises Missing.
        """
        raise Missing(f"{self.label} has no order of its own")


def allocated(path: Path) -> int:
    """Bytes of disk that a file, or all below a directory, takes."""
    total = os.lstat(path).st_blocks * 512
    for folder, directories, names in os.walk(path):
        total += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in (*directories, *names))
    return total


def run(command: Sequence[str | Path], what: str) -> None:
    """Run a program that builds. Raises RuntimeError with the end of what it said."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{what}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")


def program(path: Path | None, name: str, hint: str) -> Path:
    """The path of a program that is needed. Raises Missing."""
    if path is None or not path.exists():
        raise Missing(f"no {name}{f' at {path}' if path else ''}: {hint}")
    return path


def first_line(command: Sequence[str | Path]) -> str:
    """The first line of what a program says, such as its version."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, errors="replace", check=False
    )
    return ((done.stdout or done.stderr).splitlines() or ["unknown"])[0].strip()
