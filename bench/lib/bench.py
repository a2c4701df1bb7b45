"""The state of a run, which tables make their rows with: form, scratch directory, trees, built images."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lib import images
from lib.disks import entries
from lib.process import quiet
from lib.programs import REPOSITORY
from lib.suite import Missing

CORPUS = Path(os.environ.get("CORPUS") or Path.home() / "corpus")


@dataclass
class Bench:
    """State that tables make their rows with."""

    quick: bool
    scratch: Path  # a directory of this run
    chosen_tree: Path | None = None  # `--tree`: used wherever a table reads a tree
    long: bool = False
    # Ends with the table: mounts, disks, groups.
    stack: ExitStack = field(default_factory=ExitStack)
    # Trees that the table has asked for.
    used: set[Path] = field(default_factory=set)
    _images: dict[tuple[str, ...], Path] = field(default_factory=dict)
    _digests: dict[Path, dict[str, str]] = field(default_factory=dict)
    _made: int = 0

    def tree(self, name: str) -> Path:
        """Returns a corpus by name: `rootfs`, `linux-source`, `mini`; in the quick form `quick`. Raises Missing."""
        path = self.chosen_tree or CORPUS / ("quick" if self.quick else name)
        if not path.exists():
            raise Missing(f"no corpus {path.name}: run bench/corpora.py")
        self.used.add(path)
        return path

    def file(self, name: str) -> Path:
        """Returns a corpus that is one file, `text` or `mixed`; cut to 16 MiB in the quick form. Raises Missing."""
        path = CORPUS / name
        if not path.is_file():
            raise Missing(f"no corpus {name}: run bench/corpora.py")
        if not self.quick:
            return path
        short = self.scratch / name
        if not short.exists():
            with path.open("rb") as file:
                short.write_bytes(file.read(16 << 20))
        return short

    def new(self, name: str = "place") -> Path:
        """Returns a path in the scratch directory that nothing has."""
        self._made += 1
        return self.scratch / f"{name}-{self._made}"

    def directory(self, name: str = "directory") -> Path:
        """Makes a new directory in the scratch directory; it goes when the table ends."""
        path = self.new(name)
        path.mkdir(parents=True)
        self.stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def image(self, program: str, options: str, tree: Path) -> Path:
        """Builds an image once a table, and returns it. Raises Missing, Failed."""
        return self.kept(
            (program, options, str(tree)), lambda image: quiet(*images.command(program, options, tree, image))
        )

    def kept(self, key: tuple[str, ...], make: Callable[[Path], object]) -> Path:
        """Makes a file once a table, by a function that is given its path."""
        if key not in self._images:
            path = self.new("image")
            make(path)
            self._images[key] = path

            def forget() -> None:
                path.unlink(missing_ok=True)
                self._images.pop(key, None)

            self.stack.callback(forget)
        return self._images[key]

    def digests(self, tree: Path) -> dict[str, str]:
        """Returns the digests of a tree's entries, which are found once a run."""
        if tree not in self._digests:
            self._digests[tree] = images.digests(tree)
        return self._digests[tree]

    def warm(self, tree: Path) -> int:
        """Reads all of a tree, so that every contestant finds it in memory. Returns the bytes of its files."""
        self.digests(tree)
        return entries(tree)[1]

    @contextmanager
    def table(self):
        """Ends all that the table enters into `stack`."""
        self.used.clear()
        with ExitStack() as self.stack:
            yield self


def say(text: str) -> None:
    """Tells of progress, beside results: to stderr."""
    print(text, file=sys.stderr, flush=True)


def repository(path: str) -> Path:
    """Returns a file of this repository. Raises Missing if it has not been built."""
    found = REPOSITORY / path
    if not found.exists():
        raise Missing(f"{path} is not built")
    return found
