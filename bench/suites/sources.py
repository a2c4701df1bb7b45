"""Sources: archives and images of other formats become EROFS, and EROFS becomes an archive.

In full about 20 minutes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lib import disks, images, trees
from lib.bench import Bench
from lib.machine import cpus
from lib.mounts import mount
from lib.process import Command, measure, quiet
from lib.programs import need, reason, typed
from lib.results import Results
from lib.suite import CPU, MEMORY, SIZE, WALL, Missing, Plot, Row, Run, Suite, Table
from lib.words import Words

COLUMNS = [WALL, CPU, MEMORY, SIZE]
ZSTD = ["-z", "zstd,3", "-C", "128K"]
SQUASH = images.squash("zstd,3", 128)
TAR = ["--format=posix", "--sort=name", "--xattrs", "--xattrs-include=*", "--acls"]
Steps = Sequence[Sequence[Command]]  # pipelines, one after the other


def packed(source: Path | str, image: Path, *options: str) -> list[str]:
    """Returns the command with which kiln packs a source."""
    return [need("kiln"), "pack", "--quiet", *ZSTD, "--threads", str(cpus()), *options, str(source), str(image)]


def archive(bench: Bench, tree: Path) -> Path:
    """Returns a tree as an archive with all that GNU tar can say of it, members in the order of their names."""
    return bench.kept(("tar", str(tree)), lambda path: quiet("tar", "-C", tree, *TAR, "--sparse", "-cf", path, "."))


def compressed(bench: Bench, tree: Path) -> Path:
    """Returns the same archive, compressed by zstd 3."""
    plain = archive(bench, tree)
    return bench.kept(("tar.zst", str(tree)), lambda path: quiet(need("zstd"), "-q", "-3", "-T0", plain, "-o", path))


def steps_done(image: Path, steps: Steps) -> Run:
    """Runs pipelines one after the other, which make an image, and returns their cost together. The image stays."""
    costs = [measure(*step, flush=image if number == len(steps) else None) for number, step in enumerate(steps, 1)]
    memory = max((cost.memory_bytes or 0 for cost in costs), default=0)
    run = {"wall_s": sum(cost.wall_s for cost in costs), "cpu_s": sum(cost.cpu_s for cost in costs)}
    return {**run, **({"memory_bytes": float(memory)} if memory else {}), "size_bytes": float(image.stat().st_size)}


def row(labels: dict[str, str], image: Path, steps: Callable[[], Steps], look: Callable[[], None]) -> Row:
    """Returns a row that makes an image. `look` compares the first one with the source. Programs that are not here are
    its reason."""
    made = Row(labels, ours=any("kiln" in label for label in labels.values()))
    try:
        lines = steps()
    except Missing as error:
        made.reason = str(error)
        return made
    made.command = "; ".join(" | ".join(typed(command) for command in step) for step in lines)  # type: ignore[arg-type]

    def run() -> Run:
        try:
            return steps_done(image, lines)
        finally:
            image.unlink(missing_ok=True)

    def check() -> None:
        try:
            steps_done(image, lines)
            look()
        finally:
            image.unlink(missing_ok=True)

    made.measure, made.check = run, check
    return made


def same_bytes(image: Path) -> Callable[[], None]:
    """Returns a comparison of an image's bytes with those of the first one."""
    same = trees.Same()

    def look() -> None:
        images.check(image)
        same(trees.digest(image))

    return look


def holds(bench: Bench, image: Path, tree: Path) -> Callable[[], None]:
    """Returns a comparison of what the kernel shows of an EROFS image with the tree that it was made of."""
    expected: list[trees.Record] = []

    def look() -> None:
        expected.extend([] if expected else trees.tree_of(tree))
        with mount("kernel erofs", image, bench.scratch / "mount") as mounted:
            trees.compare(trees.tree_of(mounted.root), expected)

    return look


def archives(bench: Bench) -> Iterator[Row]:
    """Yields a directory, its archive, and its compressed archive: one image. With a tree of oddities, too."""
    system = bench.tree("rootfs")
    bench.warm(system)
    odd = bench.directory("oddities")
    trees.make_oddities(odd, (20 if bench.quick else 300) << 20)
    image = bench.new("out")
    for name, tree in (("system tree", system), ("oddities", odd)):
        same, equal = same_bytes(image), holds(bench, image, tree)
        sources = {"directory": tree, "tar": archive(bench, tree), "tar.zst": compressed(bench, tree)}
        for kind, source in sources.items():
            # A stream is packed in its own order.
            labels, looks = {"tree": name, "source": kind}, equal if kind == "tar.zst" else same
            made = row(labels, image, lambda source=source: [[packed(source, image)]], looks)  # type: ignore[misc]
            made.ours = True
            yield made


