"""Filesystems with programs, and cold starts of these: alone, beside work on the disk, beside an eater of memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.mounts import Mount, mount
from lib.process import Failed, limited, quiet
from lib.programs import need, wake
from lib.suite import Column, Missing, Run
from suites._programs import bound

BUSY = Path(__file__).resolve().parent.parent / "fio/busy.fio"
# A process that holds memory and looks at all of it again and again.
EATER = """import mmap, sys, time
m = mmap.mmap(-1, int(sys.argv[1]))
told = False
while True:
    for at in range(0, len(m), 4096):
        m[at] = 1
    told = told or print("ready", flush=True) is None
    time.sleep(0.05)"""
LONGEST_S = 60  # of a start
MEMORY_WAIT = Column("memory_wait_s", "waiting for memory", "s")
IO_WAIT = Column("io_wait_s", "waiting for the disk", "s")


@dataclass(frozen=True)
class System:
    """A filesystem with programs: who makes it, by which options, and who serves it."""

    name: str
    program: str  # kiln, mkfs.erofs, mksquashfs, or ext4
    options: str
    server: str
    mounting: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """True if kiln has made the image."""
        return self.program.startswith("kiln")


EXT4 = System("ext4", "ext4", "", "kernel ext4")
EROFS = System("EROFS lz4 4 KiB", "mkfs.erofs", images.erofs("lz4", 4), "kernel erofs")
SQUASHFS = System("squashfs lz4 128 KiB", "mksquashfs", images.squash("lz4", 128), "kernel squashfs")
KERNEL = System("kiln's image, kernel", "kiln", "", "kernel erofs")
MOUNT = System("kiln mount", "kiln", "", "kiln mount")
SYSTEMS = (EXT4, EROFS, SQUASHFS, KERNEL, MOUNT)


def image(bench: Bench, system: System, tree: Path) -> Path:
    """Makes the image of a system once a run: several tables start programs from it. Raises Missing, Failed."""
    named = zlib.crc32(f"{system.program} {system.options} {tree}".encode())
    path = bench.scratch / f"launch-{named:08x}"
    if not path.exists():
        new = path.with_suffix(".new")
        if system.program == "ext4":
            disks.filled(new, "ext4", tree)
        elif system.program == "kiln relayout":
            quiet(need("kiln"), "relayout", "--quiet", *system.options.split(), image(bench, MOUNT, tree), new)
        else:
            quiet(*images.command(system.program, system.options, tree, new))
        new.rename(path)
    return path


@contextmanager
def opened(bench: Bench, system: System, tree: Path, group: Path | None = None) -> Iterator[Mount]:
    """A system, mounted and counted, in which programs can start."""
    with ExitStack() as stack:
        source, place = image(bench, system, tree), bench.new("mount")
        one = stack.enter_context(
            mount(system.server, source, place, options=system.mounting, counted=True, group=group)
        )
        stack.enter_context(bound(place))
        yield one


def compare(bench: Bench, system: System, tree: Path) -> None:
    """Compares all that a system shows with the tree, once a run. Raises Wrong."""
    done = image(bench, system, tree).with_suffix(f".{system.server.replace(' ', '-')}-compared")
    if not done.exists():
        expected = bench.digests(tree)
        with mount(system.server, image(bench, system, tree), bench.new("mount")) as one:
            images.compare(expected, one.root)
        done.touch()


def waited() -> dict[str, float]:
    """Returns the seconds so far in which some process waited for memory or for a disk, of the whole system."""
    found = {}
    for name, column in (("memory", MEMORY_WAIT), ("io", IO_WAIT)):
        file = Path("/proc/pressure") / name
        if file.exists():
            found[column.key] = int(file.read_text().split("total=")[1].split()[0]) / 1e6
    return found


def start(one: Mount, command: Sequence[str], group: Path | None = None) -> Run:
    """Starts a program cold in a chroot, and returns a run with the pressure of the whole system. Raises Failed if it
    takes over a minute, as it can while all memory is taken from one program to be given to another."""
    machine.drop_caches()
    wake("chroot", "sh", "timeout")
    before = waited()
    with limited(LONGEST_S) as limit:
        run = one.client(disks.within(group, [*limit, "chroot", str(one.root), *command]), cwd=Path("/"))
    return {**run, **{key: value - before[key] for key, value in waited().items()}}


@contextmanager
def busy(bench: Bench) -> Iterator[Callable[[], None]]:
    """Four threads of fio that read and write one file at random, held to 256 KiB a second each. Yields a function
    that raises Failed if they have ended."""
    folder, fio = bench.directory("busy"), need("fio")
    file = folder / "file"
    quiet(fio, "--name=busy", "--rw=write", "--bs=1m", "--size=64m", f"--filename={file}", "--output=/dev/null")
    command = ["env", f"FIO_FILE={file}", fio, "--output=/dev/null", str(BUSY)]
    child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)

    def alive() -> None:
        if child.poll() is not None:
            raise Failed(f"fio: has ended with exit code {child.returncode}")

    try:
        time.sleep(1)
        yield alive
    finally:
        child.terminate()
        child.wait()


@contextmanager
def eating(group: Path, size: int) -> Iterator[None]:
    """A process of a control group that holds so many bytes of memory, and uses them."""
    command = disks.within(group, [sys.executable, "-S", "-E", "-c", EATER, str(size)])
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        if not child.stdout.readline():
            raise Failed(f"the eater of memory has ended with exit code {child.wait()}")
        yield
        if child.poll() is not None:
            raise Failed("the eater of memory was killed: a start needed more than there is")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@contextmanager
def cpu_group(share: float) -> Iterator[Path]:
    """A control group whose processes have a share of one processor. Raises Missing."""
    machine.need_root("a control group")
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    group = (old if old.is_dir() else new) / f"kiln-bench-cpu-{os.getpid()}"
    group.mkdir()
    try:
        name, text = ("cpu.cfs_quota_us", "{}") if old.is_dir() else ("cpu.max", "{} 100000")
        if not (group / name).exists():
            raise Missing("no control group limits processors here")
        (group / name).write_text(text.format(int(share * 100_000)))
        yield group
    finally:
        group.rmdir()
