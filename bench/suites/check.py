"""Damage: flipped bits that are noticed, and what digests, root hashes and checks cost.

In full about 10 minutes."""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lib import disks, images
from lib.bench import Bench
from lib.process import Failed, measure, quiet
from lib.programs import need, typed
from lib.results import Results
from lib.suite import CPU, MEMORY, SIZE, WALL, Column, Missing, Plot, Row, Run, Suite, Table
from lib.words import Words

PRESETS = ("plain", "fast", "balanced", "archive", "dataset")
FLIP_TIMEOUT_S = 30
FLIPS = [
    Column("flips", "flips", "", "", timed=False),
    Column("noticed", "noticed", "", "more", timed=False),
    Column("harmless", "harmless", "", "", timed=False),
    Column("contents", "other contents", "", timed=False),
    Column("metadata", "other metadata", "", timed=False),
]
# Of the flips that are not harmless.
SHARE = Column("share", "noticed", "%", "more", timed=False)
ROOT_HASH = Column("sha256_s", "SHA-256 of the image", "s", "")
SEALED = {"zstd": "--preset balanced", "lz4": "--preset fast", "uncompressed": "--preset plain"}
# Bytes of the arguments of one command line, at most; each has a pointer, too.
ARGUMENTS_MAX = 1900 << 10


@dataclass(frozen=True)
class Checker:
    """A way to look for damage in an image of a program. `command` is given the image, and a directory that is new."""

    name: str
    program: str
    options: str
    command: Callable[[Path, Path], list[str]]
    seal: bool = False  # with a hash tree; the command gets the root hash
    reads: bool = False  # what the command prints are contents, and must never be wrong


def kiln_check(image: Path, _: Path) -> list[str]:
    """Returns kiln's check of an image."""
    return [need("kiln"), "check", str(image)]


def fsck(image: Path, place: Path) -> list[str]:
    """Returns the check of erofs-utils, which decodes what it extracts."""
    return [need("fsck.erofs"), f"--extract={place}", "--overwrite", str(image)]


def unsquashfs(image: Path, place: Path) -> list[str]:
    """Returns the extraction of a SquashFS image: it has no check."""
    return [need("unsquashfs"), "-quiet", "-no-progress", "-strict-errors", "-dest", str(place), str(image)]


def flips(bench: Bench) -> Iterator[Row]:
    """Yields checkers of images, in which one bit after the other is flipped."""
    source = bench.tree("quick")
    names = files_of(source)

    def cat(image: Path, _: Path) -> list[str]:
        return [need("kiln"), "cat", str(image), *names]

    checkers = [
        *(
            Checker("kiln check", "kiln", f"--preset {preset}{digests}", kiln_check)
            for preset in (PRESETS[::2][:2] if bench.quick else PRESETS)
            for digests in ("", " --content-digests")
        ),
        Checker("kiln check --root-hash", "kiln", "--preset balanced", kiln_check, seal=True),
        Checker("kiln check --root-hash", "kiln", "--preset plain", kiln_check, seal=True),
        Checker("kiln cat --root-hash", "kiln", "--preset balanced", cat, seal=True, reads=True),
        Checker("kiln check", "mkfs.erofs", images.erofs("zstd,3", 64), kiln_check),
        Checker("fsck.erofs --extract", "mkfs.erofs", images.erofs("zstd,3", 64), fsck),
        Checker("unsquashfs", "mksquashfs", images.squash("zstd,3", 128), unsquashfs),
    ]
    count = (5, 10) if bench.quick else (200, 1500)
    place = bench.stack.enter_context(disks.tmpfs(bench.new(), 1 << 30))
    for one in checkers:
        labels = {"image": f"{one.program} {one.options}", "checker": one.name}
        most = count[one.seal] if not one.reads else count[0]
        row = Row(labels, ours=one.name.startswith("kiln"))
        row.measure = partial(flipped, bench, one, source, place, most)
        yield row