def as_mkfs(bench: Bench) -> Iterator[Row]:
    """Yields a compressed archive that is decompressed into a pipe, into mkfs.erofs by both its names."""
    tree = bench.tree("mini")
    bench.warm(tree)
    source, image = compressed(bench, tree), bench.new("out")
    names = bench.directory("names") / "mkfs.erofs"  # kiln is mkfs.erofs if it is called so
    names.symlink_to(need("kiln"))
    look = holds(bench, image, tree)
    options = ["--tar=f", "-zzstd,3", "-C131072", f"--workers={cpus()}", "--quiet"]
    for extended in ("", "-E48bit"):
        for program in ("kiln as mkfs.erofs", "mkfs.erofs"):

            def steps(extended: str = extended, program: str = program) -> Steps:
                name = str(names) if program.startswith("kiln") else need("mkfs.erofs")
                line = [name, *options, *([extended] if extended else []), str(image)]
                return [[[need("zstd"), "-dc", str(source)], line]]

            yield row({"options": extended or "(none)", "program": program}, image, steps, look)


def conversions(bench: Bench) -> Iterator[Row]:
    """Yields a SquashFS image that becomes EROFS: read as it is, or unpacked to memory first."""
    tree = bench.tree("rootfs")
    source, image = bench.image("mksquashfs", SQUASH, tree), bench.new("out")
    memory = bench.stack.enter_context(disks.tmpfs(bench.new(), 8 << 30))
    look = holds(bench, image, tree)

    def by_a_tree() -> Steps:
        place = memory / "unpacked"
        options = ["-quiet", "-no-progress", "-processors", str(cpus()), "-d", str(place)]
        # Removing is part of it: the tree is only there for this.
        return [
            [[need("unsquashfs"), *options, str(source)]],
            [packed(place, image)],
            [["rm", "-rf", str(place)]],
        ]

    yield row({"way": "kiln pack of the image"}, image, lambda: [[packed(source, image)]], look)
    yield row({"way": "unsquashfs to memory, then a pack of it"}, image, by_a_tree, look)


def exports(bench: Bench) -> Iterator[Row]:
    """Yields images that become a tar archive, which goes into a pipe."""
    tree, place = bench.tree("rootfs"), bench.new("mount")
    image, squash = bench.image("kiln", " ".join(ZSTD), tree), bench.image("mksquashfs", SQUASH, tree)
    expected = trees.tree_of(tree)
    kiln, tar = ["export", "--quiet", "--threads", str(cpus()), str(image), "-"], ["-C", str(place), *TAR, "-c", "."]
    ways: list[tuple[str, str, str, list[str], tuple[str, Path] | None]] = [
        ("EROFS", "kiln export", "kiln", kiln, None),
        ("EROFS", "tar of the kernel's mount", "tar", tar, ("kernel erofs", image)),
        ("squashfs", "sqfs2tar", "sqfs2tar", ["--root-becomes", ".", str(squash)], None),
        ("squashfs", "tar of the kernel's mount", "tar", tar, ("kernel squashfs", squash)),
    ]
    for kind, way, program, words, served in ways:
        made = Row({"image": kind, "program": way}, command=f"{typed([program, *words])} | cat", ours=program == "kiln")
        made.reason = reason(program)
        if not made.reason:
            command = [need(program), *words]
            made.measure = partial(exported, command, served, place)
            made.check = partial(same_members, command, served, place, expected)
        yield made


def exported(command: list[str], served: tuple[str, Path] | None, place: Path) -> Run:
    """Runs a command that writes an archive into a pipe; its reader is `cat`, as tar reads nothing for /dev/null."""
    if served is None:
        return measure(command, ["cat"]).run()
    with mount(*served, place) as mounted:  # type: ignore[arg-type]
        found = mounted.client(command, ["cat"])
    return {key: found[key] for key in ("wall_s", "cpu_s")}


def same_members(
    command: list[str], served: tuple[str, Path] | None, place: Path, expected: list[trees.Record]
) -> None:
    """Compares the members of the archive that a command writes with the source. Raises Wrong."""
    if served is not None:
        with mount(*served, place):  # type: ignore[arg-type]
            return same_members(command, None, place, expected)
    # tar warns of each file of a filesystem without attributes.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        trees.compare(trees.tree_of_tar(child.stdout), expected)
        child.stdout.read()
    return None


