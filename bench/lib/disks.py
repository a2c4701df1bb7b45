"""Disks that are files: loop devices whose counters tell what programs read, small filesystems on them, slow ones.

A machine may have one disk, which everything uses. A loop device over a file that reads past the page cache has
counters of its own: each byte that is not in memory, and no other.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib.machine import need_root
from lib.process import Failed, quiet
from lib.programs import need

SECTOR = 512  # the unit of /sys/block/*/stat, whatever the disk's own is
DEADLINE_S = 15.0


@dataclass(frozen=True)
class Counter:
    """Counter of a block device. The difference of two values is what was read in between."""

    file: Path

    @classmethod
    def of(cls, device: Path) -> Counter:
        """Returns the counter of a block device."""
        return cls(Path("/sys/block") / device.name / "stat")

    def read(self) -> tuple[int, int]:
        """Bytes and requests that were read so far."""
        fields = self.file.read_text().split()
        return int(fields[2]) * SECTOR, int(fields[0])

    def since(self, before: tuple[int, int]) -> dict[str, float]:
        """Returns what was read since, as columns."""
        after = self.read()
        return {"fetched_bytes": after[0] - before[0], "requests": after[1] - before[1]}


@contextmanager
def loop(image: Path, *, write: bool = False, direct: bool = True) -> Iterator[Path]:
    """A loop device over a file. With `direct` it reads past the page cache."""
    need_root("a loop device")
    options = [] if write else ["--read-only"]
    direct_io = f"--direct-io={'on' if direct else 'off'}"
    device = quiet("losetup", "--find", "--show", direct_io, *options, image).strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)


@contextmanager
def mounted(device: Path, place: Path, kind: str, options: str = "ro,noatime") -> Iterator[Path]:
    """A filesystem of a device, mounted at a directory that is made."""
    place.mkdir(parents=True, exist_ok=True)
    quiet("mount", "-t", kind, "-o", options, device, place)
    try:
        yield place
    finally:
        unmount(place)


def unmount(place: Path) -> None:
    """Unmounts as soon as nobody uses the place; after a while, whenever that will be."""
    deadline = time.monotonic() + DEADLINE_S
    while subprocess.run(["umount", str(place)], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        if not os.path.ismount(place):
            return
        if time.monotonic() > deadline:
            subprocess.run(["umount", "--lazy", str(place)], check=False)
            return
        time.sleep(0.05)


def entries(tree: Path) -> tuple[int, int]:
    """Number of entries below a directory, and bytes of its regular files."""
    count = size = 0
    for folder, folders, names in os.walk(tree):
        count += len(folders) + len(names)
        size += sum(
            os.lstat(os.path.join(folder, name)).st_size
            for name in names
            if not os.path.islink(os.path.join(folder, name))
        )
    return count, size


FORMAT = {
    "ext4": ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard", "-m", "0"],
    "xfs": ["-q", "-f", "-K"],
    "btrfs": ["-q", "-f", "-K", "-d", "single", "-m", "single"],
}


def empty(image: Path, kind: str, length: int, inodes: int = 0) -> None:
    """Makes a filesystem without files in a file of `length` bytes, which has all its blocks. Raises Missing."""
    program = need(f"mkfs.{kind}")
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(length, {"btrfs": 120 << 20, "xfs": 310 << 20}.get(kind, 0)))
    options = FORMAT[kind] + (["-N", str(inodes)] if kind == "ext4" and inodes else [])
    quiet(program, *options, image)


def filled(image: Path, kind: str, tree: Path, options: str = "noatime") -> None:
    """Makes a filesystem with a copy of a tree, times and attributes included. `options` are of the mount while it is
    filled: `compress=zstd` of Btrfs."""
    count, size = entries(tree)
    empty(image, kind, size + size // 12 + count * 4608 + (96 << 20), count + count // 20 + 100)
    place = image.with_suffix(".filling")
    with loop(image, write=True) as device, mounted(device, place, kind, options):
        quiet("cp", "-a", f"{tree}/.", place)
        quiet("sync", "-f", place)
    place.rmdir()


@contextmanager
def on_disks(new: Callable[[str], Path], tree: Path) -> Iterator[tuple[Path, Counter, Path, Counter]]:
    """A copy of a tree on a disk of its own, and an empty disk for images, both counted. `new` names
    paths that nothing has."""
    need_root("cold builds")
    source, output = new("source.ext4"), new("output.ext4")
    try:
        filled(source, "ext4", tree)
        empty(output, "ext4", 2 * source.stat().st_size + (200 << 20))
        with (
            loop(source) as one,
            mounted(one, new("disk"), "ext4") as place,
            loop(output, write=True) as two,
            mounted(two, new("disk"), "ext4", "noatime") as out,
        ):
            yield place, Counter.of(one), out, Counter.of(two)
    finally:
        source.unlink(missing_ok=True)
        output.unlink(missing_ok=True)


@contextmanager
def tmpfs(place: Path, size: int) -> Iterator[Path]:
    """A filesystem in memory of at most `size` bytes."""
    need_root("mounting")
    with mounted(Path("tmpfs"), place, "tmpfs", f"size={size},nr_inodes=0"):
        yield place


GROUPS_V1, GROUPS_V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group whose processes, page cache included, have `limit` bytes and no swap. `within` starts programs in
    it."""
    need_root("a control group")
    v1 = (GROUPS_V1 / "memory.limit_in_bytes").exists()
    names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if v1 else ("memory.max", "memory.swap.max")
    if not v1 and "memory" not in (GROUPS_V2 / "cgroup.subtree_control").read_text().split():
        (GROUPS_V2 / "cgroup.subtree_control").write_text("+memory")
    group = (GROUPS_V1 if v1 else GROUPS_V2) / f"kiln-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / names[0]).write_text(str(limit))
        if (group / names[1]).exists():  # a kernel may know nothing of swap
            (group / names[1]).write_text(str(limit if v1 else 0))
        yield group
    finally:
        deadline = time.monotonic() + DEADLINE_S
        while group.exists():
            try:
                group.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Failed(f"{group}: still in use") from error
                time.sleep(0.05)


def within(group: Path | None, command: list[str]) -> list[str]:
    """Returns a command that runs in a control group; without a group, itself."""
    if group is None:
        return command
    return ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *command]