def flipped(bench: Bench, one: Checker, source: Path, place: Path, count: int) -> Run:
    """Flips bits of a good image, each alone, and counts what is seen. Equal options flip equal bits."""
    good, bad, out = bench.image(one.program, one.options, source), place / "image", place / "out"
    data = bytearray(good.read_bytes())
    bad.write_bytes(data)
    sealed = ["--root-hash", seal(bad)] if one.seal else []
    whole = bytearray(bad.read_bytes())
    command = [*(words := one.command(bad, out))[:2], *sealed, *words[2:]]
    expected = said(command, out)
    if expected is None:
        raise Failed(f"{one.name} does not accept the good image")
    rng = random.Random(f"{one.program}{one.options}")
    found = dict.fromkeys((column.key for column in FLIPS), 0.0) | {"flips": float(count)}
    with bad.open("r+b", buffering=0) as file:
        for _ in range(count):
            # Behind the data is the hash tree; flips in it count, too.
            bit = rng.randrange(8 * len(whole if one.seal else data))
            byte = bit // 8
            file.seek(byte)
            file.write(bytes([whole[byte] ^ 1 << bit % 8]))
            found[outcome(one, command, out, expected, good, bad)] += 1
            file.seek(byte)
            file.write(whole[byte : byte + 1])
    return found | {"share": found["noticed"] / max(1.0, count - found["harmless"])}


def outcome(one: Checker, command: list[str], out: Path, expected: str, good: Path, bad: Path) -> str:
    """Returns the outcome of a flip. One that passes is compared with the good image."""
    seen = said(command, out)
    if seen is None:
        return "noticed"
    if one.reads:
        return "harmless" if seen == expected else "contents"
    for same, ignored in (("harmless", []), ("metadata", ["--ignore", "mode,owner,mtime,xattrs,links"])):
        if run([need("kiln"), "diff", *ignored, str(good), str(bad)]).returncode == 0:
            return same
    return "contents"


def said(command: list[str], out: Path) -> str | None:
    """Runs a checker, and returns a digest of what it prints; None if it found damage, broke down or did not end."""
    try:
        done = run(command)
    except subprocess.TimeoutExpired:
        return None
    finally:
        quiet("rm", "-rf", out)
    return hashlib.blake2b(done.stdout).hexdigest() if done.returncode == 0 else None


def run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Runs a command that may fail. Raises TimeoutExpired."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=FLIP_TIMEOUT_S, check=False)


def seal(image: Path) -> str:
    """Appends a hash tree to an image, and returns the root hash."""
    return quiet(need("kiln"), "verity", "format", "--quiet", image).strip()


def files_of(tree: Path) -> list[str]:
    """Returns paths of files from the root of a tree, as many as one command line has room for."""
    paths = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    room, found = ARGUMENTS_MAX, []
    for path in paths:
        room -= len(path.encode()) + 9
        if room < 0:
            break
        found.append(path)
    return found


def verified(bench: Bench) -> Iterator[Row]:
    """Yields readings and checks of images, with and without a root hash."""
    source = bench.tree("mini")
    names = files_of(source)
    kiln, hashes = need("kiln"), {}
    for method, options in SEALED.items():

        def make(image: Path, method: str = method, options: str = options) -> None:
            quiet(*images.command("kiln", options, source, image))
            hashes[method] = seal(image)

        image = bench.kept(("sealed", method), make)
        for work, words in (("cat of all files", ["cat", str(image), *names]), ("check", ["check", str(image)])):
            for how, more in (("plain", []), ("--root-hash", ["--root-hash", hashes[method]])):
                line = [kiln, words[0], *more, *words[1:]]
                row = Row({"image": method, "work": work, "how": how}, ours=True)
                row.command = typed(["kiln", words[0], *(["--root-hash", "HEX"] if more else []), "IMAGE"])
                row.measure = partial(timed, line, image)
                yield row


def timed(line: list[str], image: Path) -> Run:
    """Measures a command, and beside it a SHA-256 of the image as one message in memory."""
    data = image.read_bytes()
    start = time.process_time()
    hashlib.sha256(data).digest()
    sha256_s = time.process_time() - start
    del data
    return measure(line).run(sha256_s=sha256_s)