def many(bench: Bench) -> Iterator[Row]:
    """Yields an archive of very many tiny files, the same as a directory, and a pass over its headers alone."""
    count = 10_000 if bench.quick else 1_000_000
    place = bench.stack.enter_context(disks.tmpfs(bench.new(), 8 << 30)) / "many"
    trees.make_many(place, count)
    tar = bench.kept(("many",), lambda path: trees.make_many_tar(path, count))
    image = bench.new("out")
    same = same_bytes(image)
    yield row({"work": "kiln pack of the directory"}, image, lambda: [[packed(place, image)]], same)
    yield row({"work": "kiln pack of the tar"}, image, lambda: [[packed(tar, image)]], same)
    # Everything is read and nothing is kept: what remains is the reading of headers, and an empty image.
    nothing = {"work": "kiln pack --exclude '*' of the tar"}
    yield row(nothing, image, lambda: [[packed(tar, image, "--exclude", "*")]], lambda: images.check(image))


def words(results: Results) -> list[str]:
    """Returns sentences about the results."""
    text = Words(results, "sources")
    for tree in ("system tree", "oddities"):
        text.compare(
            "archives",
            "cpu_s",
            {"tree": tree, "source": "tar"},
            {"tree": tree, "source": "directory"},
            "CPU",
            of="an archive",
            to="the directory that it was made of",
            where=f"for the {tree}",
            why="headers are parsed instead of looked up, and the image is the same to the byte",
        )
    for options in ("(none)", "-E48bit"):
        for column, what in (("wall_s", "time"), ("size_bytes", "size")):
            text.compare(
                "mkfs",
                column,
                {"options": options, "program": "kiln as mkfs.erofs"},
                {"options": options, "program": "mkfs.erofs"},
                what,
                of="kiln as mkfs.erofs",
                to="mkfs.erofs --tar=f",
                where=f"with options {options}",
            )
    text.compare(
        "squashfs",
        "wall_s",
        {"way": "kiln pack of the image"},
        {"way": "unsquashfs to memory, then a pack of it"},
        "time",
        of="a SquashFS image that kiln reads as it is",
        to="the way by a tree in memory",
        why="no file is made, and blocks are decoded while others are compressed",
    )
    ours = {"image": "EROFS", "program": "kiln export"}
    for peer in (
        {"image": "EROFS", "program": "tar of the kernel's mount"},
        {"image": "squashfs", "program": "sqfs2tar"},
    ):
        text.compare(
            "export", "wall_s", ours, peer, "time", of="kiln export", to=f"{peer['program']} ({peer['image']})"
        )
    tar, directory = {"work": "kiln pack of the tar"}, {"work": "kiln pack of the directory"}
    for column, what in (("memory_bytes", "memory"), ("wall_s", "time")):
        text.compare("many", column, tar, directory, what, of="an archive of very many files", to="the directory")
    return text.sentences()


SUITE = Suite(
    "sources",
    "Sources: archives and other formats to EROFS, and back",
    "What does it cost to make an image of an archive or of a SquashFS image, beside a directory and beside the "
    "programs that do the same? And what, to make an archive of an image? Whatever was made is read by another program "
    "and compared with the tree: names, all metadata, contents.",
    [
        Table(
            "archives",
            "A directory, its archive, and its compressed archive",
            COLUMNS,
            archives,
            Plot("bars", "wall_s", series="source"),
            note="All is in memory. Directory and archive give the same bytes. Oddities are attributes, ACLs, holes, "
            "devices, long names.",
        ),
        Table(
            "mkfs",
            "A compressed archive through a pipe, into mkfs.erofs by both its names",
            COLUMNS,
            as_mkfs,
            Plot("bars", "wall_s", series="program"),
            note="zstd decompresses into the pipe, and its CPU counts. Both compress by zstd 3 into clusters of 128 "
            "KiB.",
        ),
        Table(
            "squashfs",
            "A SquashFS image becomes EROFS",
            COLUMNS,
            conversions,
            Plot("bars", "wall_s"),
        ),
        Table(
            "export",
            "An image becomes a tar archive",
            [WALL, CPU, MEMORY],
            exports,
            Plot("bars", "wall_s", series="program"),
            note="The archive goes into a pipe. CPU includes the kernel's threads.",
        ),
        Table(
            "many",
            "A million empty or tiny files",
            COLUMNS,
            many,
            Plot("bars", "memory_bytes"),
            rounds=3,
            note="The quick form has 10,000.",
        ),
    ],
    words,
)
