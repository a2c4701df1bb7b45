"""An EROFS image mounted by the kernel, and what its reads cost the disk. Needs root and Linux 6.12 for plain files."""
from __future__ import annotations

import ctypes
import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

PAGE = 4096
SECTOR = 512  # the unit of /sys/block/*/stat, whatever the disk's own is

MS_RDONLY, MS_NOATIME = 1, 1024
DROP_CACHES = Path("/proc/sys/vm/drop_caches")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Place:
    """4 KiB to read: a path below the root of the tree, and an offset."""

    path: str
    off: int


@dataclass(frozen=True)
class Cost:
    """Cost of reading some places."""

    latencies_s: List[float]  # open, read 4 KiB, close
    disk_bytes: Optional[int]  # None where the disk does not count

    @property
    def mean_s(self) -> float:
        """Mean latency."""
        return sum(self.latencies_s) / len(self.latencies_s)

    @property
    def disk_bytes_per_read(self) -> Optional[float]:
        """Mean bytes from the disk."""
        return None if self.disk_bytes is None else self.disk_bytes / len(self.latencies_s)


class WrongData(Exception):
    """Raised if the image's bytes differ from the tree's."""


@contextmanager
def mounted(source: Path, directory: Path) -> Iterator[None]:
    """`source`, an image or a block device, mounted at `directory`. Not by mount(8), which may add a loop device."""
    arguments = (os.fsencode(source), os.fsencode(directory), b"erofs", MS_RDONLY | MS_NOATIME, None)
    check(_libc.mount(*arguments), f"mount {source}")
    try:
        yield
    finally:
        check(_libc.umount2(os.fsencode(directory), 0), f"umount {directory}")


@contextmanager
def loop_device(image: Path, *options: str) -> Iterator[Path]:
    """A loop device of `image`; without `options` it is read-only and reads past the page cache: its counters are this image's alone."""
    command = ["losetup", "--find", "--show", *(options or ("--read-only", "--direct-io=on")), str(image)]
    device = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def check(result: int, doing: str) -> None:
    """Turn a C library's failure into an exception."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def counter_of(source: Path) -> Optional[Path]:
    """The counters of `source`, a block device, or of the disk that the file `source` is on; None if it has none."""
    stat = os.stat(source)
    device = stat.st_rdev or stat.st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return path if path.exists() else None


def bytes_read(counter: Optional[Path]) -> Optional[int]:
    """Bytes read from a disk by all processes since the system started."""
    return None if counter is None else int(counter.read_text().split()[2]) * SECTOR


def drop_caches() -> None:
    """Drop all clean pages, dentries and inodes."""
    os.sync()
    DROP_CACHES.write_text("3\n")


@contextmanager
def image_source(image: Path, via: str) -> Iterator[Path]:
    """Return the path to mount: the file itself (`file`), or a loop device on it (`loop`)."""
    if via == "file":
        yield image
    else:
        with loop_device(image) as device:
            yield device


def read_cold(image: Path, directory: Path, tree: Path, places: Sequence[Place], via: str) -> Cost:
    """Mount, drop caches, read the `places`, and compare the bytes with the `tree`.

    Raises WrongData where it differs.
    """
    with image_source(image, via) as source, mounted(source, directory):
        counter = counter_of(source)
        drop_caches()
        before = bytes_read(counter)
        reads = [read_place(directory, place) for place in places]
        after = bytes_read(counter)
    for place, (_, data) in zip(places, reads):
        if data != read_place(tree, place)[1]:
            raise WrongData(f"{place.path} at {place.off}: not the bytes of the tree")
    disk_bytes = None if before is None or after is None else after - before
    return Cost([latency for latency, _ in reads], disk_bytes)


def read_place(root: Path, place: Place) -> Tuple[float, bytes]:
    """Seconds and data of one read, with the lookup of its path."""
    path = os.path.join(root, place.path)
    start = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    try:
        data = os.pread(fd, PAGE, place.off)
    finally:
        os.close(fd)
    return time.perf_counter() - start, data
