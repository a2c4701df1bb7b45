"""Python's standard library: files of a directory or a mount, one flat file with offsets (the floor), ZIP."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Sequence
from itertools import accumulate

from pyworker.base import Buffer, Contestant
from pyworker.images import Kilnfs


class Directory(Contestant):
    """Files of a directory."""

    label, container = "directory", "tree"
    call = 'open(path, "rb").read()'

    def open(self, order: str) -> None:
        self.files = [os.path.join(self.file, path) for path in self.tree.paths]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        files, samples = self.files, []
        for i in ids:
            with open(files[i], "rb") as file:
                samples.append(file.read())
        return samples


class Memory(Directory):
    """The same on tmpfs: what the directory could be if the filesystem of the disk cost nothing."""

    label, server = "directory, tmpfs", "tmpfs"


class KernelErofs(Directory):
    """kiln's image without compression, mounted from its file by the kernel."""

    label, container, builder = "kernel EROFS mount", "kiln-stored", "kiln"
    server = "kernel erofs"

    @classmethod
    def options(cls, of_set: str) -> str:
        return Kilnfs.packing("stored", of_set)


class KilnMount(KernelErofs):
    """The same image by kiln's FUSE server."""

    label, server = "kiln mount, FUSE", "kiln mount"


class SquashfuseLl(Directory):
    """A SquashFS image as its users make it, by FUSE."""

    label, container, builder = "squashfuse_ll mount", "squashfs", "mksquashfs"
    server = "squashfuse_ll"

    @classmethod
    def options(cls, of_set: str) -> str:
        from lib import images

        return images.squash("zstd,3", 128)


class Flat(Contestant):
    """All samples in one file, read at their offsets: no reader that gives `bytes` and is no part of Python does
    less."""

    label, container = "flat file, os.pread", "flat"
    call = "os.pread(fd, size, offset)"

    def build(self) -> None:
        with open(self.file, "wb") as out:
            out.writelines(self.tree.contents())

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

    label, call = "flat file, mmap", "memoryview(map)[start:end]"

    def open(self, order: str) -> None:
        super().open(order)
        self.view = memoryview(mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        view, offsets = self.view, self.offsets
        return [view[offsets[i] : offsets[i + 1]] for i in ids]

    def close(self) -> None:
        del self.view  # the map is not closed: views may be about
        super().close()


class FlatObject(Flat):
    """The same file through a file object."""

    label, call = "flat file, file object", "file.seek(offset); file.read(size)"

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


class Zip(Contestant):
    """Stored members, of which the CRC-32 of each is checked."""

    label, container = "zipfile, stored", "zip"
    call = "ZipFile.read(member)"

    def build(self) -> None:
        with zipfile.ZipFile(self.file, "w", zipfile.ZIP_STORED) as archive:
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


ALL = (Flat, FlatMapped, FlatObject, Directory, Memory, KernelErofs, KilnMount, SquashfuseLl, Zip)
