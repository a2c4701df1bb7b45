"""The machine: what a reader must know of it, its caches, its one lock."""

from __future__ import annotations

import ctypes
import datetime
import fcntl
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lib.suite import Missing

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
# Time in which caches are dropped even on a slow disk. A kernel that hangs there never comes back.
PATIENCE_S = 120


def facts() -> dict[str, Any]:
    """Returns what readers need to judge figures. `reader` tells which must be equal for one report."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": processor(),
        "cpus": cpus(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def processor() -> str:
    """Returns the name of the processor as Linux shows it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, platform.machine())


def cpus() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def need_root(doing: str) -> None:
    """Raises Missing if we are not root."""
    if os.geteuid() != 0:
        raise Missing(f"{doing} needs root")


def drop_caches() -> None:
    """Writes dirty pages and drops all caches of the kernel. Raises Missing if that cannot be done here."""
    need_root("dropping caches")
    # In another process: a kernel that hangs in here would never let this one go.
    child = subprocess.Popen(["sh", "-c", f"sync && echo 3 > {DROP_CACHES}"], stderr=subprocess.PIPE)
    try:
        code = child.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Missing(f"the kernel has not dropped its caches within {PATIENCE_S} s") from None
    if code != 0:
        message = child.stderr.read().decode(errors="replace").strip() if child.stderr else ""
        raise Missing(f"caches cannot be dropped: {message}")


@contextmanager
def alone() -> Iterator[None]:
    """Holds the machine for one benchmark. Raises Missing if another one runs."""
    with (Path(tempfile.gettempdir()) / "kiln-bench.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Missing("another benchmark runs: two at once measure each other") from None
        yield


_libc = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_NOATIME = 1, 1024


def mount(source: Path, place: Path, kind: str, options: str = "") -> None:
    """Mounts a file or a device read-only. Not by mount(8), which may add a loop device. Raises OSError."""
    arguments = (os.fsencode(source), os.fsencode(place), kind.encode(), MS_RDONLY | MS_NOATIME)
    if _libc.mount(*arguments, options.encode() or None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind} {source.name}: {os.strerror(number)}")
