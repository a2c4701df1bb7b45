"""Programs that serve an image or an archive as a filesystem: how to mount with them, and the CPU time that they take.

Linux only, root only. A server's time is read from its process clock, which counts in nanoseconds and keeps what dead threads
have used. The kernel's own work for a mount is in the client's time, but for that of the kernel's threads: `kernel_threads_s`.
"""
from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

import mounted
import packers

DEADLINE_S = 30.0
# Threads of the kernel that work for a kind of image. Those of other mounts count, too: leave none beside the benchmark.
KERNEL_THREADS = {"erofs": re.compile("erofs"), "squashfs": re.compile("loop|squashfs")}


@dataclass
class Serving:
    """A mount that is ready."""

    root: Path
    pid: Optional[int]  # None: the kernel
    kind: str

    def cpu_s(self) -> Dict[int, float]:
        """CPU seconds so far of all that serve: the server, or threads of the kernel. See `spent`."""
        return kernel_threads_s(KERNEL_THREADS[self.kind]) if self.pid is None else {self.pid: process_s(self.pid)}

    def rss_bytes(self, field: str = "VmRSS") -> Optional[int]:
        """Resident memory of the server, or another line of its status; None for the kernel."""
        if self.pid is None:
            return None
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found.group(1)) * 1024 if found else None


@dataclass(frozen=True)
class Server:
    """A way to mount: a program in the foreground, or the kernel."""

    name: str
    kind: str  # of what it mounts: "erofs", "squashfs" or "zip"
    command: Optional[Callable[[Path, Path], List[str]]]  # None: the kernel


def process_s(pid: int) -> float:
    """CPU seconds of a process, its dead threads included."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)


def spent(before: Dict[int, float], after: Dict[int, float]) -> float:
    """CPU seconds between two answers of `Serving.cpu_s`. What a thread used that ended in between is lost."""
    return sum(used - before.get(pid, 0.0) for pid, used in after.items())


def kernel_threads_s(names: re.Pattern) -> Dict[int, float]:
    """CPU seconds of the kernel's threads with such names."""
    used = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and names.search((folder / "comm").read_text()) and is_kernels(folder):
                used[int(folder.name)] = int((folder / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended
            pass
    return used


def is_kernels(folder: Path) -> bool:
    """Return True if the process is a kernel thread, which has no command line."""
    return not (folder / "cmdline").read_bytes()


def find_servers(kiln: Path) -> Dict[str, Server]:
    """Return the servers on this machine, by name."""
    erofsfuse = packers.peer_path("erofs", "erofsfuse")
    squashfuse = packers.peer_path("squashfuse", "squashfuse_ll")
    fuse_zip = packers.peer_path("fuse-zip", "fuse-zip")
    listed = [
        (kiln, Server("kiln", "erofs", lambda image, place: [
            str(kiln), "mount", "--via", "fuse", "--foreground", "--quiet", str(image), str(place)])),
        (erofsfuse, Server("erofsfuse", "erofs", lambda image, place: [str(erofsfuse), "-f", str(image), str(place)])),
        (None, Server("kernel EROFS", "erofs", None)),
        (squashfuse, Server("squashfuse_ll", "squashfs", lambda image, place: [
            str(squashfuse), "-f", str(image), str(place)])),
        (None, Server("kernel squashfs", "squashfs", None)),
        (fuse_zip, Server("fuse-zip", "zip", lambda image, place: [str(fuse_zip), "-f", "-r", str(image), str(place)])),
    ]
    return {server.name: server for path, server in listed if path is None or path.exists()}


@contextmanager
def serving(server: Server, image: Path, place: Path) -> Iterator[Serving]:
    """`image` mounted at `place` by `server`, and unmounted in any case."""
    if server.command is None:
        with by_kernel(server.kind, image, place):
            yield Serving(place, None, server.kind)
        return
    device = os.stat(place).st_dev
    with open(os.devnull, "r+b") as null:
        child = subprocess.Popen(server.command(image, place), stdin=null, stdout=null, stderr=null)
    try:
        wait_for(lambda: os.stat(place).st_dev != device, child, server.name)
        yield Serving(place, child.pid, server.kind)
    finally:
        subprocess.run(["umount", str(place)], check=False, stderr=subprocess.DEVNULL)
        try:
            child.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def by_kernel(kind: str, image: Path, place: Path) -> Iterator[None]:
    """EROFS takes the file as it is; SquashFS needs a loop device, which ends with the mount."""
    if kind == "erofs":
        with mounted.mounted(image, place):
            yield
        return
    subprocess.run(["mount", "-t", kind, "-o", "ro,loop", str(image), str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def wait_for(ready: Callable[[], bool], child: subprocess.Popen, name: str) -> None:
    """Wait until `ready`, or raise an exception."""
    deadline = time.monotonic() + DEADLINE_S
    while not ready():
        if child.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"{name}: no mount (exit code {child.poll()})")
        time.sleep(0.01)
