"""Systems that one file is read from, and fio as the reader: shared by the suites about a file's reads.

A system is a filesystem with its setting, who makes it and who serves it. Each is read through a loop device past the
page cache, whose counter tells what the reader fetched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.mounts import Mount, mount
from lib.process import Failed, measure, quiet
from lib.programs import find, need, typed
from lib.suite import Missing, Run, Wrong

FILE = "file"
STRIDE = 32  # a stride has 128 KiB, of which 4 KiB are read
JOBS = Path(__file__).resolve().parent.parent / "fio"


@dataclass(frozen=True)
class System:
    """A filesystem with its setting and its reader. The labels of a row are `name` and `reader`."""

    name: str
    program: str  # that makes the image: kiln, mkfs.erofs, mksquashfs; or the kind of a filesystem that is filled
    options: str = ""  # of the program, or of the mount while it is filled
    reader: str = "kernel"
    server: str = ""  # as `mounts.mount` names it; empty: the library
    mount_options: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ours(self) -> bool:
        """True if kiln reads."""
        return self.reader.startswith("kiln")

    def labels(self, **more: str) -> dict[str, str]:
        """Returns the labels of a row."""
        return {"system": self.name, "reader": self.reader, **more}


def erofs(method: str, kib: int, reader: str = "kernel", options: Sequence[str] = ()) -> System:
    """EROFS: kiln's readers read kiln's image, others that of mkfs.erofs; `kernel, image by kiln` is the kernel on
    kiln's."""
    kiln = "kiln" in reader
    equal = "--fragments off --dedupe off"
    command = images.kiln(method, kib, equal) if kiln else images.erofs(method, kib)
    server = "kernel erofs" if reader.startswith("kernel") else "" if reader == "kiln library" else reader
    server = server.partition(",")[0]
    name = f"EROFS {method} {kib} KiB"
    return System(name, "kiln" if kiln else "mkfs.erofs", command, reader, server, tuple(options))


def squashfs(method: str, kib: int, reader: str = "kernel") -> System:
    """Squashfs with a compressor, or without one: `none`."""
    server = "kernel squashfs" if reader == "kernel" else reader
    name = f"squashfs {'plain' if method == 'none' else method} {kib} KiB"
    return System(name, "mksquashfs", images.squash(method, kib), reader, server)


def filled(kind: str, compressor: str = "") -> System:
    """A filesystem with a copy of the file: ext4, xfs, btrfs with a compressor, or f2fs, which no kernel here has."""
    name = {"btrfs": f"Btrfs {compressor}", "xfs": "XFS", "f2fs": "F2FS"}.get(kind, kind)
    # Checksums of data cannot be off for compressed files. Readers may leave them out.
    options, mounting = ("noatime", ())
    if kind == "btrfs":
        options, mounting = f"noatime,compress-force={compressor}", ("rescue=ignoredatacsums",)
    known = kind in Path("/proc/filesystems").read_text().split()
    reason = "" if known else f"{name} is not in this kernel"
    return System(name, kind, options, "kernel", f"kernel {kind}", mounting, reason)


def one_file(bench: Bench, name: str, size: int) -> Path:
    """Returns a directory with one file, the first bytes of a corpus. Raises Missing."""
    source, place = bench.file(name), bench.directory(name)
    with source.open("rb") as file, (place / FILE).open("wb") as out:
        while size > 0 and (data := file.read(min(size, 1 << 24))):
            size -= out.write(data)
    return place


def image(bench: Bench, system: System, tree: Path) -> Path:
    """Makes the image of a system once a table. Raises Missing, Failed."""
    if system.reason:
        raise Missing(system.reason)
    if system.program in images.PROGRAMS:
        return bench.image(system.program, system.options, tree)
    key = (system.program, system.options, str(tree))
    return bench.kept(key, lambda path: disks.filled(path, system.program, tree, system.options))


@contextmanager
def opened(bench: Bench, system: System, tree: Path, group: Path | None = None) -> Iterator[Mount]:
    """A system that is freshly mounted and counted. For the library: the loop device. Raises Missing, Failed."""
    source, place = image(bench, system, tree), bench.scratch / "mount"
    if system.server:
        with mount(system.server, source, place, options=system.mount_options, counted=True, group=group) as mounted:
            yield mounted
    else:
        with disks.loop(source) as device:
            yield Mount(device, None, "loop", disks.Counter.of(device))


def digest(file: Path) -> str:
    """Returns a digest of a file's bytes."""
    with file.open("rb", buffering=0) as data:
        return hashlib.file_digest(data, "blake2b").hexdigest()


