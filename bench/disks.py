"""Disks that are files: what programs read of each is counted apart, and one of them is slow. And control groups with little memory.

A machine may have one disk only, which everything on it uses. So a tree is copied into a file with ext4, which is mounted by a loop
device that reads past the page cache (direct I/O): the device's counter then has each byte that is not in memory, and no other. Images go to
a second such device, so that what is read back of them counts apart. Needs root.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

import lib
import mounted
import servers

# Bytes of an ext4 for each file and directory of a tree, beside their contents: an inode of 256 bytes, and the last block of the contents.
EACH = 256 + 4096
# And of it all: directories, bitmaps, room for neighbours.
BESIDE = 64 * lib.MIB
# Time in which a mount or a group that was in use a moment ago becomes free.
DEADLINE_S = 10.0
# The first hierarchies of version 1 and 2 that hold processes to an amount of memory.
GROUPS_V1 = Path("/sys/fs/cgroup/memory")
GROUPS_V2 = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Disk:
    """A directory or a file; the counter of the device below it, if that has nothing else; the file that is the device."""

    root: Path
    counter: Optional[Path] = None
    image: Optional[Path] = None
    # The file in which `slow_file` counts seeks.
    seeks_file: Optional[Path] = None

    def seeks(self) -> Optional[int]:
        """Reads so far that did not begin where the one before ended: a disk that turns would have moved its head."""
        return None if self.seeks_file is None else int(self.seeks_file.read_text().split()[0])

    def reads(self) -> Optional[Tuple[int, int]]:
        """Bytes and requests that were read so far."""
        if self.counter is None:
            return None
        return mounted.bytes_read(self.counter), int(self.counter.read_text().split()[0])


@dataclass(frozen=True)
class Group:
    """A control group with limited memory, page cache included."""

    path: Path

    def inside(self, command: Sequence[str]) -> List[str]:
        """`command`, run in the group."""
        return ["sh", "-c", f'echo $$ > "{self.path}/cgroup.procs" && exec "$@"', "sh", *command]


def make_ext4(image: Path, length: int, inodes: int) -> None:
    """An empty ext4 without a journal, whose tables are written and whose blocks are the file's own."""
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, length)
    how = ["-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard", "-m", "0", "-N", str(inodes)]
    subprocess.run(["mkfs.ext4", "-q", "-F", *how, str(image)], check=True, stdin=subprocess.DEVNULL)


@contextmanager
def ext4(device: Path, place: Path, options: str) -> Iterator[None]:
    """The ext4 of a device mounted at `place`, which is made."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "ext4", "-o", options, str(device), str(place)], check=True)
    try:
        yield
    finally:
        unmount(place)


def unmount(place: Path) -> None:
    """Unmount `place` as soon as it is free; if it never is, once it will be."""
    deadline = time.monotonic() + DEADLINE_S
    while subprocess.run(["umount", str(place)], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        if time.monotonic() > deadline:
            lib.say(f"{place} is in use: it is unmounted later")
            subprocess.run(["umount", "--lazy", str(place)], check=False)
            return
        time.sleep(0.1)


def make_image(tree: Path, image: Path) -> None:
    """An ext4 with a copy of `tree`, times and attributes included."""
    lib.say(f"copying {tree} to {image.name}")
    entries = sum(len(folders) + len(names) for _, folders, names in os.walk(tree))
    size = sum(os.path.getsize(path) for path in lib.walk_files(tree))
    make_ext4(image, size + size // 20 + EACH * entries + BESIDE, entries + entries // 20 + 100)
    place = image.with_suffix(".copy")
    with mounted.loop_device(image, "--direct-io=on") as device, ext4(device, place, "noatime"):
        subprocess.run(["cp", "-a", f"{tree}/.", str(place)], check=True)


@contextmanager
def source_disk(tree: Path, folder: Path) -> Iterator[Disk]:
    """A copy of `tree` that can only be read."""
    image, place = folder / "source.ext4", folder / "source"
    try:
        make_image(tree, image)
        with mounted.loop_device(image) as device, ext4(device, place, "ro,noatime"):
            yield Disk(place, mounted.counter_of(device), image)
    finally:
        image.unlink(missing_ok=True)


@contextmanager
def output_disk(length: int, folder: Path) -> Iterator[Disk]:
    """An empty disk with room for `length` bytes."""
    image, place = folder / "output.ext4", folder / "output"
    try:
        make_ext4(image, length + length // 20 + BESIDE, 10_000)
        with mounted.loop_device(image, "--direct-io=on") as device, ext4(device, place, "noatime"):
            yield Disk(place, mounted.counter_of(device), image)
    finally:
        image.unlink(missing_ok=True)


@contextmanager
def slow_disk(tree: Path, folder: Path, program: Path, delay_us: int) -> Iterator[Disk]:
    """A copy of `tree` on a disk that serves one read at a time, and takes `delay_us` longer for each.

    The loop device is one without direct I/O: it then waits for each read of its file before the next one. FUSE has no cache here.
    """
    image, served, place = folder / "slow.ext4", folder / "served", folder / "slow"
    served.mkdir(exist_ok=True)
    server = servers.Server("slow_file", "ext4", lambda image, at: [str(program), str(image), str(at), str(delay_us)])
    with ExitStack() as stack:
        stack.callback(image.unlink, missing_ok=True)
        make_image(tree, image)
        stack.enter_context(servers.serving(server, image, served))
        device = stack.enter_context(mounted.loop_device(served / image.name, "--read-only", "--direct-io=off"))
        stack.enter_context(ext4(device, place, "ro,noatime"))
        yield Disk(place, mounted.counter_of(device), image, served / "seeks")


@contextmanager
def memory_group(limit: int) -> Iterator[Group]:
    """A control group of version 1 or 2 that holds its processes to `limit` bytes, without swap. Raises OSError if there can be none."""
    is_v1 = (GROUPS_V1 / "memory.limit_in_bytes").exists()
    # A limit of version 1 is one of memory and swap together.
    settings = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit} if is_v1 else {"memory.max": limit, "memory.swap.max": 0}
    if not is_v1:
        enable_memory(GROUPS_V2)
    group = Group((GROUPS_V1 if is_v1 else GROUPS_V2) / f"kiln-once-{os.getpid()}")
    try:
        group.path.mkdir()
        for number, (name, value) in enumerate(settings.items()):
            if number == 0 or (group.path / name).exists():  # a kernel may know nothing of swap
                (group.path / name).write_text(str(value))
        yield group
    finally:
        remove_group(group.path)


def enable_memory(parent: Path) -> None:
    """Let children of a group of version 2 have limits."""
    if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
        (parent / "cgroup.subtree_control").write_text("+memory")


def remove_group(path: Path) -> None:
    """Remove a group once its last process has ended."""
    deadline = time.monotonic() + DEADLINE_S
    while path.exists():
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def sweep(folder: Path) -> None:
    """Unmount and detach everything in `folder` that an interrupt has left between the making of a thing and the note to undo it."""
    below = f"{folder}/"
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in reversed([place for place in places if place.startswith(below)]):
        unmount(Path(place))
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        if file.read_text().startswith(below):
            subprocess.run(["losetup", "--detach", f"/dev/{file.parent.parent.name}"], check=False)


def wake(commands: Sequence[Sequence[str]]) -> None:
    """Read the files of programs: their sources are cold, they are not."""
    for command in commands:
        if found := shutil.which(command[0]):
            Path(found).read_bytes()
            subprocess.run([found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
