"""Cases of `once.py`: the contestants, and the bars.

A bar is the largest allowed quotient of a number of ours and the peer's, or of bytes that ours reads and those that it has to.
"""
from __future__ import annotations

import os
import random
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Union

import disks
import lib
import mounted
import packers
from disks import Disk
from lib import Pipe
from packers import Packer
from source_cases import UNIT, ZSTD, Workshop

ZSTD_3 = packers.Setting("zstd", 3, UNIT)
LIMIT = 400 * 10**6
OUR_MEMORY, THEIR_MEMORY = "64M", "200M"
SMALL_FILES, SMALL_LEN = 20_000, (1 * lib.KIB, 20 * lib.KIB)
UNIQUE_BYTES = 400 * 10**6
DELAY_US = 1000
# Lines that generated text consists of. So many that a few in a row do not come again.
LINES, VOCABULARY = 1 << 16, 5000


def nothing() -> None:
    """Do nothing before or after a run."""


@dataclass(frozen=True)
class Bar:
    """The most that `ours` may take, None to report it only: time in that of `peer`; bytes of the source in those of one reading;
    bytes read back from the output in those of the image."""

    ours: str
    peer: str
    wall: Optional[float] = None
    cpu: Optional[float] = None
    source: Optional[float] = None
    read_back: Optional[float] = None


@dataclass(frozen=True)
class Reading:
    """One finished run, and what it read of the disks; None for a disk that is not counted."""

    run: lib.Run
    source_bytes: Optional[int]
    source_reads: Optional[int]
    output_bytes: Optional[int]
    source_seeks: Optional[int] = None


@dataclass
class Contestant:
    """Programs that together do the work of a case."""

    label: str
    steps: List[Pipe]
    output: Path
    after: Callable[[], None] = nothing
    readings: List[Reading] = field(default_factory=list)

    def is_ours(self) -> bool:
        """True if the output is an image of kiln's."""
        return self.label.startswith("kiln")


@dataclass
class Case:
    """One piece of work, on the disks that it reads and writes."""

    name: str
    contestants: List[Contestant]
    bars: List[Bar]
    before: Callable[[], None]  # what makes caches cold or warm, before each run
    source: Disk
    output: Disk
    # Bytes that a program has to read of the source's disk.
    once_bytes: Optional[int] = None
    tree: str = ""
    problem: Optional[str] = None


class Scene:
    """Programs, disks, and a tree: on a disk of its own, if it can be."""

    def __init__(
        self, found: Dict[str, Packer], folder: Path, memory: Path, threads: int, source: Disk, output: Disk, stack: ExitStack
    ) -> None:
        self.found, self.threads, self.source, self.output, self.stack = found, threads, source, output, stack
        self.shop = Workshop(found, source.root, folder, memory, threads)
        self.image = self.shop.image = output.root / "image"
        self.kiln = self.shop.kiln

    def pack(self, source: Union[Path, str], *options: str, image: Optional[Path] = None) -> List[str]:
        """`kiln pack`, with the default preset unless `options` say otherwise."""
        return [self.kiln, "pack", "--quiet", "--threads", str(self.threads), *options, str(source), str(image or self.image)]

    def mksquashfs(self, *options: str) -> List[str]:
        """`mksquashfs` of the tree, with zstd 3 in blocks of 128K."""
        packer = self.found["mksquashfs"]
        return [*packers.mksquashfs_command(packer, ZSTD_3, self.source.root, self.image, self.threads), *options]

    def contestant(self, label: str, *steps: Sequence[str], after: Callable[[], None] = nothing) -> Contestant:
        """One that runs `steps`, one after the other."""
        return Contestant(label, [Pipe([step]) for step in steps], self.image, after)

    def piped(self, label: str, *commands: Sequence[str]) -> Contestant:
        """One that gets the tree's archive by a pipe."""
        return Contestant(label, [Pipe([["cat", str(self.shop.tar())], *commands])], self.image)

    def case(
        self, name: str, contestants: List[Contestant], bars: List[Bar], before: Callable[[], None],
        source: Optional[Disk] = None, once_bytes: Optional[int] = None,
    ) -> Case:  # fmt: skip
        """A case that reads `source`, or the tree; bars of peers that are missing here are left out."""
        labels = {one.label for one in contestants}
        kept = [bar for bar in bars if bar.peer in labels]
        return Case(name, contestants, kept, before, source or self.source, self.output, once_bytes)

    def once_bytes(self) -> int:
        """Bytes that leave the source's disk if everything is read once: files in whole blocks, inodes and directories."""
        mounted.drop_caches()
        before = self.source.reads()
        run = lib.measure_steps([reading(self.source.root)], self.image)
        after = self.source.reads()
        if not run.ok or before is None or after is None:
            raise OSError(f"the tree cannot be read once: {run.stderr_tail}")
        return after[0] - before[0]


