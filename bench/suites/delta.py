"""Patches between two versions of a tree: of images and of tar archives, beside general programs.

In full about 20 minutes, most of them bsdiff's."""

from __future__ import annotations

import filecmp
import functools
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.bench import Bench
from lib.images import command as builder
from lib.process import Command, measure, quiet
from lib.programs import PEERS, need, reason, typed
from lib.results import Results
from lib.suite import MEMORY, SIZE, Column, Missing, Plot, Row, Run, Suite, Table, Wrong
from lib.words import Words

BYTES = 40 * 10**6  # of each version of the copied trees
MAKE, APPLY = Column("make_cpu_s", "CPU, making", "s"), Column("apply_cpu_s", "CPU, applying", "s")
APPLY_WALL = Column("apply_wall_s", "applying", "s")
OF_PACKING = Column("of_packing", "applying ÷ packing, CPU", "")
COLUMNS = [SIZE, MAKE, MEMORY, APPLY, APPLY_WALL, OF_PACKING]
OURS = {"program": "kiln patch"}


def some_files(tree: Path, size: int) -> list[str]:
    """Returns paths of the first files of each of a hundred stretches of a tree, up to so many bytes in all."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names)
    paths = sorted(path for path in found if os.path.isfile(path) and not os.path.islink(path))
    chosen = []
    for at in range(100):
        room = size // 100
        for path in paths[at * len(paths) // 100 : (at + 1) * len(paths) // 100]:
            room -= os.path.getsize(path)
            if room < 0:
                break
            chosen.append(path)
    return chosen


def edited(content: bytes, rng: random.Random) -> bytes:
    """Returns contents with some bytes inserted and some removed for every 20 KB."""
    parts, at = [], 0
    while at < len(content):
        step = rng.randrange(1000, 40000)
        parts += [content[at : at + step], rng.randbytes(rng.randrange(1, 60)).hex().encode()]
        at += step + rng.randrange(40)
    return b"".join(parts)


def versions(bench: Bench, name: str, every: int) -> tuple[Path, Path]:
    """Makes two trees of a corpus's files; every n-th file differs in some places."""
    source, rng, place = bench.tree(name), random.Random(1), bench.directory("versions")
    for number, path in enumerate(some_files(source, BYTES // 8 if bench.quick else BYTES)):
        content = Path(path).read_bytes()
        changed = edited(content, rng) if number % every == 0 else content
        for side, data in (("old", content), ("new", changed)):
            to = place / side / os.path.relpath(path, source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
            os.utime(to, (1_700_000_000 + (data is not content), 1_700_000_000 + (data is not content)))
    return place / "old", place / "new"


def libraries(bench: Bench) -> tuple[Path, Path]:
    """Makes two trees of the libraries that the peers have brought from two releases of the distribution: what both
    have under the same name. Raises Missing."""
    sides = {"old": PEERS / "stable", "new": PEERS / "newest"}
    names = {
        side: {str(path.relative_to(root)) for path in root.glob("usr/lib/**/*.so*")} for side, root in sides.items()
    }
    both = sorted(names["old"] & names["new"])
    if not both:
        raise Missing("no libraries of two releases: run bench/peers.sh")
    place = bench.directory("libraries")
    for side, root in sides.items():
        for name in both:
            if not (root / name).is_symlink() and (root / name).is_file():
                (place / side / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, place / side / name)
    return place / "old", place / "new"


@dataclass(frozen=True)
class Way:
    """A program that makes a patch and one that applies it; `{old}`, `{new}`, `{patch}` and `{out}` are files."""

    name: str
    make: Sequence[str]
    apply: Sequence[str]
    most: int | None = None


KILN_APPLY = ["kiln", "patch", "apply", "--quiet", "{old}", "{patch}", "{out}"]
KILN = [
    Way("kiln patch", ["kiln", "patch", "make", "--quiet", "{old}", "{new}", "{patch}"], KILN_APPLY),
    Way(
        "kiln patch --portable",
        ["kiln", "patch", "make", "--quiet", "--portable", "{old}", "{new}", "{patch}"],
        KILN_APPLY,
    ),
]
ZSTD, XDELTA = ["zstd", "-q", "-f", "--long=31", "--patch-from={old}"], ["-f", "-B", "2147483648", "-s", "{old}"]
PEER_WAYS = [
    Way("zstd -19", [*ZSTD, "-19", "{new}", "-o", "{patch}"], [*ZSTD, "-d", "{patch}", "-o", "{out}"]),
    Way(
        "xdelta3 -9",
        ["xdelta3", "-e", "-9", *XDELTA, "{new}", "{patch}"],
        ["xdelta3", "-d", *XDELTA, "{patch}", "{out}"],
    ),
    Way("bsdiff", ["bsdiff", "{old}", "{new}", "{patch}"], ["bspatch", "{old}", "{out}", "{patch}"], most=1),
]


def patched(make: Command, apply: Command, new: Path, patch: Path, out: Path, pack_s: float) -> Run:
    """Makes a patch and applies it. Compares what it gives with the new file, outside the time. Raises Wrong."""
    try:
        made = measure(make)
        applied = measure(apply)
        if not filecmp.cmp(out, new, shallow=False):
            raise Wrong("applying gives other bytes than those of the new file")
        run = {"size_bytes": patch.stat().st_size, "make_cpu_s": made.cpu_s}
        run |= {"apply_cpu_s": applied.cpu_s, "apply_wall_s": applied.wall_s, "of_packing": applied.cpu_s / pack_s}
        return run | ({"memory_bytes": made.memory_bytes} if made.memory_bytes else {})
    finally:
        for path in (patch, out):
            path.unlink(missing_ok=True)


def filled(words: Sequence[str], files: dict[str, Path]) -> list[str]:
    """Returns a command with its files. Raises Missing."""
    return [need(words[0]), *(word.format(**files) for word in words[1:])]


def rows(bench: Bench, name: str, of: str, ways: Sequence[Way], old: Path, new: Path, pack_s: float) -> Iterator[Row]:
    """Yields a row for each way from an old file to a new one."""
    files = {"old": old, "new": new, "patch": bench.new("patch"), "out": bench.new("out")}
    for way in ways:
        row = Row({"trees": name, "of": of, "program": way.name}, ours=way.name.startswith("kiln"), most=way.most)
        row.reason = reason(way.make[0]) or reason(way.apply[0])
        if not row.reason:
            make = filled(way.make, files)
            row.command = typed(make)
            row.measure = functools.partial(
                patched, make, filled(way.apply, files), new, files["patch"], files["out"], pack_s
            )
        yield row


def patches(bench: Bench) -> Iterator[Row]:
    """Yields patches between images and between archives of each pair of trees."""
    pairs = [("system files, one of eight edited", versions(bench, "mini", 8))]
    if not bench.quick:
        pairs.append(("sources, one of three edited", versions(bench, "linux-source", 3)))
    presets = [("balanced", "balanced"), ("balanced", "archive")][: 1 if bench.quick else 2]
    try:
        pairs.append(("libraries of two releases", libraries(bench)))
    except Missing as error:
        yield Row({"trees": "libraries of two releases", "of": "images", "program": "all"}, reason=str(error))
    for name, (old, new) in pairs if not bench.quick else pairs[:1]:
        for before, after in presets if name == pairs[0][0] else presets[:1]:
            across = "images" if before == after else f"images, {before} to {after}"
            one = bench.image("kiln", f"--preset {before}", old)
            two = bench.new("image")
            bench.stack.callback(functools.partial(two.unlink, missing_ok=True))
            pack_s = measure(builder("kiln", f"--preset {after}", new, two)).cpu_s
            ways = [*KILN, *PEER_WAYS] if before == after else [*KILN, *PEER_WAYS[:1]]
            yield from rows(bench, name, across, ways, one, two, pack_s)
        tars = [bench.kept(("tar", str(tree)), functools.partial(archived, tree)) for tree in (old, new)]
        yield from rows(bench, name, "tar archives", PEER_WAYS, tars[0], tars[1], pack_s)


def archived(tree: Path, archive: Path) -> None:
    """Makes a tar archive of a tree, the same at any time."""
    quiet("tar", "--sort=name", "--mtime=@0", "-C", tree, "-cf", archive, ".")


def words(results: Results) -> list[str]:
    """Returns what the table says."""
    said = Words(results, "delta")
    table = results.table("delta", "patches")
    for name in dict.fromkeys(row.labels.get("trees", "") for row in table.rows) if table else ():
        ours = {"trees": name, "of": "images", **OURS}
        for of, why in (
            ("images", "programs that know no compression find little in common"),
            ("tar archives", "an archive is plain text, without the image's own structures"),
        ):
            peers = [way.name for way in PEER_WAYS]
            sizes = {
                peer: results.median("delta", "patches", "size_bytes", trees=name, of=of, program=peer)
                for peer in peers
            }
            known = {peer: size for peer, size in sizes.items() if size is not None}
            if not known:
                continue
            best = min(known, key=lambda peer: known[peer])
            theirs = {"trees": name, "of": of, "program": best}
            told = {"of": "A patch of kiln", "to": f"{best} on {of}", "where": f"({name})", "why": why}
            said.compare("patches", "size_bytes", ours, theirs, "size", **told)
        for of, most in (
            ("images", "in which both have one preset"),
            ("images, balanced to archive", "across presets"),
        ):
            share = results.median("delta", "patches", "of_packing", trees=name, of=of, **OURS)
            if share is not None:
                said.say(
                    f"Applying a patch of kiln takes {share:.2f} of the CPU of packing the new tree, {most} ({name}).",
                    loses=share > 1,
                )
    return said.sentences()


SUITE = Suite(
    "delta",
    "Patches between two versions of a tree",
    "How large is a patch from one image to the next, and what does it cost to make and to apply it? kiln's patches "
    "describe text, and encode it again as the new image has it. General programs make patches of the images, whose "
    "compressed bytes have little in common, and of plain archives, which nobody can mount.",
    [
        Table(
            "patches",
            "Patches of images and of archives",
            COLUMNS,
            patches,
            Plot("bars", "size_bytes", series="program", log_y=True),
            rounds=3,
            note="What a patch gives is compared with the new file each time. Peak memory is that of making. bsdiff "
            "runs once. Libraries of two releases are those that the peers have brought.",
        )
    ],
    words,
)
