"""Cost of work for this process, its children and its server: wall and CPU time, requests, bytes from the disk."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mounted
from contestants.base import Clock
from servers import spent


@dataclass(frozen=True)
class Cost:
    """Differences between two looks."""

    wall_s: float
    cpu_s: float  # this process, its finished children, its server
    read_calls: int  # system calls that read, of this process: `syscr`; page faults of mapped files are none
    fetched_bytes: int  # from the disk for this process, read-ahead included: `read_bytes`
    disk_bytes: int | None  # the disk's own counter, anyone's reads included; None if it has none
    minor_faults: int
    major_faults: int

    def document(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self)


class Meter:
    """Reader of all counters: first when it is created, and again in `cost`."""

    def __init__(self, place: Path, server: Clock | None = None) -> None:
        """`place` lies on the disk whose counter is read."""
        self.counter = mounted.counter_of(place)
        self.server = server
        self.served = server() if server else {}
        self.disk = mounted.bytes_read(self.counter)
        self.io = io_counters()
        self.usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu_s = own_cpu_s()
        self.start = time.perf_counter()

    def cost(self) -> Cost:
        """Since this meter was made."""
        wall_s = time.perf_counter() - self.start
        cpu_s = own_cpu_s() - self.cpu_s
        usage = resource.getrusage(resource.RUSAGE_SELF)
        io = io_counters()
        disk = mounted.bytes_read(self.counter)
        served = spent(self.served, self.server()) if self.server else 0.0
        return Cost(
            wall_s=wall_s,
            cpu_s=cpu_s + served,
            read_calls=max(0, io["syscr"] - self.io["syscr"] - look_calls()),
            fetched_bytes=io["read_bytes"] - self.io["read_bytes"],
            disk_bytes=None if disk is None or self.disk is None else disk - self.disk,
            minor_faults=usage.ru_minflt - self.usage.ru_minflt,
            major_faults=usage.ru_majflt - self.usage.ru_majflt,
        )


def own_cpu_s() -> float:
    """CPU seconds of this process, all threads, and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def io_counters() -> dict[str, int]:
    """`/proc/self/io`, read by one call of `os.read`."""
    fd = os.open("/proc/self/io", os.O_RDONLY)
    try:
        lines = os.read(fd, 4096).decode().splitlines()
    finally:
        os.close(fd)
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


_LOOK_CALLS: list[int] = []


def look_calls() -> int:
    """Reading calls that one look at the counters is itself."""
    if not _LOOK_CALLS:
        before = io_counters()["syscr"]
        _LOOK_CALLS.append(io_counters()["syscr"] - before)
    return _LOOK_CALLS[0]


def private_bytes(pid: int | str = "self") -> int:
    """Memory that belongs to a process alone (USS), in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return 1024 * sum(int(fields[name]) for name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"))
