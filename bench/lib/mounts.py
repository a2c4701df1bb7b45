"""Filesystems mounted by the kernel or by a server, and the cost of reading them, client, server, kernel together."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lib import machine
from lib.disks import Counter, loop, unmount, within
from lib.process import Command, Failed, measure, process_s, quiet
from lib.programs import need

DEADLINE_S = 60.0
# Threads of the kernel that work for a kind of filesystem. Those of other mounts count, too: leave none beside.
THREADS = {
    "erofs": "erofs|loop",
    "squashfs": "loop|squashfs",
    "ext4": "loop|ext4",
    "xfs": "loop|xfs",
    "btrfs": "loop|btrfs",
}


@dataclass
class Mount:
    """A filesystem that can be read, and what it costs."""

    root: Path
    pid: int | None = None  # of the server; None: the kernel
    threads: str = ""  # names of the kernel's threads, as a regular expression
    counter: Counter | None = None
    _group: Path | None = field(default=None, repr=False)

    def cpu_s(self) -> dict[int, float]:
        """CPU seconds so far of all that serve, by process."""
        found = kernel_threads(self.threads) if self.threads else {}
        return found | ({self.pid: process_s(self.pid)} if self.pid else {})

    def memory(self, line: str = "VmRSS") -> int:
        """Memory of the server in bytes, by a line of its status; 0 for the kernel."""
        status = Path(f"/proc/{self.pid}/status").read_text() if self.pid else ""
        found = re.search(rf"^{line}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) * 1024 if found else 0

    def during(self, work: Callable[[], float], cold: bool = False) -> dict[str, float]:
        """Does work that returns the CPU seconds of the client, and returns a run: wall, CPU of all, peak memory of the
        server, bytes and requests of the device. `cold` drops all caches before."""
        if cold:
            machine.drop_caches()
        before, fetched = self.cpu_s(), self.counter.read() if self.counter else None
        start = time.perf_counter()
        client_s = work()
        wall_s = time.perf_counter() - start
        served_s = sum(used - before.get(pid, 0.0) for pid, used in self.cpu_s().items())
        run = {"wall_s": wall_s, "cpu_s": client_s + served_s, "server_s": served_s}
        run |= {"memory_bytes": float(self.memory("VmHWM"))} if self.pid else {}
        return run | (self.counter.since(fetched) if self.counter and fetched else {})

    def client(
        self, *commands: Command, cold: bool = False, cwd: Path | None = None, output: Path | None = None
    ) -> dict[str, float]:
        """Runs programs as the client; see `during`. Raises Failed."""
        return self.during(lambda: measure(*commands, cwd=cwd or self.root, output=output).cpu_s, cold)


def kernel_threads(names: str) -> dict[int, float]:
    """CPU seconds of the kernel's threads with such names, and of all its workers: they change their names."""
    used = {}
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdigit()
                and re.search(f"{names}|^kworker", (folder / "comm").read_text())
                and not (folder / "cmdline").read_bytes()
            ):  # a thread of the kernel has no command line
                used[int(folder.name)] = int((folder / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended
            pass
    return used


def serve_command(server: str, image: Path, place: Path, options: Sequence[str] = ()) -> list[str]:
    """Returns the command that serves an image in the foreground. Raises Missing, or KeyError for an unknown server."""
    name = {"kiln mount": "kiln"}.get(server, server)
    before, after = {
        "kiln mount": (["mount", "--via", "fuse", "--foreground", "--quiet"], []),
        "erofsfuse": (["-f"], []),
        "squashfuse_ll": (["-f"], []),
        "fuse-zip": (["-f", "-r"], []),
        "archivemount": (["-f", "-o", "readonly"], []),
        "ratarmount": (["-f"], []),
    }[server]
    return [need(name), *before, *options, str(image), str(place), *after]


@contextmanager
def mount(
    server: str,
    image: Path,
    place: Path,
    *,
    options: Sequence[str] = (),
    counted: bool = False,
    group: Path | None = None,
) -> Iterator[Mount]:
    """An image mounted at a directory, which is made, by a server (`kiln mount`, `erofsfuse`, `squashfuse_ll`,
    `fuse-zip`, `archivemount`, `ratarmount`) or by the kernel (`kernel erofs`, `kernel ext4`, …). Counted: the image is
    read through a loop device past the page cache, whose counter is this mount's alone. A server may run in a control
    group. Raises Missing, Failed."""
    machine.need_root("mounting")
    place.mkdir(parents=True, exist_ok=True)
    kind = server.removeprefix("kernel ") if server.startswith("kernel ") else ""
    with ExitStack() as stack:
        # EROFS takes a file as it is; other filesystems of the kernel need a device.
        needs_device = counted or bool(kind) and kind != "erofs"
        is_device = not image.is_file()
        source = stack.enter_context(loop(image, direct=counted)) if needs_device and not is_device else image
        counter = Counter.of(source) if counted and str(source).startswith("/dev/") else None
        if kind:
            extra = {"xfs": "norecovery,nouuid", "ext4": "noload"}.get(kind, "")
            try:
                machine.mount(source, place, kind, ",".join([*([extra] if extra else []), *options]))
            except OSError as error:
                raise Failed(str(error)) from error
            stack.callback(unmount, place)
            yield Mount(place, None, THREADS.get(kind, "loop"), counter)
            return
        pid = stack.enter_context(serving(within(group, serve_command(server, source, place, options)), place))
        yield Mount(place, pid, "loop" if counted else "", counter)


@contextmanager
def serving(command: list[str], place: Path) -> Iterator[int]:
    """The process of a server whose mount is ready; unmounted in any case. Raises Failed."""
    device = os.stat(place).st_dev
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while os.stat(place).st_dev == device:
            if child.poll() is not None or time.monotonic() > deadline:
                child.kill()
                said = child.stderr.read()[-500:].decode(errors="replace").strip() if child.stderr else ""
                raise Failed(f"{Path(command[0]).name}: no mount: {said}")
            time.sleep(0.01)
        yield child.pid
    finally:
        unmount(place)
        try:
            child.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stderr:
            child.stderr.close()


@contextmanager
def overlay(place: Path, *layers: Path, data: Path | None = None, lazy: bool = True) -> Iterator[Path]:
    """Directories under overlayfs, read-only, the topmost first; `data` is one whose files are found by redirects only.
    They are looked up when they are opened (`lazy`), or with the names, as before Linux 6.6."""
    machine.need_root("mounting")
    place.mkdir(parents=True, exist_ok=True)
    lower = ":".join(map(str, layers)) + (f"{'::' if lazy else ':'}{data}" if data else "")
    options = f"ro,lowerdir={lower}" + (",metacopy=on,redirect_dir=follow" if data else "")
    quiet("mount", "-t", "overlay", "-o", options, "overlay", place)
    try:
        yield place
    finally:
        unmount(place)
