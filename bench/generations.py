#!/usr/bin/env python3
"""Nightly backups of one tree: a chain of `kiln pack --base` images, one image with `kiln update`, beside restic and borg.

A copy of the tree is changed by seeded edits every night, the same for all. What a repository takes is what the filesystem says that it
has less room after each night, so that blocks that files share (reflinks of XFS and btrfs) count once: name a directory
on such a filesystem by `--repositories`. The last generation of each is compared with the tree. With `--nights 1` it also gives what one increment costs
in that of a full pack, and what one of an unchanged tree costs in that of `find -ls`, `cp` and `sync`.
"""
from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import lib
import packers
import trees

# CPU and wall time of an increment of which one file of a hundred has changed, in those of a full pack; its length in that of a fresh image.
CPU_BAR, WALL_BAR, SIZE_BAR = 0.15, 0.25, 1.01
# Wall time of an increment of which nothing has changed, in that of listing the tree and copying the image.
UNCHANGED_BAR = 1.0
PASSWORD = {"RESTIC_PASSWORD": "x", "BORG_PASSPHRASE": "x", "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}


@dataclass
class Repository:
    """A way to keep generations, and what they took."""

    who: str
    folder: Path
    first: Callable[[Path], Sequence[str]]  # the command of the first night, for the tree
    later: Callable[[Path, int], Sequence[str]]  # of night n
    restore: Callable[[Path], Sequence[str]]  # the last generation into a directory
    runs: List[lib.Run] = field(default_factory=list)
    used: List[int] = field(default_factory=list)  # bytes, after each night
    problem: Optional[str] = None


def used_bytes(folder: Path) -> int:
    """Bytes in use on the filesystem of `folder`."""
    os.sync()
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def edit(tree: Path, share: float, places: random.Random) -> int:
    """Change `share` of the regular files: most in the middle, some grow, some are new, some go. Returns how many."""
    files = list(lib.walk_files(tree))
    chosen = places.sample(files, max(1, int(len(files) * share)))
    for path in chosen:
        kind = places.random()
        text = Path(places.choice(files)).read_bytes()[: places.randrange(1, 20_000)]
        if kind < 0.6:
            with open(path, "r+b") as file:
                file.seek(places.randrange(max(1, os.path.getsize(path))))
                file.write(text[:200])
        elif kind < 0.8:
            with open(path, "ab") as file:
                file.write(text)
        elif kind < 0.9:
            Path(path + f".{places.randrange(1000)}").write_bytes(text)
        else:
            os.unlink(path)
            files.remove(path)
    return len(chosen)


def repositories(kiln: packers.Packer, parent: Path, options: Sequence[str]) -> List[Repository]:
    """All ways that this machine has."""
    program = str(kiln.path)
    pack = [program, "pack", "-q", *options]

    def folder(name: str) -> Path:
        path = parent / name
        path.mkdir()
        return path

    chain, full = folder("kiln-base"), folder("kiln-full")
    nights = {"last": 0}

    def increment(tree: Path, night: int) -> Sequence[str]:
        nights["last"] = night
        return [*pack, "--base", str(chain / f"{night - 1}.erofs"), str(tree), str(chain / f"{night}.erofs")]

    listed = [
        Repository("kiln pack --base, an image a night", chain, lambda tree: [*pack, str(tree), str(chain / "0.erofs")], increment,
                   lambda out: [program, "extract", "-q", str(chain / f"{nights['last']}.erofs"), str(out)]),
        Repository("kiln pack, an image a night", full, lambda tree: [*pack, str(tree), str(full / "0.erofs")],
                   lambda tree, night: [*pack, str(tree), str(full / f"{night}.erofs")],
                   lambda out: [program, "extract", "-q", str(full / f"{nights['last']}.erofs"), str(out)]),
    ]
    if subprocess.run([program, "update", "--help"], capture_output=True, check=False).returncode == 0:
        image = folder("kiln-update") / "image.erofs"
        listed.append(Repository("kiln update, one image", image.parent, lambda tree: [*pack, str(tree), str(image)],
                                 lambda tree, _: [program, "update", "-q", str(image), str(tree)],
                                 lambda out: [program, "extract", "-q", str(image), str(out)]))
    if restic := shutil.which("restic"):
        repo = folder("restic")
        subprocess.run([restic, "-q", "-r", str(repo), "init"], check=True)
        restic_repo = [restic, "-q", "-r", str(repo)]

        def backup(tree: Path, _: int = 0) -> Sequence[str]:
            return ["sh", "-c", f"cd '{tree}' && exec \"$@\" backup .", "sh", *restic_repo]

        listed.append(Repository("restic", repo, backup, backup, lambda out: [*restic_repo, "restore", "latest", "--target", str(out)]))
    if borg := shutil.which("borg"):
        repo = folder("borg")
        subprocess.run([borg, "init", "-e", "none", str(repo)], check=True, capture_output=True)

        def create(tree: Path, night: int = 0) -> Sequence[str]:
            return ["sh", "-c", f"cd '{tree}' && exec '{borg}' create -C zstd,3 '{repo}::{night}' ."]

        listed.append(Repository("borg, zstd 3", repo, create, create,
                                 lambda out: ["sh", "-c", f"mkdir '{out}' && cd '{out}' && exec '{borg}' extract '{repo}::{nights['last']}'"]))
    return listed


def below_root(tree: Path) -> List[trees.Record]:
    """The tree without its root: borg leaves that to whoever makes the directory."""
    return [record for record in trees.tree_of(tree) if record[0] != "."]


def spend_night(repository: Repository, command: Sequence[str]) -> None:
    """One backup."""
    before = used_bytes(repository.folder)
    run = lib.measure(command, repository.folder / "none")
    if not run.ok:
        repository.problem = f"exit {run.exit_code}: {run.stderr_tail}"
    repository.runs.append(run)
    repository.used.append((repository.used[-1] if repository.used else 0) + used_bytes(repository.folder) - before)


def bars(kiln: packers.Packer, tree: Path, folder: Path, arguments: argparse.Namespace) -> List[str]:
    """One increment beside a full pack, and one without changes beside a listing and a copy."""
    rounds, share = arguments.rounds, arguments.share
    old, new, fresh = (folder / f"{name}.erofs" for name in ("old", "new", "fresh"))
    pack = [str(kiln.path), "pack", "-q", "--force", *arguments.options]
    make_old = [*pack, str(tree), str(old)] if arguments.mkfs is None else [*packers.mkfs_command(arguments.mkfs), str(old), str(tree)]
    subprocess.run(make_old, check=True, stdout=subprocess.DEVNULL)
    copy = ["sh", "-c", f"find '{tree}' -ls && cp '{old}' '{new}' && sync '{new}'"]
    increment = [*pack, "--base", str(old), str(tree), str(new)]

    def in_turns(one: Sequence[str], other: Sequence[str]) -> List[Dict[str, Optional[float]]]:
        runs: List[List[lib.Run]] = [[], []]
        for _ in range(rounds):
            runs[0].append(lib.measure(one, new))
            runs[1].append(lib.measure(other, fresh if other is full else new))
        return [lib.median_run(each) for each in runs]

    full = [*pack, str(tree), str(fresh)]
    lib.warm(tree)
    ours, theirs = in_turns(increment, copy)
    lines = [f"nothing changed: {ours['wall_s']:.2f} s, find + cp + sync {theirs['wall_s']:.2f} s: "
             f"{ours['wall_s'] / theirs['wall_s']:.2f} of it (bar {UNCHANGED_BAR})"]
    count = edit(tree, share, random.Random(0))
    lib.warm(tree)
    ours, theirs = in_turns(increment, full)
    shares = {name: ours[name] / theirs[name] for name in ("cpu_s", "wall_s", "image_bytes")}
    lines.append(f"{count} files changed: CPU {ours['cpu_s']:.2f} of {theirs['cpu_s']:.2f} s, {shares['cpu_s']:.3f} (bar {CPU_BAR}); "
                 f"wall {ours['wall_s']:.2f} of {theirs['wall_s']:.2f} s, {shares['wall_s']:.3f} (bar {WALL_BAR}); "
                 f"size {shares['image_bytes']:.4f} (bar {SIZE_BAR})")
    return lines


def row(repository: Repository) -> List[str]:
    """One line of the table."""
    if repository.problem or len(repository.runs) < 2:
        return [repository.who, "failed", *["-"] * 5]
    later = repository.runs[1:]
    first, last = repository.used[0], repository.used[-1]
    return [repository.who, lib.mb(first), lib.mb(last), f"{last / first:.2f}", f"{repository.runs[0].cpu_s:.1f}",
            f"{sum(run.cpu_s for run in later) / len(later):.2f}", f"{sum(run.wall_s for run in later) / len(later):.2f}"]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="it is copied, and the copy is changed")
    parser.add_argument("--nights", type=lib.positive, default=30)
    parser.add_argument("--share", type=float, default=0.01, help="of the files, how many change each night (default 0.01)")
    parser.add_argument("--rounds", type=lib.positive, default=3, help="of what is measured with --nights 1")
    parser.add_argument("--options", type=str.split, default=["--preset", "balanced"], help="of kiln pack (default: --preset balanced)")
    parser.add_argument("--mkfs", metavar="OPTIONS", help="with --nights 1: the first image is one of mkfs.erofs with these options")
    parser.add_argument("--repositories", type=Path, required=True, help="where they are kept: nothing else may write to this filesystem")
    parser.add_argument("--tmp", type=Path, help="directory for the copy of the tree (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if anything failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    kiln = packers.find_packers(("kiln",)).get("kiln")
    if not kiln:
        lib.say("nothing to do: kiln is needed")
        return 2
    os.environ.update(PASSWORD)
    problems: List[str] = []
    results: List[Dict[str, Any]] = []
    with lib.scratch(arguments.tmp) as folder, lib.scratch(arguments.repositories) as parent:
        tree = folder / "tree"
        subprocess.run(["cp", "-a", str(arguments.tree), str(tree)], check=True)
        if arguments.nights == 1:
            for line in bars(kiln, tree, parent, arguments):
                print(f"* {line}")
            return 0
        listed = repositories(kiln, parent, arguments.options)
        places = random.Random(1)
        for night in range(arguments.nights):
            if night:
                edit(tree, arguments.share, places)
            lib.warm(tree)
            lib.say(f"night {night}")
            for repository in lib.rotated(listed, night):
                if not repository.problem:
                    spend_night(repository, repository.later(tree, night) if night else repository.first(tree))
        expected = below_root(tree)
        for repository in listed:
            out = folder / "out"
            if not repository.problem:
                subprocess.run(repository.restore(out), check=True, capture_output=True)
                repository.problem = trees.difference(below_root(out), expected)
                shutil.rmtree(out)
            if repository.problem:
                problems.append(f"{repository.who}: {repository.problem}")
            results.append({"who": repository.who, "used": repository.used, "runs": [asdict(run) for run in repository.runs]})
        head = ["generations", "first MB", f"after {arguments.nights} nights MB", "ratio", "first CPU s", "a night CPU s", "wall s"]
        print(lib.markdown_table(head, (row(repository) for repository in listed)))
    for problem in problems:
        lib.say(problem)
    return lib.end(arguments.out, "generations", problems, results)


if __name__ == "__main__":
    sys.exit(main())
