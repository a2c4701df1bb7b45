"""Programs that make images, with their options, and the comparison of trees."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from lib.machine import cpus
from lib.process import Command, Failed, measure, quiet
from lib.programs import need, typed
from lib.suite import Missing, Row, Wrong

PIECE = 1 << 20
PROGRAMS = ("kiln", "mkfs.erofs", "mksquashfs")  # that `command` knows


def command(program: str, options: str, tree: Path, image: Path, threads: int | None = None) -> list[str]:
    """Returns the command with which `kiln`, `mkfs.erofs` or `mksquashfs` makes an image of a tree, on all processors.
    Raises Missing."""
    count, words = str(threads or cpus()), options.split()
    if program == "kiln":
        return [need("kiln"), "pack", "--quiet", "--threads", count, *words, str(tree), str(image)]
    if program == "mkfs.erofs":
        return [need(program), "--quiet", f"--workers={count}", *words, str(image), str(tree)]
    if program == "mksquashfs":
        # Options of a compressor must follow -comp at once, so ours come last.
        ours = ["-processors", count, "-noappend", "-no-progress", "-quiet"]
        return [need(program), str(tree), str(image), *words, *ours]
    raise KeyError(f"no command for {program}")


def squash(compressor: str, kib: int, more: str = "") -> str:
    """Returns options of `mksquashfs` for a compressor as EROFS spells it: `lz4`, `lz4hc`, `zstd,3`, or `none`."""
    name, _, level = compressor.partition(",")
    comp = {"none": "-noI -noD -noF -noX", "lz4": "-comp lz4", "lz4hc": "-comp lz4 -Xhc"}.get(name, f"-comp {name}")
    return f"{comp}{f' -Xcompression-level {level}' if level and name != 'lz4hc' else ''} -b {kib}K {more}".strip()


def erofs(compressor: str, kib: int, more: str = "") -> str:
    """Returns options of `mkfs.erofs` for a compressor such as `zstd,3`, or `none`."""
    return " ".join(([] if compressor == "none" else [f"-z{compressor}", f"-C{kib * 1024}"]) + more.split())


def kiln(compressor: str, kib: int, more: str = "") -> str:
    """Returns options of `kiln pack` for the same."""
    return " ".join(
        (["--preset", "plain"] if compressor == "none" else ["-z", compressor, "-C", f"{kib}K"]) + more.split()
    )


def check(image: Path) -> None:
    """Lets kiln read all of an image. Raises Failed."""
    quiet(need("kiln"), "check", image)


def digests(tree: Path, each: Callable[[str], None] | None = None) -> dict[str, str]:
    """Returns, for each entry below a directory, its kind with the digest of its contents or its target. `each` is told
    each regular file before it is read."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(tree):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            about = stat.filemode(mode)
            if stat.S_ISLNK(mode):
                about += os.readlink(path)
            elif stat.S_ISREG(mode):
                if each:
                    each(path)
                digest = hashlib.blake2b(digest_size=16)
                with open(path, "rb", buffering=0) as file:
                    while data := file.read(PIECE):
                        digest.update(data)
                about += digest.hexdigest()
            found[os.path.relpath(path, tree)] = about
    return found


def compare(tree: dict[str, str], other: Path) -> None:
    """Compares digests of a tree with those of another directory. Raises Wrong at the first difference."""
    found = digests(other)
    for path in sorted(tree.keys() | found.keys()):
        if path.split("/")[0] == "lost+found":  # an ext4's own
            continue
        if tree.get(path) != found.get(path):
            raise Wrong(f"{path}: {found.get(path, 'not there')} instead of {tree.get(path, 'nothing')}")


def same(image: Path, tree: Path) -> None:
    """Compares an image of EROFS with a tree, metadata included. Raises Wrong."""
    try:
        quiet(need("kiln"), "diff", "--quiet", image, tree)
    except Failed as error:
        raise Wrong(f"the image differs from the tree: {error}") from error


def built(*commands: Command, image: Path, stdin: Path | None = None, read: bool = False) -> dict[str, float]:
    """Runs programs that make an image, a pipeline if there are several, and returns a run with the image's size. The
    time ends when the image is on the disk. With `read`, kiln then reads all of it. The image is removed. Raises
    Failed."""
    try:
        cost = measure(*commands, stdin=stdin, flush=image)
        size = image.stat().st_size
        if read:
            check(image)
        return cost.run(size_bytes=size)
    finally:
        image.unlink(missing_ok=True)


def checked(command: Command, image: Path) -> None:
    """Makes an image of kiln, reads all of it, and removes it. Raises Failed."""
    try:
        measure(command)
        check(image)
    finally:
        image.unlink(missing_ok=True)


def tree_row(row: Row, program: str, options: str, tree: Path, image: Path) -> Row:
    """Completes a row that builds an image of a tree in memory. kiln's image is read whole once: before anything is
    timed, or, if the row has one run only, after it."""
    try:
        line = command(program, options, tree, image)
    except Missing as error:
        row.reason = str(error)
        return row
    row.command = typed(line)
    once = row.most == 1
    row.measure = lambda: built(line, image=image, read=once and program == "kiln")
    if program == "kiln" and not once:
        row.check = lambda: checked(line, image)
    return row
