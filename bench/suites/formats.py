"""Three filesystems of a disk beside images: formatting, one published set of fio lines, space, limits, checks.

In full about 20 minutes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from lib import disks, images, machine, published
from lib.bench import Bench
from lib.mounts import mount
from lib.process import Failed, measure, quiet
from lib.programs import need, typed
from lib.suite import (
    CPU,
    MEMORY,
    RATE,
    SIZE,
    WALL,
    Column,
    Missing,
    Plot,
    Row,
    Run,
    Suite,
    Table,
    Wrong,
)
from suites._formats_claims import CLAIMS, DEVICE, HUGE, KINDS, LINES, F, words

# No options but those that ask nothing.
FORMAT = {"ext4": ["-q", "-F"], "XFS": ["-q", "-f"], "Btrfs": ["-q", "-f"]}

IMAGES = [("kiln", ""), ("mkfs.erofs", ""), ("mksquashfs", "")]


def formatted(name: str, device: Path) -> Run:
    """Formats a device without options of ours."""
    return measure([need(f"mkfs.{KINDS[name]}"), *FORMAT[name], str(device)], flush=device).run()


def blank(path: Path, length: int) -> None:
    """Makes a sparse file."""
    path.touch()
    os.truncate(path, length)


AGAIN = Column("again_s", "again", "s")


def formatting(bench: Bench) -> Iterator[Row]:
    """Yields the first and the second format of a disk, and the making of images."""
    for name in KINDS:

        def work(name: str = name) -> Run:
            file = bench.new("disk")
            blank(file, DEVICE // (50 if bench.quick else 1))
            try:
                with disks.loop(file, write=True) as device:
                    first = formatted(name, device)
                    return {
                        "wall_s": first["wall_s"],
                        "cpu_s": first["cpu_s"],
                        "again_s": formatted(name, device)["wall_s"],
                    }
            finally:
                file.unlink()

        one = Row({"system": name}, work, command=f"mkfs.{KINDS[name]}")
        figures = published.row("C-format", system=name)
        one.published = {
            column: figures[key] for key, column in (("first_s", "wall_s"), ("again_s", "again_s")) if key in figures
        }
        yield one
    tree = bench.tree("mini")
    bench.warm(tree)
    for program, options in IMAGES:

        def pack(program: str = program, options: str = options) -> Run:
            image = bench.new("image")
            first = images.built(images.command(program, options, tree, image), image=image)
            return {"wall_s": first["wall_s"], "cpu_s": first["cpu_s"]}

        yield Row({"system": f"{program}, an image"}, pack, ours=program == "kiln", command=program)


def empty_disks(bench: Bench, length: int) -> Iterator[tuple[str, Path, str]]:
    """Yields mounted filesystems on sparse files of a length, or why there are none; they go when the table ends."""
    for name, kind in KINDS.items():
        file = bench.new("disk")
        try:
            file = bench.kept(("disk", name, str(length)), lambda path: blank(path, length))
            device = bench.stack.enter_context(disks.loop(file, write=True))
            formatted(name, device)
            yield name, bench.stack.enter_context(disks.mounted(device, bench.new("disk"), kind, "noatime")), ""
        except (Missing, Failed) as error:
            yield name, file, str(error)


IOPS = Column("iops", "requests", "/s", "more")
LATENCY = Column("mean_s", "mean time of a request", "s")


def fio(place: Path, line: str, jobs: int, seconds: float, size: str) -> Run:
    """Runs a published line, scaled, and returns what fio tells."""
    kind, block = LINES[line]
    command = [
        need("fio"), "--name=line", f"--filename={place}/file", f"--rw={kind}", f"--bs={block}", f"--numjobs={jobs}",
        "--ioengine=libaio", "--iodepth=1", "--direct=1", f"--runtime={seconds}", "--refill_buffers", "--norandommap",
        "--randrepeat=0", "--group_reporting", f"--size={size}", "--output-format=json",
    ]  # fmt: skip
    said = quiet(*command)
    told = json.loads(said[said.index("{") :])["jobs"][0]["write" if kind == "write" else "read"]
    return {"iops": told["iops"], "rate": told["bw_bytes"], "mean_s": told["lat_ns"]["mean"] / 1e9}


def lay_out(place: Path, size: int) -> None:
    """Writes the file that fio reads, unless it is there."""
    path = place / "file"
    if not path.exists() or path.stat().st_size != size:
        block = os.urandom(1 << 20)
        with path.open("wb") as file:
            for _ in range(size >> 20):
                file.write(block)
    quiet("sync", "-f", place)


def lines(bench: Bench) -> Iterator[Row]:
    """Yields the published fio lines, two jobs."""
    size = (32 if bench.quick else 1024) << 20
    places = list(empty_disks(bench, 4 * size + (1 << 30)))
    for line in LINES:
        for name, place, reason in places:

            def work(line: str = line, place: Path = place) -> Run:
                lay_out(place, size)
                machine.drop_caches()
                return fio(place, line, 2, 0.5 if bench.quick else 10, f"{size >> 20}M")

            figures = published.row("C", line=line, system=name)
            told = {key: figures[key] for key in ("iops", "rate")}
            yield Row({"line": line, "system": name}, work, published=told, reason=reason)


def parallel(bench: Bench) -> Iterator[Row]:
    """Yields random reads by 1 to 16 jobs."""
    size = (32 if bench.quick else 1024) << 20
    places = list(empty_disks(bench, 4 * size + (1 << 30)))
    for jobs in (1, 16) if bench.quick else (1, 2, 4, 8, 16):
        for name, place, reason in places:

            def work(place: Path = place, jobs: int = jobs) -> Run:
                lay_out(place, size)
                machine.drop_caches()
                return fio(place, "random read", jobs, 0.3 if bench.quick else 5, f"{size >> 20}M")

            yield Row({"system": name, "jobs": str(jobs)}, work, reason=reason)


USABLE = Column("usable_bytes", "usable by df", "GB", "more", timed=False)
SHARE = Column("share", "of the device", "%", "more", timed=False)
INODES = Column("inodes", "inodes by df -i", "", "", timed=False)
FREE = Column("free_bytes", "free by its own tool", "GB", "", timed=False)
INODE = Column("inode_bytes", "inode", "B", "", timed=False)
GROUP = Column("group_blocks", "blocks a group", "", "", timed=False)
PER = Column("blocks_an_inode", "blocks an inode", "", "", timed=False)


def space(bench: Bench) -> Iterator[Row]:
    """Yields usable space and inodes of empty disks of the published size and of a small one."""
    for length in (DEVICE,) if bench.quick else (DEVICE, 10**10):
        for name, place, reason in empty_disks(bench, length):

            def work(name: str = name, place: Path = place, length: int = length) -> Run:
                about = os.statvfs(place)
                usable = about.f_bavail * about.f_frsize
                run = {"usable_bytes": usable, "share": usable / length, "inodes": about.f_files}
                device = quiet("findmnt", "-n", "-o", "SOURCE", place).strip()
                if name == "ext4":
                    return run | of_ext4(quiet(need("dumpe2fs"), "-h", device))
                if name == "Btrfs":
                    told = quiet(need("btrfs"), "filesystem", "usage", "-b", place)
                    return run | {"free_bytes": float(re.findall(r"Free \(estimated\):\s+(\d+)", told)[0])}
                return run

            yield Row({"device": f"{length // 10**9} GB", "system": name}, work, reason=reason)


def of_ext4(told: str) -> Run:
    """Returns the figures of a header of ext4."""
    field = lambda name: float(re.findall(rf"^{name}:\s+(\d+)", told, re.MULTILINE)[0])  # noqa: E731
    blocks, inodes = field("Block count"), field("Inode count")
    return {
        "inode_bytes": field("Inode size"),
        "group_blocks": field("Blocks per group"),
        "blocks_an_inode": blocks / inodes,
    }


FILES = Column("files", "empty files until it is full", "", "more", timed=False)
LEFT = Column("left", "space left then", "%", timed=False)


def filling(bench: Bench) -> Iterator[Row]:
    """Yields the number of empty files that small disks hold, and the space that is left when they refuse."""
    length = 320 << 20
    for name, place, reason in empty_disks(bench, length):

        def work(name: str = name, place: Path = place) -> Run:
            ballast = place / "ballast"
            about = os.statvfs(place)
            if bench.quick or name != "ext4":  # the others are full of data first: their inodes take what is left
                with ballast.open("wb") as file:
                    os.posix_fallocate(
                        file.fileno(), 0, about.f_bavail * about.f_frsize - ((8 if bench.quick else 64) << 20)
                    )
            count, folder = 0, place / "files"
            folder.mkdir()
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                while True:
                    os.close(os.open(f"{count:08}", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at))
                    count += 1
            except OSError as error:
                if error.errno != 28:
                    raise
            finally:
                os.close(at)
            quiet("sync", "-f", place)
            left = os.statvfs(place)
            return {"files": count, "left": left.f_bfree * left.f_frsize / length}

        yield Row({"system": name}, work, reason=reason, most=1)


LARGEST = Column("value", "largest file", "TiB", "more", timed=False)

MARKS = (0, 1 << 30, (5 << 40) + 12345, HUGE - 4096)  # places of data in the huge file


def largest(place: Path) -> int:
    """Returns the length of the largest file that a filesystem accepts."""
    path, low, high = place / "long", 0, 2**63 - 1
    path.touch()

    def fits(length: int) -> bool:
        try:
            os.truncate(path, length)
            return True
        except OSError:
            return False

    if fits(high):
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    path.unlink()
    return low


def huge_image(bench: Bench, program: str, options: str) -> Run:
    """Packs a sparse file of 16 TiB, mounts the image by the kernel, and compares data and holes."""
    place = bench.stack.enter_context(disks.tmpfs(bench.new("sparse"), 1 << 30))
    path, image = place / "huge", bench.new("image")
    (place / "tree").mkdir()
    path = place / "tree" / "huge"
    blank(path, HUGE)
    with path.open("r+b") as file:
        for mark in MARKS:
            os.pwrite(file.fileno(), f"here is {mark}".encode(), mark)
    try:
        line = images.command(program, options, place / "tree", image)
        quiet("timeout", "60", *line)
        with mount("kernel erofs", image, bench.new("mount")) as found:
            shown = found.root / "huge"
            if shown.stat().st_size != HUGE:
                raise Wrong(f"{shown.stat().st_size} bytes, not {HUGE}")
            with shown.open("rb") as one, path.open("rb") as two:
                for mark in (*MARKS, 1 << 40, (7 << 40) + 4095, HUGE // 2):
                    start = max(0, mark - 100)
                    if os.pread(one.fileno(), 4096, start) != os.pread(two.fileno(), 4096, start):
                        raise Wrong(f"huge: other bytes at {start}")
        return {"value": HUGE, "size_bytes": image.stat().st_size}
    finally:
        image.unlink(missing_ok=True)


def limits(bench: Bench) -> Iterator[Row]:
    """Yields the largest files that filesystems accept, and a sparse file of 16 TiB in images."""
    for name, place, reason in empty_disks(bench, 1 << 30):
        row = Row({"system": name}, lambda place=place: {"value": largest(place)}, command="truncate", reason=reason)
        row.published = {"value": published.row("C-limits", system=name, quantity="largest file")["value"]}
        yield row
    for label, program, options in (
        ("kiln, a sparse file of 16 TiB", "kiln", "--preset plain"),
        ("mkfs.erofs, a sparse file of 16 TiB", "mkfs.erofs", "--chunksize=67108864"),
    ):
        work = lambda program=program, options=options: huge_image(bench, program, options)  # noqa: E731
        yield Row({"system": label}, work, ours=program == "kiln", command=f"{program} {options}")
    reason = "not tried: this kernel hangs for good when it reads a sparse file of this length from squashfs"
    yield Row({"system": "mksquashfs, a sparse file of 16 TiB"}, reason=reason)


def checks(bench: Bench) -> Iterator[Row]:
    """Yields checks of filesystems that are full of a tree, and of images of it, caches dropped."""
    tree = bench.tree("mini")
    kinds = [
        ("ext4, metadata_csum", "ext4", "^has_journal,metadata_csum"),
        ("ext4, no checksums", "ext4", "^metadata_csum"),
    ]
    for label, kind, features in [*kinds, ("XFS", "xfs", ""), ("Btrfs", "btrfs", "")]:
        yield Row({"system": label}, lambda kind=kind, features=features: checked(bench, tree, kind, features))
    for label, program, options, check in (
        ("kiln image, kiln check", "kiln", "", ["kiln", "check"]),
        ("kiln image, fsck.erofs --extract", "kiln", "--kernel 6.12", ["fsck.erofs", "--extract"]),
        ("EROFS, not compressed, fsck.erofs", "mkfs.erofs", "", ["fsck.erofs"]),
        ("EROFS, not compressed, kiln check", "mkfs.erofs", "", ["kiln", "check"]),
    ):

        def work(program: str = program, options: str = options, check: list[str] = check) -> Run:
            image = bench.image(program, options, tree)
            machine.drop_caches()
            return measure([need(check[0]), *check[1:], str(image)]).run()

        yield Row({"system": label}, work, ours=check[0] == "kiln", command=typed([*check, "IMAGE"]))


def checked(bench: Bench, tree: Path, kind: str, features: str) -> Run:
    """Checks a filesystem, with all its blocks on the disk."""
    image = bench.kept(("full", kind, features), lambda path: full(path, kind, tree, features))
    line = {
        "ext4": ["fsck.ext4", "-f", "-n"],
        "xfs": ["xfs_repair", "-n"],
        "btrfs": ["btrfs", "check", "--readonly"],
    }[kind]
    with disks.loop(image) as device:
        machine.drop_caches()
        return measure([need(line[0]), *line[1:], str(device)]).run()


def full(path: Path, kind: str, tree: Path, features: str) -> None:
    """Makes a filesystem that a tree nearly fills."""
    if kind != "ext4":
        disks.filled(path, kind, tree)
        return
    count, size = disks.entries(tree)
    blank(path, size + count * 4608 + (64 << 20))
    quiet(need("mkfs.ext4"), "-q", "-F", "-m", "0", "-O", features, "-N", str(count + 2000), path)
    place = path.with_suffix(".filling")
    with disks.loop(path, write=True) as device, disks.mounted(device, place, "ext4", "noatime"):
        quiet("cp", "-a", f"{tree}/.", place)
    place.rmdir()


SUITE = Suite(
    F,
    "Three filesystems of a disk beside images: formats, fio lines, space, limits, checks",
    "How long does it take to format ext4, XFS and Btrfs, how do they read and write, how much can be used of a disk, "
    "and how large may files be? The making and the check of an image stand beside them.",
    [
        Table("formatting", "Formatting a disk of 1 TB, twice, and making an image", [WALL, AGAIN, CPU], formatting,
              Plot("bars", "wall_s", log_y=True), 5, 1, "C-format",
              "Loop devices over a sparse file, 20 GB in the quick form; the image is of a tree of 400 MB in memory."),
        Table("lines", "The published fio lines: two jobs, depth 1, direct", [IOPS, RATE, LATENCY], lines,
              Plot("bars", "iops", series="system", log_y=True), 3, 1, "C",
              "Scaled: 1 GiB for 10 s, not 10 GiB for 60 s. Loop devices over the same disk, past its page cache."),
        Table("parallel", "Random reads of 4 KiB by 1 to 16 jobs", [IOPS, RATE, LATENCY], parallel,
              Plot("lines", "iops", x="jobs", series="system", log_x=True), 3,
              note="As the published lines, 5 s each."),
        Table("space", "Usable space and inodes of empty disks", [USABLE, SHARE, INODES, FREE, INODE, GROUP, PER],
              space, Plot("bars", "share", series="device"), 1, 1, "",
              "No options but the names. ext4 keeps 5 % for root."),
        Table("filling", "Empty files on a disk of 320 MiB until it refuses", [FILES, LEFT], filling,
              Plot("bars", "files"), 1, note="XFS and Btrfs are filled with data before, but for 64 MiB."),
        Table("limits", "Largest files: accepted by truncate, and a sparse file of 16 TiB in images", [LARGEST, SIZE],
              limits, Plot("bars", "value", log_y=True), 1, 1, "C-limits",
              "Images are mounted by the kernel; length, data and holes at seven places are compared."),
        Table("checks", "Checks of full filesystems and of images", [WALL, CPU, MEMORY], checks,
              Plot("bars", "wall_s"), 5, note="A tree of 400 MB; caches dropped. kiln check decodes all data."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
