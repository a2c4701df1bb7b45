"""Cases of `sources.py`: conversions of archives and images of other formats, the contestants, and the bars.

A bar is the largest allowed quotient of a number of ours and the peer's, or the most that ours may be.
"""
from __future__ import annotations

import os
import stat
import subprocess
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import lib
import mounted
import packers
import trees
from lib import Pipe
from packers import Packer

UNIT = 128 * lib.KIB
ZSTD = ("-z", "zstd,3", "-C", str(UNIT))
MANY = 1_000_000

# A tree, or a digest of bytes that are to be the same.
Held = Union[List[trees.Record], str]


@dataclass(frozen=True)
class Bar:
    """Maximum of a quantity of a case's first contestant relative to that of `peer`; None to report it only."""

    peer: str
    cpu: Optional[float] = None
    wall: Optional[float] = None
    image: Optional[float] = None
    memory: Optional[float] = None


@dataclass
class Contestant:
    """Programs that together do the work of a case."""

    label: str
    steps: Callable[[], List[Pipe]]
    output: Path
    # What the output holds.
    holds: Callable[[], Held]
    # What has to be there while it runs, not timed: a mount.
    around: Callable[[], ContextManager[None]] = nullcontext
    runs: List[lib.Run] = field(default_factory=list)
    # What is wrong with its first output, or a digest of it.
    wrong: Optional[str] = None
    digest: Optional[str] = None


@dataclass
class Case:
    """One piece of work, ours first."""

    name: str
    contestants: List[Contestant]
    bars: List[Bar]
    # The tree that all outputs must hold; None: their bytes must be the same.
    expected: Optional[Callable[[], List[trees.Record]]] = None
    # The most wall time that ours may take, in seconds.
    wall_s: Optional[float] = None
    problem: Optional[str] = None


class Workshop:
    """Programs, scratch space, and inputs that are made once, of one tree."""

    def __init__(self, found: Dict[str, Packer], tree: Path, disk: Path, memory: Path, threads: int) -> None:
        self.found, self.tree, self.disk, self.memory, self.threads = found, tree, disk, memory, threads
        self.image = disk / "image"
        self.kiln = str(found["kiln"].path)
        self.mkfs = disk / "mkfs.erofs"  # kiln is mkfs.erofs where it is called so
        self.mkfs.symlink_to(found["kiln"].path.resolve())

    def source_tree(self) -> List[trees.Record]:
        """The tree that everything is made of."""
        return trees.tree_of(self.tree)

    def made(self, name: str, *commands: Sequence[str]) -> Path:
        """The file `name`, which `commands` make the first time that it is wanted."""
        path = self.disk / name
        if not path.exists():
            lib.say(f"making {name}")
            for command in commands:
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return path

    def tar(self) -> Path:
        """The tree as an archive, with everything that GNU tar can say of it, members in the order of their names."""
        path = self.disk / "tree.tar"
        how = ["--format=posix", "--sort=name", "--xattrs", "--xattrs-include=*", "--acls", "--sparse"]
        return self.made("tree.tar", ["tar", "-C", str(self.tree), *how, "-cf", str(path), "."])

    def tar_zst(self) -> Path:
        """The same, compressed."""
        tar = self.tar()
        return self.made("tree.tar.zst", ["zstd", "-q", "-3", "-T0", str(tar), "-o", f"{tar}.zst"])

    def squashfs(self) -> Path:
        """The tree as a SquashFS image."""
        path = self.disk / "tree.squashfs"
        packer, setting = self.found["mksquashfs"], packers.Setting("zstd", 3, UNIT)
        return self.made(path.name, packers.mksquashfs_command(packer, setting, self.tree, path, self.threads))

    def erofs(self) -> Path:
        """The tree as an EROFS image."""
        path = self.disk / "tree.erofs"
        return self.made(path.name, self.pack(self.tree, path))

    def pack(self, source: Path, image: Path, *options: str) -> List[str]:
        """`kiln pack` with zstd 3 in clusters of 128K."""
        return [self.kiln, "pack", "--quiet", "--force", *ZSTD, "--threads", str(self.threads), *options, str(source), str(image)]

    def squashfs_builders(self) -> Dict[str, List[str]]:
        """Name of each program that makes SquashFS of an archive on its standard input, and its command."""
        image, threads, root = str(self.image), str(self.threads), os.stat(self.tree)
        sqfstar = ["-comp", "zstd", "-Xcompression-level", "3", "-b", str(UNIT), "-processors", threads, "-no-progress", "-quiet"]
        # It does not take the root's metadata from the archive.
        sqfstar += ["-root-mode", f"{stat.S_IMODE(root.st_mode):o}", "-root-uid", str(root.st_uid), "-root-gid", str(root.st_gid)]
        sqfstar += ["-root-time", str(int(root.st_mtime))]
        tar2sqfs = ["--compressor", "zstd", "--comp-extra", "level=3", "--block-size", str(UNIT), "--num-jobs", threads, "--quiet", "--force"]
        commands = {"sqfstar": [*sqfstar, image], "tar2sqfs": [*tar2sqfs, image]}
        return {name: [str(packers.peer_path(packers.PEERS[name][0], name)), *options] for name, options in commands.items()}

    def contestant(self, label: str, steps: Callable[[], List[Pipe]], holds: Callable[[], Held]) -> "Contestant":
        """One that makes an image."""
        return Contestant(label, steps, self.image, holds)

    def erofs_tree(self) -> List[trees.Record]:
        """The tree in the image that was made, as the kernel shows it."""
        directory = self.disk / "mnt"
        directory.mkdir(exist_ok=True)
        with mounted.mounted(self.image, directory):
            return trees.tree_of(directory)

    def squashfs_tree(self) -> List[trees.Record]:
        """The tree in the image that was made, as unsquashfs unpacks it."""
        with self.unpacked(self.image) as tree:
            return trees.tree_of(tree)

    def image_digest(self) -> str:
        """Digest of the image's bytes."""
        return lib.file_digest(self.image)

    @contextmanager
    def unpacked(self, image: Path) -> Iterator[Path]:
        """The tree in a SquashFS image, in memory."""
        tree = self.memory / "unpacked"
        subprocess.run(self.unsquashfs(image, tree), check=True, stdout=subprocess.DEVNULL)
        try:
            yield tree
        finally:
            subprocess.run(["rm", "-rf", str(tree)], check=True)

    def unsquashfs(self, image: Path, tree: Path) -> List[str]:
        """The command that unpacks `image`."""
        return [str(self.found["unsquashfs"].path), "-quiet", "-no-progress", "-processors", str(self.threads), "-d", str(tree), str(image)]


def tar_and_directory(shop: Workshop) -> Case:
    """An archive costs no more than the tree that it was made of, and gives the same image."""
    def steps(source: Callable[[], Path]) -> Callable[[], List[Pipe]]:
        return lambda: [Pipe([shop.pack(source(), shop.image)])]

    ours = shop.contestant("kiln pack of the tar", steps(shop.tar), shop.image_digest)
    peer = shop.contestant("kiln pack of the directory", steps(lambda: shop.tree), shop.image_digest)
    return Case("tar and directory", [ours, peer], [Bar(peer.label, cpu=1.0, image=1.0)])


def mkfs_tar(shop: Workshop, extended: str, bar: Bar) -> Case:
    """A compressed archive, decompressed into a pipe, into mkfs.erofs by both its names."""
    def steps(program: Path) -> Callable[[], List[Pipe]]:
        how = ["--tar=f", "-zzstd,3", f"-C{UNIT}", f"--workers={shop.threads}", "--quiet", *([f"-E{extended}"] if extended else [])]
        return lambda: [Pipe([["zstd", "-dc", str(shop.tar_zst())], [str(program), *how, str(shop.image)]])]

    ours = shop.contestant("kiln as mkfs.erofs --tar=f", steps(shop.mkfs), shop.erofs_tree)
    peer = shop.contestant(bar.peer, steps(shop.found["mkfs.erofs"].path), shop.erofs_tree)
    return Case(f"mkfs --tar {extended}".strip(), [ours, peer], [bar], expected=shop.source_tree)


def squashfs_builders(shop: Workshop) -> Case:
    """An archive to a compressed image, equal files stored once, as SquashFS's builders do it."""
    def reads_tar(*command: str) -> Callable[[], List[Pipe]]:
        return lambda: [Pipe([list(command)], stdin=shop.tar())]

    ours = shop.contestant(
        "kiln pack --dedupe files", lambda: [Pipe([shop.pack(shop.tar(), shop.image, "--dedupe", "files")])], shop.erofs_tree
    )
    peers = {name: command for name, command in shop.squashfs_builders().items() if name in shop.found}
    listed = [ours, *(shop.contestant(name, reads_tar(*command), shop.squashfs_tree) for name, command in peers.items())]
    bars = [Bar(peer.label, wall=1.0, image=1.0) for peer in listed[1:]]
    return Case("tar to SquashFS", listed, bars, expected=shop.source_tree)


def from_squashfs(shop: Workshop) -> Case:
    """A SquashFS image becomes EROFS without a tree between."""
    def by_way_of_a_tree() -> List[Pipe]:
        tree = shop.memory / "unpacked"
        # Removing is part of it: the tree is only there for this.
        steps = [shop.unsquashfs(shop.squashfs(), tree), shop.pack(tree, shop.image), ["rm", "-rf", str(tree)]]
        return [Pipe([step]) for step in steps]

    ours = shop.contestant("kiln pack of the image", lambda: [Pipe([shop.pack(shop.squashfs(), shop.image)])], shop.erofs_tree)
    peer = shop.contestant("unsquashfs to tmpfs, kiln pack of it", by_way_of_a_tree, shop.erofs_tree)
    return Case("squashfs to EROFS", [ours, peer], [Bar(peer.label, wall=0.75)], expected=shop.source_tree)


def to_tar(shop: Workshop) -> Case:
    """An EROFS image becomes a tar archive, which goes into a pipe."""
    directory = shop.disk / "tree"
    directory.mkdir(exist_ok=True)
    taken = ["cat"]  # tar reads nothing where it sees /dev/null
    export = [shop.kiln, "export", "--quiet", "--threads", str(shop.threads), str(shop.erofs()), "-"]
    tar = ["tar", "-C", str(directory), "--format=posix", "--sort=name", "--xattrs", "--acls", "-c", "."]

    @contextmanager
    def mount() -> Iterator[None]:
        with mounted.mounted(shop.erofs(), directory):
            yield

    def members(command: List[str]) -> Callable[[], Held]:
        def read() -> Held:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            try:
                return trees.tree_of_tar(child.stdout)
            finally:
                child.stdout.close()
                child.wait()
        return read

    ours = Contestant("kiln export", lambda: [Pipe([export, taken])], shop.image, members(export))
    peer = Contestant("tar of the kernel's mount", lambda: [Pipe([tar, taken])], shop.image, members(tar), mount)
    return Case("EROFS to tar", [ours, peer], [Bar(peer.label, wall=0.6)], expected=shop.source_tree)


def many_members(shop: Workshop, count: int) -> List[Case]:
    """Many empty or tiny files: memory, and how long the headers take."""
    tree, tar = shop.memory / "many", shop.disk / "many.tar"
    if not tar.exists():
        lib.say(f"making {count} files")
        trees.make_many(tree, count)
        trees.make_many_tar(tar, count)

    def pack(source: Path) -> Callable[[], List[Pipe]]:
        return lambda: [Pipe([shop.pack(source, shop.image)])]

    ours = shop.contestant("kiln pack of the tar", pack(tar), shop.image_digest)
    peer = shop.contestant("kiln pack of the directory", pack(tree), shop.image_digest)
    # Everything is read and nothing is kept: what remains is the reading of headers, and an empty image.
    nothing = [*shop.pack(tar, shop.image, "--exclude", "*")]
    headers = shop.contestant("kiln pack --exclude '*' of the tar", lambda: [Pipe([nothing])], shop.image_digest)
    return [
        Case(f"{count} members", [ours, peer], [Bar(peer.label, image=1.0, memory=1.0)]),
        Case(f"{count} headers", [headers], [], wall_s=3.0 * count / MANY if count >= MANY else None),
    ]


def oddities(shop: Workshop, folder: Path) -> Case:
    """Attributes, ACLs and holes: the same image of archive and directory."""
    tree = folder / "oddities"
    (folder / "odd").mkdir()
    if not tree.exists():
        trees.make_oddities(tree)
    odd = Workshop(shop.found, tree, folder / "odd", shop.memory, shop.threads)
    case = tar_and_directory(odd)
    case.name = "tar and directory, oddities"
    case.bars = [Bar(case.contestants[1].label, image=1.0)]
    return case


CaseMaker = Callable[[Workshop], List[Case]]


def cases(count: int) -> Dict[str, Tuple[CaseMaker, Sequence[str]]]:
    """Name of each case or pair of cases: what makes it, and the peers without which there is none."""
    aligned = Bar("mkfs.erofs --tar=f", wall=0.3, image=1.0)
    encoded = Bar("mkfs.erofs --tar=f -E48bit", wall=1.0, image=1.0)
    return {
        "tar and directory": (lambda shop: [tar_and_directory(shop)], ()),
        "tar and directory, oddities": (lambda shop: [oddities(shop, shop.disk)], ()),
        "mkfs --tar": (lambda shop: [mkfs_tar(shop, "", aligned)], ("mkfs.erofs",)),
        "mkfs --tar 48bit": (lambda shop: [mkfs_tar(shop, "48bit", encoded)], ("mkfs.erofs",)),
        "tar to SquashFS": (lambda shop: [squashfs_builders(shop)], ("unsquashfs",)),
        "squashfs to EROFS": (lambda shop: [from_squashfs(shop)], ("mksquashfs", "unsquashfs")),
        "EROFS to tar": (lambda shop: [to_tar(shop)], ()),
        "many members": (lambda shop: many_members(shop, count), ()),
    }
