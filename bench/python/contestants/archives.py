"""Archives read by libraries of Python, without a mount: PySquashfsImage and ratarmountcore."""

from __future__ import annotations

import importlib.metadata
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contestants.base import Buffer, Contestant, first_line, program, run
from environment import mksquashfs_path

UNIT = 128 << 10  # a data block of SquashFS


def mksquashfs() -> Path:
    """The program. Raises Missing."""
    return program(mksquashfs_path(), "mksquashfs", "apt install squashfs-tools, or set PEERS")


def make_squashfs(source: Path, image: Path) -> None:
    """A SquashFS image as its users make it: zstd 3, blocks of 128 KiB, small files packed."""
    how = ["-comp", "zstd", "-Xcompression-level", "3", "-b", str(UNIT), "-noappend", "-no-progress", "-quiet"]
    run([mksquashfs(), source, image, *how], "mksquashfs")


def mksquashfs_version() -> str:
    """Raises Missing if there is none."""
    return first_line([mksquashfs(), "-version"])


class PySquashfs(Contestant):
    """`SquashFsImage.select(path).read_bytes()`, in Python alone; its decompressor is that of `zstandard`."""

    label = "PySquashfsImage"
    container = "squashfs"
    most_samples = 1000

    @property
    def file(self) -> Path:
        """The container."""
        return self.place / "set.squashfs"

    def version(self) -> str:
        import PySquashfsImage  # noqa: F401

        return f"PySquashfsImage {importlib.metadata.version('PySquashfsImage')}; {mksquashfs_version()}"

    def recipe(self) -> str:
        return mksquashfs_version()

    def build(self) -> None:
        make_squashfs(self.tree.root, self.file)

    def open(self, order: str) -> None:
        from PySquashfsImage import SquashFsImage

        self.image: Any = SquashFsImage.from_file(str(self.file))
        self.paths = self.tree.paths

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        select, paths = self.image.select, self.paths
        return [select(paths[i]).read_bytes() for i in ids]

    def close(self) -> None:
        self.image.close()


class Ratarmount(Contestant):
    """`lookup` and `open` of a member of a plain tar archive; the index lies beside it in SQLite, as its users have
    it after the first time."""

    label = "ratarmountcore, tar"
    container = "tar"
    most_samples = 1000

    @property
    def file(self) -> Path:
        """The container."""
        return self.place / "set.tar"

    def version(self) -> str:
        import ratarmountcore  # noqa: F401

        return f"ratarmountcore {importlib.metadata.version('ratarmountcore')}"

    def build(self) -> None:
        with tarfile.open(self.file, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in self.tree.paths:
                archive.add(self.tree.root / path, path)
        self.open("")
        self.close()

    def open(self, order: str) -> None:
        from ratarmountcore.mountsource.factory import open_mount_source

        index = str(self.place / "index.sqlite")
        self.source: Any = open_mount_source(str(self.file), indexFilePath=index, writeIndex=True)
        self.paths = ["/" + path for path in self.tree.paths]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        source, paths, samples = self.source, self.paths, []
        for i in ids:
            with source.open(source.lookup(paths[i])) as file:
                samples.append(file.read())
        return samples

    def close(self) -> None:
        self.source.__exit__(None, None, None)