def reading(tree: Path) -> Pipe:
    """Everything is read. tar does not, if it sees that its output is /dev/null."""
    return Pipe([["tar", "-C", str(tree), "-cf", "-", "."], ["cat"]])


def made_warm(*paths: Path) -> Callable[[], None]:
    """Everything in `paths`, files or trees, is in memory."""
    steps = [reading(path) if path.is_dir() else Pipe([["cat", str(path)]]) for path in paths]

    def before() -> None:
        run = lib.measure_steps(steps, Path(os.devnull))
        if not run.ok:
            raise OSError(f"cannot be read: {run.stderr_tail}")

    return before


def made_cold(*commands: Sequence[str]) -> Callable[[], None]:
    """Nothing is in memory but the programs."""
    def before() -> None:
        mounted.drop_caches()
        disks.wake(commands)
    return before


def trees_builders(scene: Scene) -> List[Contestant]:
    """Both with their defaults, on the tree."""
    return [scene.contestant("kiln pack", scene.pack(scene.source.root)), scene.contestant("mksquashfs", scene.mksquashfs())]


def warm(scene: Scene) -> Case:
    """A tree that is in memory."""
    bars = [Bar("kiln pack", "mksquashfs", wall=0.9, cpu=1.0)]
    return scene.case("warm", trees_builders(scene), bars, made_warm(scene.source.root))


def cold(scene: Scene) -> Case:
    """A tree of which nothing is in memory."""
    bars = [Bar("kiln pack", "mksquashfs", wall=0.9)]
    return scene.case("cold", trees_builders(scene), bars, made_cold([scene.kiln], scene.mksquashfs()))


def little_memory(scene: Scene) -> Case:
    """The same, and the tree is larger than the memory that there is for program and page cache together."""
    group = scene.stack.enter_context(disks.memory_group(LIMIT))
    kiln, squash = f"kiln pack --memory {OUR_MEMORY}", f"mksquashfs -mem {THEIR_MEMORY}"
    ours = scene.contestant(kiln, group.inside(scene.pack(scene.source.root, "--memory", OUR_MEMORY)))
    peer = scene.contestant(squash, group.inside(scene.mksquashfs("-mem", THEIR_MEMORY)))
    bars = [Bar(kiln, squash, wall=0.95, source=1.02, read_back=0.05)]
    before = made_cold(["sh"], [scene.kiln], scene.mksquashfs())
    return scene.case("400 MB", [ours, peer], bars, before, once_bytes=scene.once_bytes())


def pipe_plain(scene: Scene) -> Case:
    """An archive that comes by a pipe, not compressed."""
    peer, ours, by_name = "mkfs.erofs --tar=f", "kiln pack --preset plain -", "kiln as mkfs.erofs --tar=f"
    how = ["--tar=f", f"--workers={scene.threads}", "--quiet", str(scene.image)]
    contestants = [
        scene.piped(ours, scene.pack("-", "--preset", "plain")),
        scene.piped(by_name, [str(scene.shop.mkfs), *how]),
        scene.piped(peer, [str(scene.found["mkfs.erofs"].path), *how]),
    ]
    bars = [Bar(ours, peer, wall=1.0), Bar(by_name, peer, wall=1.0)]
    return scene.case("pipe, plain", contestants, bars, made_warm(scene.shop.tar()), Disk(scene.shop.tar()))


def pipe_zstd(scene: Scene) -> Case:
    """The same with zstd 3, equal files stored once, as SquashFS's builders do it."""
    ours = "kiln pack --dedupe files -"
    peers = {name: command for name, command in scene.shop.squashfs_builders().items() if name in scene.found}
    contestants = [scene.piped(ours, scene.pack("-", *ZSTD, "--dedupe", "files"))]
    contestants += [scene.piped(name, command) for name, command in peers.items()]
    bars = [Bar(ours, "tar2sqfs", wall=0.9), Bar(ours, "sqfstar", wall=0.7)]
    return scene.case("pipe, zstd 3", contestants, bars, made_warm(scene.shop.tar()), Disk(scene.shop.tar()))


def from_squashfs(scene: Scene) -> Case:
    """A SquashFS image becomes EROFS without a tree between."""
    squashfs, tree = scene.shop.squashfs(), scene.shop.memory / "unpacked"
    ours, peer = "kiln pack of the image", "unsquashfs to tmpfs, kiln pack of it"
    contestants = [
        scene.contestant(ours, scene.pack(squashfs)),
        scene.contestant(
            peer, scene.shop.unsquashfs(squashfs, tree), scene.pack(tree),
            after=lambda: subprocess.run(["rm", "-rf", str(tree)], check=True),
        ),
    ]
    return scene.case("squashfs to EROFS", contestants, [Bar(ours, peer, wall=0.6)], made_warm(squashfs), Disk(squashfs))


