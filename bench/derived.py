"""Inputs with repeated text, derived from a tree; equal trees give equal inputs."""
from __future__ import annotations

import os
import random
import shutil
import tarfile
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import bars
import lib

# Of the tree's files, in the order of their paths, as many as have this many bytes.
BYTES = 100 * 10**6


def some_files(source: Path) -> List[str]:
    """Paths of the first files of each of a hundred stretches of the tree, up to `BYTES` in all."""
    paths = list(lib.walk_files(source))
    stretches = [paths[n * len(paths) // 100 : (n + 1) * len(paths) // 100] for n in range(100)]
    chosen = []
    for stretch in stretches:
        room = BYTES // 100
        for path in stretch:
            room -= os.path.getsize(path)
            if room < 0:
                break
            chosen.append(path)
    return chosen


def edited(content: bytes, rng: random.Random) -> bytes:
    """With some other lines: a few bytes inserted, a few removed, for every 20 KB."""
    parts = []
    at = 0
    while at < len(content):
        step = rng.randrange(1000, 40000)
        parts += [content[at : at + step], rng.randbytes(rng.randrange(1, 60)).hex().encode()]
        at += step + rng.randrange(40)
    return b"".join(parts)


def versions(source: Path, every: int) -> Iterator[List[bytes]]:
    """Name, old and new content of each chosen file; every n-th is edited."""
    rng = random.Random(1)
    for number, path in enumerate(some_files(source)):
        content = Path(path).read_bytes()
        changed = edited(content, rng) if number % every == 0 else content
        yield [os.fsencode(os.path.relpath(path, source)), content, changed]


def releases(source: Path, folder: Path) -> None:
    """Two tar files; every third file differs in some lines."""
    for which in (1, 2):
        with tarfile.open(folder / f"release-{which}.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for version in versions(source, 3):
                with (scratch := folder / "member").open("wb") as file:
                    file.write(version[which])
                info = tarfile.TarInfo(f"release-{which}/{os.fsdecode(version[0])}")
                info.size = len(version[which])
                with scratch.open("rb") as file:
                    archive.addfile(info, file)
    (folder / "member").unlink(missing_ok=True)


def updated_copy(source: Path, folder: Path) -> None:
    """`old` and `new`; every eighth file differs in some places."""
    for name, old, new in versions(source, 8):
        for side, content in (("old", old), ("new", new)):
            path = folder / side / os.fsdecode(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def duplicates(source: Path, folder: Path) -> None:
    """The chosen files, and of every third of them an edited copy: about a quarter of all text occurs twice."""
    rng = random.Random(2)
    for number, (name, old, _) in enumerate(versions(source, 1 << 30)):
        copies = [("all", old)] + ([("again", edited(old, rng))] if number % 3 == 0 else [])
        for side, content in copies:
            path = folder / side / os.fsdecode(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


MAKERS: Dict[str, Callable[[Path, Path], None]] = {
    bars.RELEASES: releases,
    bars.UPDATED: updated_copy,
    bars.DUPLICATES: duplicates,
}


def make(kind: str, source: Path, scratch: Path) -> Path:
    """The input of this kind, made once below `scratch`."""
    folder = scratch / kind
    if not folder.exists():
        folder.mkdir()
        try:
            MAKERS[kind](source, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder
