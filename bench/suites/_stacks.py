"""Stacks of the suite `lslr`: a tree of metadata only with its objects, images of it, and filesystems over them."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.disks import Counter
from lib.mounts import Mount, mount, overlay
from lib.process import measure, quiet
from lib.programs import need
from lib.suite import Wrong

LIST = ["ls", "-lR", "."]
EROFS, SQUASH, EXT4 = "kernel erofs", "kernel squashfs", "kernel ext4"
STORED, HOLES, KILN = "mkfs.erofs ", "mkfs.erofs --chunksize=1048576", "kiln --preset plain --layout chunk-size=1M"
SQUASHED, NOT_COMPRESSED = "mksquashfs ", "mksquashfs -noI -noD -noF -noX"
METABOX = "kiln --kernel 6.17 --layout metadata"
HIDDEN = re.compile(r"lost\+found|[0-9a-f]{2}")  # what ext4 and the whiteouts of objects add to a root


@dataclass(frozen=True)
class Home:
    """A filesystem of its own with a tree of sparse files that refer to objects, the objects, and composefs's image."""

    root: Path
    source: Path  # the tree with its data
    device: Path

    @property
    def meta(self) -> Path:
        """The tree of metadata."""
        return self.root / "meta"

    @property
    def objects(self) -> Path:
        """The files by their digests."""
        return self.root / "objects"

    @property
    def composefs(self) -> Path:
        """The image of composefs."""
        return self.root / "image.cfs"


def home(bench: Bench, source: Path) -> Home:
    """Makes and mounts such a filesystem."""
    count, size = disks.entries(source)

    def make(path: Path) -> None:
        disks.empty(path, "ext4", 2 * size + count * 8192 + (64 << 20), 2 * count + 2000)
        with disks.loop(path, write=True) as device, disks.mounted(device, bench.new(), "ext4", "noatime") as place:
            (place / "objects").mkdir()
            store = f"--digest-store={place}/objects"
            quiet(need("mkcomposefs"), store, source, place / "image.cfs")
            quiet("cp", "-a", "--attributes-only", source, place)
            (place / source.name).rename(place / "meta")
            refer(source, place / "meta", quiet(need("composefs-info"), "dump", place / "image.cfs"))

    image = bench.kept(("home", str(source)), make)
    device = bench.stack.enter_context(disks.loop(image))
    root = bench.stack.enter_context(disks.mounted(device, bench.new(), "ext4", "ro,noload"))
    return Home(root, source, device)


def refer(source: Path, meta: Path, dump: str) -> None:
    """Lets the files of a tree of attributes refer to objects, as overlayfs follows them: sparse files of their
    lengths. Small ones keep their contents; whiteouts at the root hide the objects' directories."""
    for line in dump.splitlines():
        path, size, mode, *_, payload, _, _ = re.sub(r"\\x([0-9a-f]{2})", unescape, line).split(" ")[:11]
        found = os.fsencode(meta) + path.encode("latin-1")
        if mode.startswith("@") or not stat.S_ISREG(int(mode, 8)):
            continue
        times = os.lstat(found)
        if re.fullmatch(r"[0-9a-f]{2}/[0-9a-f]+", payload):
            os.setxattr(found, "trusted.overlay.metacopy", b"")
            os.setxattr(found, "trusted.overlay.redirect", b"/" + payload.encode())
            os.truncate(found, int(size))
        else:
            shutil.copyfile(os.fsencode(source) + path.encode("latin-1"), found)
        os.utime(found, ns=(times.st_atime_ns, times.st_mtime_ns))
    for number in range(256):
        os.mknod(meta / f"{number:02x}", stat.S_IFCHR, 0)


def unescape(escaped: re.Match[str]) -> str:
    """Returns the byte of an escape, except a space or a backslash, which would split words."""
    value = int(escaped[1], 16)
    return escaped[0] if value in (0x20, 0x5C, 0x0A) else chr(value)


@dataclass(frozen=True)
class Stack:
    """An image or a directory, bare or under overlayfs."""

    name: str
    maker: str  # a program with options; `ext4 -d`, `direct`, `composefs`
    kind: str = ""  # as `mounts.mount` names it
    over: str = ""  # "follow": objects are looked up with the names; "data only"; "empty": nothing to follow
    by_file: bool = False

    @property
    def ours(self) -> bool:
        """True if kiln made the image or reads it."""
        return "kiln" in self.maker + self.kind

    @contextmanager
    def opened(self, bench: Bench, place: Home) -> Iterator[Mount]:
        """The stack, mounted anew. The counter is that of the device of the image, or of the directory."""
        with ExitStack() as stack:
            if self.maker in ("composefs", "kiln composefs"):
                root = stack.enter_context(composefs(bench, place, self.maker.startswith("kiln")))
                found = Mount(root, None, "erofs|loop", Counter.of(place.device))
            elif self.maker == "direct":
                found = Mount(place.meta, None, "loop|ext4", Counter.of(place.device))
            else:
                image = made(bench, self.maker, place.meta)
                found = stack.enter_context(mount(self.kind, image, bench.new("bare"), counted=not self.by_file))
            if self.over:
                empty = bench.directory("empty")
                objects = empty if self.over == "empty" else place.objects
                top = overlay(bench.new("over"), found.root, data=objects, lazy=self.over == "data only")
                found = Mount(stack.enter_context(top), found.pid, found.threads, found.counter)
            yield found