def parts_and_files(scene: Scene) -> Case:
    """The price of looking for equal parts where there are none."""
    parts, files = "kiln pack --dedupe parts", "kiln pack --dedupe files"
    contestants = [
        scene.contestant(f"kiln pack --dedupe {way}", scene.pack(scene.source.root, *ZSTD, "--dedupe", way)) for way in ("parts", "files")
    ]
    return scene.case("parts", contestants, [Bar(parts, files, cpu=1.08, wall=1.05)], made_warm(scene.source.root))


def slow_disk(scene: Scene) -> Case:
    """Small files on a disk of a thousand reads a second, beside a program that only reads them."""
    ours, peer = "kiln pack", "tar into a pipe"
    contestants = [
        scene.contestant(ours, scene.pack(scene.source.root)),
        Contestant(peer, [reading(scene.source.root)], scene.image),
    ]
    cold = made_cold([scene.kiln], ["tar"], ["cat"])

    def before() -> None:
        cold()
        made_warm(scene.source.image)()  # what is slow is the delay, not the disk below it

    return scene.case("slow disk", contestants, [Bar(ours, peer, wall=1.0)], before)


def nightly(scene: Scene, who: str) -> Case:
    """An image of a tree in which nothing has changed, over last night's image, beside a walk and a copy."""
    old, tree = scene.output.root / "old", scene.source.root
    mkfs = [f"-z{ZSTD_3.method}", f"-C{UNIT}", "--quiet", str(old), str(tree)]
    make = scene.pack(tree, image=old) if who == "kiln" else [str(scene.found[who].path), *mkfs]
    old.unlink(missing_ok=True)
    subprocess.run(make, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    ours, peer = f"kiln pack --base, image of {who}", "find, cp, sync"
    contestants = [
        scene.contestant(ours, scene.pack(tree, "--base", str(old))),
        scene.contestant(peer, ["find", str(tree), "-printf", ""], ["cp", str(old), str(scene.image)], ["sync", str(scene.image)]),
    ]
    return scene.case(f"nightly, {who}", contestants, [Bar(ours, peer, wall=1.0)], made_warm(tree, old))


def lines(rng: random.Random) -> List[bytes]:
    """Lines of about sixty bytes that compress as sources do."""
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randrange(2, 10))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 3) for rank in range(VOCABULARY)]
    return [(" ".join(rng.choices(words, weights, k=10)) + "\n").encode() for _ in range(LINES)]


def text(rng: random.Random, all_lines: Sequence[bytes], length: int) -> bytes:
    """So many bytes of lines in random order."""
    shortest = 30
    return b"".join(rng.choices(all_lines, k=length // shortest + 1))[:length]


def make_small(root: Path) -> None:
    """Small files, a hundred in each directory."""
    rng = random.Random(SMALL_FILES)
    all_lines = lines(rng)
    for number in range(SMALL_FILES):
        path = root / f"{number // 100:03}" / f"{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text(rng, all_lines, rng.randrange(*SMALL_LEN)))


def make_unique(root: Path) -> None:
    """Files of 4 KiB to 4 MiB without equal parts."""
    rng, room = random.Random(UNIQUE_BYTES), UNIQUE_BYTES
    all_lines = lines(rng)
    root.mkdir()
    while room > 0:
        length = min(room, int(2 ** rng.uniform(12, 22)))
        (root / f"{room:09}").write_bytes(text(rng, all_lines, length))
        room -= length


@dataclass(frozen=True)
class Spec:
    """Maker of a case, the peers without one of which there is none, and if it needs root."""

    make: Callable[[Scene], Case]
    peers: Sequence[str] = ()
    needs_root: bool = False


# Of each tree of the command line.
OF_TREES: Dict[str, Spec] = {
    "warm": Spec(warm, ["mksquashfs"]),
    "cold": Spec(cold, ["mksquashfs"], needs_root=True),
    "400 MB": Spec(little_memory, ["mksquashfs"], needs_root=True),
    "pipe, plain": Spec(pipe_plain, ["mkfs.erofs"]),
    "pipe, zstd 3": Spec(pipe_zstd),
    "squashfs to EROFS": Spec(from_squashfs, ["mksquashfs", "unsquashfs"]),
    "nightly, kiln": Spec(lambda scene: nightly(scene, "kiln")),
    "nightly, mkfs.erofs": Spec(lambda scene: nightly(scene, "mkfs.erofs"), ["mkfs.erofs"]),
}
# Of trees that are made for them.
SLOW_DISK, PARTS = "slow disk", "parts"
OF_OWN_TREES: Dict[str, Spec] = {SLOW_DISK: Spec(slow_disk, needs_root=True), PARTS: Spec(parts_and_files)}
