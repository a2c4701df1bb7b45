"""Settings of the suite `backup`, and programs that keep a tree and give it back: images, archives, repositories."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import disks, images, machine, published
from lib.bench import Bench
from lib.images import tree_row
from lib.process import measure, quiet
from lib.programs import need, reason, wake
from lib.suite import Column, Row, Run

PROGRAMS = {"squashfs": "mksquashfs", "erofs": "mkfs.erofs", "kiln": "kiln"}
OPTIONS = {"squashfs": images.squash, "erofs": images.erofs, "kiln": images.kiln}
# What the words of the published table mean; kiln's defaults stand for those of squashfs: whole duplicates once.
MORE = {
    ("squashfs", "no-duplicates"): "-no-duplicates",
    ("erofs", "fragments"): "-Efragments",
    ("erofs", "dedupe"): "-Ededupe",
    ("kiln", "default"): "--dedupe files",
    ("kiln", "parts"): "--dedupe parts",
    ("kiln", "no-duplicates"): "--dedupe off",
    ("kiln", "plain"): "--dedupe off --fragments off",
}


def options_of(system: str, options: str, kib: int, method: str) -> str:
    """Returns the options of a system's builder."""
    return OPTIONS[system](method.replace(" ", ","), kib, MORE.get((system, options), ""))


def theirs(table: str, system: str, method: str, **labels: object) -> dict[str, float]:
    """Returns the figures of a published row; none if it is not one of theirs."""
    compressor, _, level = method.partition(" ")
    try:
        return published.row(table, system=system, compressor=compressor, level=level or "-", **labels)
    except LookupError:
        return {}


def image_row(bench: Bench, row: Row, system: str, options: str, kib: int, method: str, tree: Path, image: Path) -> Row:
    """Completes a row that builds an image, with its ratio and the rate at which the tree was read."""
    size, words = bench.warm(tree), options_of(system, options, kib, method)
    row.ours = system == "kiln"
    tree_row(row, PROGRAMS[system], words, tree, image)
    if row.check and row.most == 1:  # not built twice: read whole behind the time
        row.check = None
        row.measure = lambda: once(images.command("kiln", words, tree, image), image)
    if work := row.measure:
        row.measure = lambda: shares(work(), size)
    return row


def once(line: list[str], image: Path) -> Run:
    """Makes an image of kiln, and reads all of it outside the time. Raises Failed."""
    try:
        cost = measure(line, flush=image)
        images.check(image)
        return cost.run(size_bytes=image.stat().st_size)
    finally:
        image.unlink(missing_ok=True)


def shares(run: Run, size: int) -> Run:
    """Returns a run with ratio and rate."""
    return {**run, "ratio": run["size_bytes"] / size, "rate": size / run["wall_s"]}


