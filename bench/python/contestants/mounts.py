"""Images that are mounted and read as files: EROFS by the kernel, SquashFS by squashfuse_ll, EROFS by kiln's own
FUSE server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from contestants.archives import make_squashfs, mksquashfs_version
from contestants.base import Buffer, Clock, Contestant, Missing, first_line
from contestants.images import kiln_version, make_image, recipe
from environment import squashfuse_path
from packers import kiln_path
from servers import Server, serving


class Mounted(Contestant):
    """`open().read()` below a mount, which lasts from `attach` to `detach`."""

    image: ClassVar[str]

    def server(self) -> Server:
        """Program that mounts."""
        raise NotImplementedError

    def need_root(self) -> None:
        """Mounts need root. Raises Missing."""
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            raise Missing("mounts need root and /dev/fuse")

    def attach(self) -> Clock | None:
        self.mount_point = self.place.parent / f".mount-{os.getpid()}"
        self.mount_point.mkdir()
        self.stack = ExitStack()
        self.stack.callback(self.mount_point.rmdir)
        try:
            server = self.stack.enter_context(serving(self.server(), self.place / self.image, self.mount_point))
        except OSError as error:
            self.stack.close()
            raise Missing(f"no mount: {error}") from error
        return server.cpu_s

    def detach(self) -> None:
        self.stack.close()

    def open(self, order: str) -> None:
        self.files = [os.path.join(self.mount_point, path) for path in self.tree.paths]

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        files, samples = self.files, []
        for i in ids:
            with open(files[i], "rb") as file:
                samples.append(file.read())
        return samples

    def close(self) -> None:
        self.files = []


class KernelErofs(Mounted):
    """kiln's image without compression, mounted from its file by the kernel (Linux 6.12)."""

    label = "kernel EROFS mount"
    container = "kiln-stored"
    image = "set.erofs"

    def version(self) -> str:
        self.need_root()
        if "\terofs\n" not in Path("/proc/filesystems").read_text():
            raise Missing("the kernel has no EROFS")
        return f"Linux {os.uname().release.split('-')[0]}; {kiln_version()}"

    def recipe(self) -> str:
        return recipe("stored", self.tree)

    def build(self) -> None:
        make_image(self.tree, self.place / self.image, "stored")

    def server(self) -> Server:
        return Server("kernel EROFS", "erofs", None)


class KilnMount(KernelErofs):
    """The same image by `kiln mount --via fuse`."""

    label = "kiln mount, FUSE"

    def version(self) -> str:
        self.need_root()
        return kiln_version()

    def server(self) -> Server:
        command = [str(kiln_path()), "mount", "--via", "fuse", "--foreground", "--quiet"]
        return Server("kiln", "erofs", lambda image, place: [*command, str(image), str(place)])


class SquashfuseLl(Mounted):
    """The SquashFS image of `archives.py` by squashfuse_ll."""

    label = "squashfuse_ll mount"
    container = "squashfs"
    image = "set.squashfs"

    def version(self) -> str:
        self.need_root()
        path = squashfuse_path()
        if path is None:
            raise Missing("no squashfuse_ll: apt install squashfuse")
        return f"{first_line([path.with_name('squashfuse'), '--help'])}; {mksquashfs_version()}"

    def recipe(self) -> str:
        return mksquashfs_version()

    def build(self) -> None:
        make_squashfs(self.tree.root, self.place / self.image)

    def server(self) -> Server:
        path = str(squashfuse_path())
        return Server("squashfuse_ll", "squashfs", lambda image, place: [path, "-f", str(image), str(place)])