# The published stacks, in their order, then ours.
M1 = [
    Stack("overlayfs + squashfs", SQUASHED, SQUASH, "follow"),
    Stack("overlayfs + ext4", "mkfs.ext4 -d", EXT4, "follow"),
    Stack("overlayfs + erofs", STORED, EROFS, "follow"),
    Stack("overlayfs + direct", "direct", "", "follow"),
    Stack("composefs of today", "composefs"),
    Stack("composefs of today, mounted by kiln", "kiln composefs"),
    Stack("overlayfs + erofs, holes kept", HOLES, EROFS, "follow"),
    Stack("overlayfs + kiln", KILN, EROFS, "follow"),
    Stack("overlayfs + kiln, data-only layer", KILN, EROFS, "data only"),
]
M2 = [
    Stack("erofs", HOLES, EROFS),
    Stack("overlayfs + erofs", HOLES, EROFS, "follow"),
    Stack("squashfs", SQUASHED, SQUASH),
    Stack("overlayfs + squashfs", SQUASHED, SQUASH, "follow"),
    Stack("squashfs, nothing compressed", NOT_COMPRESSED, SQUASH),
    Stack("overlayfs + squashfs, nothing compressed", NOT_COMPRESSED, SQUASH, "follow"),
    Stack("composefs of today", "composefs"),
    Stack("erofs by file", HOLES, EROFS, by_file=True),
    Stack("erofs, stored holes", STORED, EROFS),
    Stack("ext4", "mkfs.ext4 -d", EXT4),
    Stack("direct", "direct"),
    Stack("kiln", KILN, EROFS),
    Stack("kiln by file", KILN, EROFS, by_file=True),
    Stack("kiln, metadata compressed", METABOX, EROFS),
    Stack("overlayfs + kiln", KILN, EROFS, "follow"),
    Stack("overlayfs + kiln, metadata compressed", METABOX, EROFS, "follow"),
    Stack("kiln mount", KILN, "kiln mount"),
]


@contextmanager
def composefs(bench: Bench, place: Home, by_kiln: bool) -> Iterator[Path]:
    """Composefs of today: its image, which the kernel reads by file, and the objects as a layer of data."""
    root = bench.directory("composefs")
    if by_kiln:
        quiet(need("kiln"), "composefs", "mount", "--objects", place.objects, place.composefs, root)
    else:
        quiet(need("mount.composefs"), "-o", f"basedir={place.objects}", place.composefs, root)
    try:
        yield root
    finally:
        disks.unmount(root)


def made(bench: Bench, maker: str, tree: Path) -> Path:
    """Makes an image of a tree once a table."""
    program, _, options = maker.partition(" ")
    if program != "mkfs.ext4":
        return bench.image(program, options, tree)
    count = disks.entries(tree)[0]

    def make(path: Path) -> None:
        size = 64 + count * 1200 // 1000000 * 4 + count * 600 // 1000000
        quiet(
            need(program), "-q", "-F", "-N", str(count + count // 10 + 1000), "-d", tree, path, f"{size + size // 2}M"
        )

    return bench.kept((maker, str(tree)), make)


def slab() -> float:
    """Bytes of memory that the kernel holds for inodes, dentries and alike, and can give back."""
    found = re.search(r"^SReclaimable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024.0 if found else 0.0


def listed(bench: Bench, stack: Stack, place: Home) -> dict[str, float]:
    """Lists a stack with caches dropped, and again; returns a run."""
    with stack.opened(bench, place) as found:
        machine.drop_caches()
        before = slab()
        cold = found.client(LIST)
        held = slab() - before
        warm = found.client(LIST)
    run = {"wall_s": cold["wall_s"], "cpu_s": cold["cpu_s"], "warm_s": warm["wall_s"], "slab_bytes": max(held, 0.0)}
    return run | {key: cold[key] for key in ("fetched_bytes", "requests") if key in cold}


def same(bench: Bench, stack: Stack, place: Home) -> None:
    """Compares attributes of all entries with the source's. Raises Wrong."""
    if stack.maker.startswith("kiln ") and stack.maker != "kiln composefs":
        images.check(made(bench, stack.maker, place.meta))
    wanted = of_source(place.source)
    with stack.opened(bench, place) as found:
        shown = attributes(found.root)
    for path in wanted.keys() | shown.keys():
        if wanted.get(path) != shown.get(path) and not HIDDEN.fullmatch(path):
            raise Wrong(f"{path}: {shown.get(path, 'not there')} instead of {wanted.get(path, 'nothing')}")


@cache
def of_source(tree: Path) -> dict[str, tuple[object, ...]]:
    """Returns the attributes of a source, which are found once."""
    return attributes(tree)


def attributes(tree: Path) -> dict[str, tuple[object, ...]]:
    """Returns mode, owner, length and time of all entries, as `ls -lR` shows them."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(tree):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            length = -1 if stat.S_ISDIR(about.st_mode) else about.st_size
            times = int(about.st_mtime)
            found[os.path.relpath(path, tree)] = (
                stat.filemode(about.st_mode),
                about.st_uid,
                about.st_gid,
                length,
                times,
            )
    return found


def read_all(root: Path) -> float:
    """Reads all files below a directory, and returns the CPU seconds."""
    return measure(["tar", "-cf", "-", "."], ["cat"], cwd=root).cpu_s
