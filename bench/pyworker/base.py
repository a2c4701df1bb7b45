"""Base of the contestants: a container of samples, its version, and one way to read it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from lib.suite import Missing
from pyworker.environment import why
from pyworker.sets import Tree

# What a sample comes as: `bytes`, `memoryview`, an array of NumPy, a buffer of Arrow. All have a length and the buffer
# protocol.
Buffer = Any
# Orders in which samples are asked for. The last one is the reader's own.
SEQUENTIAL, SHUFFLED, LOCAL = "sequential", "shuffled", "local shuffle"


class Contestant(ABC):
    """A container and a way to read it. Peers are imported by methods only: listing contestants needs none of them.

    Its life: `build` once in one process; in others `open`, `read` as often as wanted, `close`."""

    label: ClassVar[str]
    call: ClassVar[str]  # as one types it
    container: ClassVar[str]  # file or directory that `build` makes; contestants may share one
    distribution: ClassVar[str] = ""  # that does the work; empty: Python itself
    environment: ClassVar[str] = "peers"
    builder: ClassVar[str] = ""  # program that makes the container instead of `build`, with `options`
    server: ClassVar[str] = ""  # what mounts the container: a name of `lib.mounts`, or tmpfs
    sequential_only: ClassVar[bool] = False
    most_samples: ClassVar[int | None] = None  # of one measurement: slow ones read fewer
    only_sets: ClassVar[Sequence[str]] = ("photos", "texts", "pictures")

    def __init__(
        self, tree: Tree, file: Path, threads: int = 1, open_file: Callable[[Path], BinaryIO] | None = None
    ) -> None:
        """`file` is the container; of a mounted one, the directory where it is mounted."""
        self.tree, self.file, self.threads, self.open_file = tree, file, threads, open_file

    @classmethod
    def options(cls, of_set: str) -> str:
        """Returns the options of the builder for a set."""
        return ""

    def version(self) -> str:
        """Returns the version of what does the work. Raises Missing if it is not here."""
        return version(self.distribution) if self.distribution else f"Python {platform.python_version()}"

    def build(self) -> None:  # noqa: B027
        """Makes the container of all files."""

    @abstractmethod
    def open(self, order: str) -> None:
        """Makes ready to read; `order` is a hint, as users can give it, too."""

    @abstractmethod
    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        """Returns the samples with these ids, in this order. They stay valid until the next call."""

    def close(self) -> None:  # noqa: B027
        """Lets go of everything."""

    def local_order(self, batch: int, options: dict[str, int]) -> Iterator[list[int]]:
        """Yields batches of an epoch in an order of the contestant's own, which saves requests. Raises Missing."""
        raise Missing(f"{self.label} has no order of its own")


def version(distribution: str) -> str:
    """Returns name and version of a distribution. Raises Missing if it is not here."""
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        raise Missing(why(distribution)) from None


def allocated(path: Path) -> int:
    """Bytes of disk that a file, or all below a directory, takes."""
    total = os.lstat(path).st_blocks * 512
    for folder, directories, names in os.walk(path):
        total += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in (*directories, *names))
    return total