def whole(bench: Bench) -> Iterator[Row]:
    """Yields programs that read all of an image to find damage."""
    source = bench.tree("rootfs")
    place = bench.stack.enter_context(disks.tmpfs(bench.new(), 8 << 30)) / "out"
    erofs, squash = images.erofs("zstd,3", 64), images.squash("zstd,3", 128)
    ways: list[tuple[str, str, str, Callable[[Path, Path], list[str]]]] = [
        ("kiln", "", "kiln check", kiln_check),
        ("kiln", "--content-digests", "kiln check", kiln_check),
        ("mkfs.erofs", erofs, "kiln check", kiln_check),
        ("mkfs.erofs", erofs, "fsck.erofs", lambda image, _: [need("fsck.erofs"), str(image)]),
        ("mkfs.erofs", erofs, "fsck.erofs --extract", lambda image, _: [need("fsck.erofs"), "--extract", str(image)]),
        ("mksquashfs", squash, "unsquashfs to memory", unsquashfs),
    ]
    for program, options, name, command in ways:
        row = Row({"image": f"{program} {options}".strip(), "checker": name}, ours=name.startswith("kiln"))
        try:
            image = bench.image(program, options, source)
            line = command(image, place)
            row.command = typed(line)
            row.measure = partial(checked, line, image, place)
        except Missing as error:
            row.reason = str(error)
        yield row


def checked(line: list[str], image: Path, place: Path) -> Run:
    """Measures a check, and leaves nothing."""
    try:
        return measure(line).run(size_bytes=image.stat().st_size)
    finally:
        quiet("rm", "-rf", place)


def words(results: Results) -> list[str]:
    """Returns sentences about the results."""
    text = Words(results, "check")
    table = results.table("check", "flips")
    rows = [row for row in table.rows if row.ours and row.runs] if table else []
    for sure, what in ((False, "Without digests or a hash tree"), (True, "With digests or a hash tree")):
        mine = [row for row in rows if sure == ("digests" in row.labels["image"] or "hash" in row.labels["checker"])]
        flips, seen, wrong = (sum(row.median(key) or 0 for row in mine) for key in ("flips", "noticed", "contents"))
        why = "names and targets of links have no digests" if sure else "data that still decode tell nothing"
        text.say(
            f"{what}, kiln notices {seen:,.0f} of {flips:,.0f} flipped bits, and lets {wrong:,.0f} pass that change "
            f"contents: {why}.",
            loses=wrong > 0,
        )
    for method in SEALED:
        for work, column, what in (("cat of all files", "cpu_s", "CPU"), ("check", "wall_s", "time")):
            plain = {"image": method, "work": work, "how": "plain"}
            text.compare(
                "verity",
                column,
                {**plain, "how": "--root-hash"},
                plain,
                what,
                of=f"a {work} by root hash",
                to="the same without",
                where=f"({method})",
                why="each block that is read is hashed once",
            )
    mkfs = f"mkfs.erofs {images.erofs('zstd,3', 64)}"
    text.compare(
        "whole",
        "wall_s",
        {"image": mkfs, "checker": "kiln check"},
        {"image": mkfs, "checker": "fsck.erofs --extract"},
        "time",
        of="kiln check",
        to="fsck.erofs --extract",
        where="on the same image",
        why="kiln decodes on all processors",
    )
    return text.sentences()


SUITE = Suite(
    "check",
    "Checks: damage that is found, and the price of root hashes",
    "Which flipped bits does a check see, and what do digests of contents and root hashes cost those who read? A flip "
    "that a check passes is compared with the good image: it lies in padding, or it has changed contents or metadata.",
    [
        Table(
            "flips",
            "Flipped bits that a check notices",
            [*FLIPS, SHARE],
            flips,
            Plot("bars", "share", series="checker"),
            rounds=1,
            note="A small tree of 600 files. With a hash tree, its bits are flipped, too. `kiln cat` prints all files; "
            "harmless is a flip after which it prints the same bytes. Without digests or a hash tree nobody can notice "
            "a flip in data that still decode.",
        ),
        Table(
            "verity",
            "Reading and checking, with and without a root hash",
            [CPU, WALL, MEMORY, ROOT_HASH],
            verified,
            Plot("bars", "cpu_s", series="how"),
            note="The images are in memory and have hash trees behind them.",
        ),
        Table(
            "whole",
            "Looking at all of an image",
            [WALL, CPU, MEMORY, SIZE],
            whole,
            Plot("bars", "wall_s", series="checker"),
            rounds=3,
            note="`fsck.erofs` without `--extract` looks at metadata only. `unsquashfs` has no check: it writes to "
            "memory.",
        ),
    ],
    words,
)
