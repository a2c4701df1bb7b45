"""Contestants of the suite `dataset`: files of one data set in an image of each kind, made, mounted and read."""

from __future__ import annotations

import json
import os
import random
import shutil
import string
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lib import disks, images, queues
from lib.bench import Bench
from lib.mounts import Mount, mount
from lib.process import Failed, measure, quiet
from lib.programs import need
from lib.suite import Missing, Wrong

LENGTH = 32 << 10  # of a file
CHECKED = 256  # files that are compared before anything is timed
PUBLISHED_SQUASH = "-no-duplicates -no-sparse"


@dataclass(frozen=True)
class System:
    """A way to keep files and to read them."""

    name: str
    maker: str  # key of `MAKERS`, or a program with options
    server: str = ""  # as `mounts.mount` knows it; "library": read-client; "lmdb", "kilnfs": kinds of the driver
    options: Sequence[str] = ()  # of the server
    published: str = ""  # options in table D
    shared: bool = False  # one queue for all readers
    slow: bool = False  # reads once, and few files are compared

    @property
    def ours(self) -> bool:
        """True if kiln reads, or made the image."""
        return self.maker.startswith("kiln")


KILN = "kiln --preset dataset"
SYSTEMS = [
    System("tmpfs", "tree", published="link"),
    System("tmpfs, shared queue", "tree", shared=True),
    System("ext4", "ext4", "kernel ext4", published="filled by cp"),
    System("ext4 by mkfs.ext4 -d", "mkfs.ext4 -d", "kernel ext4"),
    System("squashfs, nothing compressed", f"mksquashfs -noD -noI -noF -noX {PUBLISHED_SQUASH}", "kernel squashfs",
           published="nothing compressed"),
    System("squashfs, metadata compressed", f"mksquashfs -noD {PUBLISHED_SQUASH}", "kernel squashfs",
           published="metadata compressed", slow=True),
    System("squashfs by default", "mksquashfs ", "kernel squashfs", slow=True),
    System("EROFS", "mkfs.erofs ", "kernel erofs", published="not compressed"),
    System("EROFS, shared queue", "mkfs.erofs ", "kernel erofs", shared=True),
    System("EROFS by kiln", KILN, "kernel erofs"),
    System("kiln mount", KILN, "kiln mount"),
    System("kiln library", KILN, "library"),
    System("kiln from Python", KILN, "kilnfs"),
    System("fuse-zip", "zip", "fuse-zip", published="stored"),
    System("archivemount", "zip", "archivemount", published="stored", slow=True),
    System("ratarmount", "zip", "ratarmount", slow=True),
    System("LMDB", "lmdb", "lmdb"),
]  # fmt: skip


def named(*names: str) -> list[System]:
    """Returns systems by their names."""
    return [system for system in SYSTEMS if system.name in names]


def interpreter(kind: str) -> str:
    """Returns the Python that has a library. Raises Missing."""
    if kind not in ("lmdb", "kilnfs"):
        return sys.executable
    if kind == "lmdb":
        python = Path(need("python-lmdb"))
    else:
        python = Path(os.environ.get("KILN_BENCH") or Path.home() / ".cache/kiln-bench/python") / "peers/bin/python"
    if not python.exists() or subprocess.run([python, "-c", f"import {kind}"], capture_output=True).returncode:
        raise Missing(f"{kind} is not in a Python environment of the benchmarks: the suite python makes one")
    return str(python)


def files(tree: Path, count: int) -> list[str]:
    """Makes files of random bytes in one flat directory, and returns their names in random order."""
    rng = random.Random(count)
    names = ["".join(rng.choices(string.ascii_lowercase, k=12)) + ".dat" for _ in range(count)]
    tree.mkdir()
    for name in names:
        (tree / name).write_bytes(rng.randbytes(LENGTH))
    rng.shuffle(names)
    return names


def load_lmdb(tree: Path, image: Path) -> None:
    """Fills a database with the files of a tree."""
    code = (
        "import lmdb, os, sys\n"
        "tree, image = sys.argv[1:]\n"
        "env = lmdb.open(image, subdir=False, map_size=1 << 38)\n"
        "with env.begin(write=True) as put:\n"
        "    for one in sorted(os.scandir(tree), key=lambda one: one.name):\n"
        "        put.put(one.name.encode(), open(one.path, 'rb').read(), append=True)\n"
    )
    quiet(interpreter("lmdb"), "-c", code, tree, image)
    image.with_name(f"{image.name}-lock").unlink(missing_ok=True)


def store_zip(tree: Path, image: Path) -> None:
    """Makes an archive that compresses nothing."""
    archive = image.with_suffix(".zip")
    measure([need("zip"), "-0", "-q", "-r", str(archive), "."], cwd=tree)
    archive.rename(image)


def ext4_by_d(tree: Path, image: Path, factor: float = 1.2, more: int = 16 << 20) -> None:
    """Lets mkfs.ext4 fill an image of so many times the data, and more bytes: a small one needs room for its tables."""
    size = int(disks.entries(tree)[1] * factor) + more >> 10
    quiet(need("mkfs.ext4"), "-q", "-F", "-m", "0", "-d", tree, image, f"{max(size, 4096)}k")