@dataclass(frozen=True)
class Keeper:
    """A program that keeps a tree and gives it back. Commands run in a folder of their own, `{kept}` lies in it;
    several are a pipeline."""

    name: str
    options: str
    program: str
    keep: Sequence[str]
    restore: Sequence[str]  # all, into the folder in which it runs
    one: Sequence[str]  # the file {file}, into the same
    prepare: str = ""

    def run(self, commands: Sequence[str], home: Path, cwd: Path, **words: object) -> dict[str, float]:
        """Runs commands; returns a run, with the time until all is on the disk."""
        known = {"kept": home / "kept", "cpus": machine.cpus(), **words}
        lines = [[word.format(**known) for word in command.split(" ")] for command in commands]
        for line in lines:
            line[0] = need(line[0])
        environment = {"RESTIC_PASSWORD": "x", "BORG_BASE_DIR": str(home), "BORG_PASSPHRASE": "x"}
        environment |= {"BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
        start = time.perf_counter()
        cost = measure(*lines, cwd=cwd, env=environment)
        quiet("sync", "-f", home)
        return {**cost.run(), "wall_s": time.perf_counter() - start}


def restic(level: str) -> Keeper:
    """Keeps a tree by restic; the repository is encrypted, as it always is."""
    program, path = "restic --no-cache -q -r {kept}", "restore latest --target ."
    keep = f"{program} --compression {level} backup ."
    return Keeper("restic", level, "restic", [keep], [f"{program} {path}"], [f"{program} {path} --include /{{file}}"],
                  f"{program} init")  # fmt: skip


def borg(method: str) -> Keeper:
    """Keeps a tree by borg, not encrypted."""
    give = "borg extract {kept}::all"
    return Keeper("borg", method, "borg", [f"borg create -C {method} {{kept}}::all ."], [give], [f"{give} {{file}}"],
                  "borg init -e none {kept}")  # fmt: skip


def tar(level: int) -> Keeper:
    """Keeps a tree by tar and zstd with all threads."""
    give = ["zstd -q -d -c {kept}", "tar -xf -"]
    keep = ["tar --format=pax -cf - .", f"zstd -q -{level} -T{{cpus}} -o {{kept}}"]
    return Keeper("tar, zstd", str(level), "zstd", keep, give, [give[0], "tar -xf - ./{file}"])


def squashed(method: str, kib: int) -> Keeper:
    """Keeps a tree as a squashfs."""
    options = images.squash(method, kib)
    keep = f"mksquashfs . {{kept}} {options} -processors {{cpus}} -noappend -no-progress -quiet"
    give = "unsquashfs -q -n -f -d . {kept}"
    return Keeper("mksquashfs", options, "mksquashfs", [keep], [give], [f"{give} {{file}}"])


def kiln(options: str) -> Keeper:
    """Keeps a tree as an image of kiln."""
    keep = " ".join(f"kiln pack --quiet {options} . {{kept}}".split())
    give = "kiln extract --quiet {kept} ."
    return Keeper("kiln", options or "(default)", "kiln", [keep], [give], [f"{give} {{file}}"])


KEEPERS = [
    kiln(""),
    kiln("--preset backup"),
    kiln("-z zstd,15 -C 1M"),
    squashed("zstd,3", 128),
    squashed("zstd,15", 1024),
    Keeper(
        "mkfs.erofs",
        "-zzstd,3 -C131072 -Efragments",
        "mkfs.erofs",
        ["mkfs.erofs --quiet --workers={cpus} -zzstd,3 -C131072 -Efragments {kept} ."],
        ["fsck.erofs --extract=. --overwrite {kept}"],
        ["dump.erofs --cat --path=/{file} {kept}"],
    ),
    *(tar(level) for level in (3, 15)),
    *(restic(level) for level in ("auto", "max")),
    *(borg(method) for method in ("lz4", "zstd,3", "zstd,15")),
    Keeper("mkdwarfs", "(default)", "mkdwarfs", [], [], []),
]
RESTORE = Column("restore_s", "restore", "s")
ONE = Column("one_s", "one file back", "s")


def peers(bench: Bench) -> Iterator[Row]:
    """Yields programs that keep a tree: archives, repositories and images."""
    tree = bench.tree("mini")
    size = bench.warm(tree)
    files = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    file = files[len(files) // 2]
    for keeper in (KEEPERS[at] for at in (0, 3, 6, 8, 10, 13)) if bench.quick else KEEPERS:
        row = Row({"program": keeper.name, "options": keeper.options}, ours=keeper.name == "kiln")
        row.command = " | ".join(keeper.keep).replace("{kept}", "KEPT").replace("{cpus}", str(machine.cpus()))
        row.reason = reason(keeper.program)
        row.most = 1 if "15" in keeper.options or keeper.options == "max" else None

        def run(keeper: Keeper = keeper) -> Run:
            home = bench.directory("keeper")
            try:
                if keeper.prepare:
                    keeper.run([keeper.prepare], home, tree)
                bench.warm(tree)
                cost = keeper.run(keeper.keep, home, tree)
                cost["size_bytes"] = disks.entries(home / "kept")[1] or (home / "kept").stat().st_size
                for key, commands in (("restore_s", keeper.restore), ("one_s", keeper.one)):
                    with disks.tmpfs(bench.directory(), 2 * size + (256 << 20)) as room:
                        machine.drop_caches()
                        wake(*dict.fromkeys(command.split(" ")[0] for command in commands))
                        cost[key] = keeper.run(commands, home, room, file=file)["wall_s"]
                        if key == "restore_s":  # outside the time; other bytes make the row void
                            images.compare(bench.digests(tree), room)
                return cost
            finally:
                shutil.rmtree(home, ignore_errors=True)

        row.measure = run
        yield row