class Checks:
    """Compares what systems show with the source, each system once."""

    def __init__(self, bench: Bench, tree: Path) -> None:
        self.bench, self.tree = bench, tree
        self._problems: dict[System, Exception | None] = {}

    def check(self, system: System) -> None:
        """Reads all files through a system. Raises Wrong, Missing, Failed."""
        if system not in self._problems:
            self._problems[system] = None
            try:
                if system.server:  # the library's client compares each byte that it reads
                    with opened(self.bench, system, self.tree) as mounted:
                        images.compare(self.bench.digests(self.tree), mounted.root)
                else:
                    image(self.bench, system, self.tree)
            except (Wrong, Missing, Failed, OSError) as error:
                self._problems[system] = error
        if problem := self._problems[system]:
            raise problem


def fio_command(pattern: str, file: Path, size: int, amount: int) -> list[str]:
    """Returns the command that reads `amount` bytes of a file's first `size` by a job of `bench/fio`. Raises
    Missing."""
    words = [f"FIO_FILE={file}", f"FIO_SIZE={size}", f"FIO_BYTES={amount}"]
    return ["env", *words, need("fio"), "--output-format=json", str(JOBS / f"{pattern}.fio")]


def amount(pattern: str, size: int, most: int | None = None) -> int:
    """Returns how many bytes a pattern reads of a file: all, or one block of each stride; `most` at most."""
    whole = size // 4096 * 4096 if pattern != "strided" else size // 4096 // STRIDE * 4096
    return min(whole, most or whole)


def fio(
    bench: Bench,
    system: System,
    tree: Path,
    pattern: str,
    *,
    most: int | None = None,
    group: Path | None = None,
    prepare: Callable[[Mount], None] = lambda mounted: None,
) -> Run:
    """Mounts a system, drops all caches, reads its file by fio, and returns the run: rate by fio's clock, CPU of all,
    bytes and requests of the device. `prepare` changes the mount before."""
    size, said = (tree / FILE).stat().st_size, bench.scratch / "said"
    wanted = amount(pattern, size, most)
    with opened(bench, system, tree, group) as mounted:
        if not system.server:
            return library(bench, mounted, tree, pattern, size)
        prepare(mounted)
        command = disks.within(group, fio_command(pattern, mounted.root / FILE, size, wanted))

        def work() -> float:
            measure(command, output=said, cwd=bench.scratch)
            return told(said)["cpu_s"]

        machine.drop_caches()
        quiet(need("fio"), "--version")  # the program is no part of what is cold
        run = mounted.during(work)
    found = told(said)
    if found.pop("bytes") != wanted:
        raise Failed(f"fio: other than {wanted} bytes")
    return {**run, "rate": found["rate"], "asked_bytes": wanted}


def told(report: Path) -> dict[str, float]:
    """Returns what fio tells of its job: bytes, bytes per second, CPU seconds without its start."""
    text = report.read_text()
    job = json.loads(text[text.index("{") :])["jobs"][0]
    seconds = max(job["read"]["runtime"], 1) / 1e3
    done = job["read"]["io_bytes"]
    return {"bytes": done, "rate": done / seconds, "cpu_s": (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds}


def library(bench: Bench, device: Mount, tree: Path, pattern: str, size: int) -> Run:
    """Reads by kiln's library; its client compares all bytes. Random blocks may come twice, a sequential call has 128
    KiB."""
    client = need("read-client")
    kind = f"pages={size // 4096}" if pattern == "random" else pattern
    plan = bench.kept((kind, str(tree)), lambda path: path.write_text(quiet(client, "plan", kind, tree)))
    said: list[str] = []

    def work() -> float:
        said.append(quiet(client, "run", plan, "1", "image", device.root))
        return json.loads(said[0])["cpu_s"]

    run = device.during(work, cold=True)
    found = json.loads(said[0])
    return {**run, "rate": found["bytes"] / found["wall_s"], "asked_bytes": found["bytes"]}


def command_of(system: System, pattern: str) -> str:
    """Returns how a row is made, as one can type it: image, then reader."""
    if system.program in images.PROGRAMS and find(system.program):
        made = typed(images.command(system.program, system.options, Path("/tree"), Path("/image")))
    else:
        made = f"mkfs.{system.program}; mount -o {system.options}; cp"
    return f"{made}; {f'fio bench/fio/{pattern}.fio' if system.server else 'read-client'}"