MAKERS: dict[str, Callable[[Path, Path], None]] = {
    "ext4": lambda tree, image: disks.filled(image, "ext4", tree),
    "mkfs.ext4 -d": ext4_by_d,
    "zip": store_zip,
    "lmdb": load_lmdb,
}


def make(maker: str, tree: Path, image: Path) -> None:
    """Makes an image of a tree. Raises Missing, Failed."""
    if maker in MAKERS:
        MAKERS[maker](tree, image)
    else:
        program, _, options = maker.partition(" ")
        quiet(*images.command(program, options, tree, image))


@dataclass
class Data:
    """The files, their images, and the readers, all in one tmpfs as in the published test."""

    place: Path
    names: list[str]
    made: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, bench: Bench, count: int) -> Data:
        """Makes the files; they go when the table ends."""
        place = bench.stack.enter_context(disks.tmpfs(bench.new(), 21 << 30))
        return cls(place, files(place / "files", count))

    @property
    def tree(self) -> Path:
        """Directory of the files."""
        return self.place / "files"

    @property
    def size(self) -> int:
        """Sum of the files' lengths."""
        return len(self.names) * LENGTH

    def image(self, maker: str) -> Path:
        """Makes an image once."""
        if maker == "tree":
            return self.tree
        if maker not in self.made:
            path = self.place / f"image-{len(self.made)}"
            make(maker, self.tree, path)
            self.made[maker] = path
        return self.made[maker]

    @contextmanager
    def opened(self, system: System, image: Path | None = None) -> Iterator[Mount]:
        """A system that can be read: mounted, or as it is. Another `image` is the same on a slower disk."""
        path = image or self.image(system.maker)
        if system.server in ("", "library", "lmdb", "kilnfs"):
            yield Mount(path)
            return
        place = self.place / "mount"
        # The kernel mounts no file of a tmpfs.
        counted = system.server.startswith("kernel")
        try:
            with mount(system.server, path, place, options=system.options, counted=counted) as found:
                yield found
        finally:
            place.rmdir()

    def read(
        self,
        system: System,
        found: Mount,
        depth: int,
        seconds: float,
        *,
        names: Sequence[str] = (),
        compare: bool = False,
        before: Sequence[str] = (),
    ) -> dict[str, float]:
        """Reads files at a depth, and returns a run. `before` is a command that starts the reader."""
        if system.server == "library":
            return self.by_library(found.root, depth, before)
        kind = system.server if system.server in ("lmdb", "kilnfs") else "mount"
        more = ["--shared"] * system.shared + (["--compare", str(self.tree)] if compare else [])
        line = [interpreter(kind), queues.__file__, kind, str(found.root), str(depth), str(seconds), *more]
        said = quiet(*before, *line, stdin="\n".join(names or self.names).encode(), timeout=seconds + 120)
        run: dict[str, float] = json.loads(said)
        return run

    def by_library(self, image: Path, depth: int, before: Sequence[str] = ()) -> dict[str, float]:
        """Lets threads of a program read and compare all files with the library."""
        plan, client = self.place / "plan", need("read-client")
        if not plan.exists():
            plan.write_text(quiet(client, "plan", "shuffled", self.tree))
        run = json.loads(quiet(*before, client, "run", plan, str(depth), "image", image))
        reads, wall_s = run.pop("reads"), run["wall_s"]
        return {"wall_s": wall_s, "cpu_s": run["cpu_s"], "files": reads, "rate": reads / wall_s}

    def measure(
        self,
        system: System,
        depth: int,
        seconds: float,
        *,
        image: Path | None = None,
        before: Sequence[str] = (),
        server_before: Callable[[Mount], object] = lambda found: None,
    ) -> dict[str, float]:
        """Opens a system, warms it at depth 4, drops caches, and reads at a depth."""
        runs: list[dict[str, float]] = []

        with self.opened(system, image) as found:
            server_before(found)
            if system.server != "library":
                self.read(system, found, 4, min(1.0, seconds), names=self.names[:64])

            def work() -> float:
                runs.append(self.read(system, found, depth, seconds, before=before))
                return runs[0]["cpu_s"]

            cost = found.during(work, cold=True)
        run = {**cost, **runs[0], "cpu_s": cost["cpu_s"]}
        if not run["files"]:
            raise Failed(f"no file was read within {seconds:.0f} s")
        return {**run, "cpu_file_s": run["cpu_s"] / run["files"]}

    def check(self, system: System) -> None:
        """Compares files with the source: some, of those that are slow few."""
        image = self.image(system.maker)
        if system.maker.startswith("kiln"):
            images.check(image)
        if system.server == "library":  # compares all that it reads
            return
        names = self.names[: 8 if system.slow else CHECKED]
        try:
            with self.opened(system) as found:
                self.read(system, found, 4, 60, names=names, compare=True)
        except Failed as error:
            raise Wrong(str(error)) if "other bytes" in str(error) else error from None


def copy_of(tree: Path, place: Path) -> Path:
    """Copies a tree into a directory, with times and attributes."""
    quiet("cp", "-a", tree, place)
    return place / tree.name


def forget(path: Path) -> None:
    """Removes a file or a tree."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
