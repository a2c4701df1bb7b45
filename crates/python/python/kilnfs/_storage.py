"""Defaults of the shuffle, derived from the storage of an image and the memory of the machine."""

from __future__ import annotations

import os

FLASH, DISK = 256 << 10, 4 << 20
"""Stored bytes of a block on a local SSD or in memory, and on other local storage: a block costs
one seek or request, and its transfer should take longer than that."""
WINDOW_OF_CACHE, BLOCKS_OF_WINDOW = 5 / 16, 6
"""Share of the cache of a window, and its number of blocks, for sources with a cache of kilnfs
(URLs, file objects). The next window is also in the cache, and both are rounded up to whole blocks
of the cache."""

_LARGEST_WINDOW = 1 << 30


def is_remote(name: str) -> bool:
    """Returns true for the name of an image that is read by URL."""
    return "://" in name


def block_bytes(name: str, cache: int | None) -> int:
    """Returns the stored bytes of a block for the storage of an image. `cache` is the capacity of
    its source's cache, if any."""
    if cache is not None:
        return max(1, int(cache * WINDOW_OF_CACHE) // BLOCKS_OF_WINDOW)
    try:
        device = os.stat(name).st_dev
        return FLASH if _in_memory(device) or _is_flash(_block_device(device)) else DISK
    except (OSError, ValueError):
        return DISK


def window_bytes(cache: int | None) -> int:
    """Returns the largest number of stored bytes of a window: 1 GiB, or a quarter of the memory of
    this machine or container if that is less; five sixteenths of the source's cache, if it has
    one."""
    if cache is not None:
        return max(1, int(cache * WINDOW_OF_CACHE))
    memory = _LARGEST_WINDOW * 4
    try:
        memory = min(memory, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError):
        pass
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as limit:
                memory = min(memory, int(limit.read()))
        except (OSError, ValueError):
            pass
    return memory // 4


def _mount(device: int) -> tuple[str, str]:
    """Returns type and source of the filesystem with this device number."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
        for line in mounts:
            fields, _, rest = line.partition(" - ")
            if fields.split()[2] == number:
                kind, source = rest.split()[:2]
                return kind, source
    raise ValueError(f"device {number} is not mounted")


def _in_memory(device: int) -> bool:
    return os.major(device) == 0 and _mount(device)[0] in ("tmpfs", "ramfs")


def _block_device(device: int) -> int:
    """Returns the disk below a filesystem: its own device, or for filesystems with virtual devices
    (btrfs, zfs) the one that they were mounted from."""
    return device if os.major(device) else os.stat(_mount(device)[1]).st_rdev


def _is_flash(device: int) -> bool:
    directory = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    for queue in ("queue", "../queue"):  # of a disk, of the disk of a partition
        try:
            with open(f"{directory}/{queue}/rotational") as rotational:
                return rotational.read().strip() == "0"
        except OSError:
            continue
    return False
