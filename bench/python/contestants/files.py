"""Plain files of Python's standard library: the directory itself, one flat file with offsets (the floor), ZIP."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import zipfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from contestants.base import Buffer, Clock, Contestant, Missing, allocated


class Python(Contestant):
    """Contestants whose work Python itself does."""

    def version(self) -> str:
        return f"Python {platform.python_version()}"


class Directory(Python):
    """`open(path, "rb").read()` of each file."""

    label = "directory"
    container = "directory"

    def root(self) -> Path:
        """The directory that is read."""
        return self.tree.root

    def size(self) -> int:
        return allocated(self.root())

    def open(self, order: str) -> None:
        self.files = [os.path.join(self.root(), path) for path in self.tree.paths]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        files, samples = self.files, []
        for i in ids:
            with open(files[i], "rb") as file:
                samples.append(file.read())
        return samples

    def close(self) -> None:
        self.files = []


class MemoryDirectory(Directory):
    """The same on tmpfs: what the directory could be if the filesystem of the disk cost nothing."""

    label = "directory, tmpfs"
    container = "directory-tmpfs"
    memory: ClassVar[Path] = Path("/dev/shm")
    most_bytes: ClassVar[int] = 5 << 29  # of the set: 2.5 GiB

    def version(self) -> str:
        free = shutil.disk_usage(self.memory).free if self.memory.is_dir() else 0
        if self.tree.about.bytes > min(self.most_bytes, free // 2):
            raise Missing(
                f"the set has {self.tree.about.bytes} bytes, at most 2.5 GiB and half of {self.memory} are taken"
            )
        return super().version()

    def root(self) -> Path:
        return self.memory / f"kiln-bench-{self.tree.directory.name}-{os.getuid()}"

    def attach(self) -> Clock | None:
        shutil.rmtree(self.root(), ignore_errors=True)
        shutil.copytree(self.tree.root, self.root())
        return None

    def detach(self) -> None:
        shutil.rmtree(self.root(), ignore_errors=True)

    def size(self) -> int:
        return allocated(self.tree.root)


class Flat(Python):
    """All samples in one file, read by `os.pread` at their offsets: no reader that gives `bytes` and is no part of
    Python does less."""

    label = "flat file, os.pread"
    container = "flat"

    @property
    def file(self) -> Path:
        """The container."""
        return self.place / "flat.bin"

    def build(self) -> None:
        with open(self.file, "wb") as out:
            for data in self.tree.contents():
                out.write(data)

    def open(self, order: str) -> None:
        self.sizes = list(self.tree.sizes)
        self.offsets = [0, *accumulate(self.sizes)]
        self.fd = os.open(self.file, os.O_RDONLY)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        fd, sizes, offsets, pread = self.fd, self.sizes, self.offsets, os.pread
        return [pread(fd, sizes[i], offsets[i]) for i in ids]

    def close(self) -> None:
        os.close(self.fd)


class FlatMapped(Flat):
    """The same file mapped: views, no copies."""

    label = "flat file, mmap"

    def open(self, order: str) -> None:
        super().open(order)
        self.map = mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ)
        self.view = memoryview(self.map)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        view, offsets = self.view, self.offsets
        return [view[offsets[i] : offsets[i + 1]] for i in ids]

    def close(self) -> None:
        del self.view, self.map  # not closed: views may be about
        super().close()


class FlatObject(Flat):
    """The same file through a file object: seek and read."""

    label = "flat file, file object"
    takes_file_object = True

    def open(self, order: str) -> None:
        super().open(order)
        self.object = self.open_file(self.file) if self.open_file else open(self.file, "rb", buffering=0)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        file, samples = self.object, []
        for i in ids:
            file.seek(self.offsets[i])
            samples.append(file.read(self.sizes[i]))
        return samples

    def close(self) -> None:
        self.object.close()
        super().close()


class Zip(Python):
    """`zipfile.ZipFile.read` of stored members, which checks the CRC-32 of each."""

    label = "zipfile, stored"
    container = "zip"
    takes_file_object = True

    @property
    def file(self) -> Path:
        """The container."""
        return self.place / "set.zip"

    def build(self) -> None:
        with zipfile.ZipFile(self.file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for path in self.tree.paths:
                archive.write(self.tree.root / path, path)

    def open(self, order: str) -> None:
        self.archive = zipfile.ZipFile(self.open_file(self.file) if self.open_file else self.file)
        self.members = sorted(self.archive.infolist(), key=lambda member: member.filename)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        read, members = self.archive.read, self.members
        return [read(members[i]) for i in ids]

    def close(self) -> None:
        self.archive.close()
