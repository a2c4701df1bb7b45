"""Nightly backups of a tree that changes: chains of images, one image that is updated, restic, borg.

In full about 20 minutes."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.images import built
from lib.process import Command, Cost, measure, quiet
from lib.programs import find, need, reason, typed
from lib.results import Results
from lib.suite import CPU, MEMORY, SIZE, WALL, Column, Missing, Plot, Row, Run, Suite, Table
from lib.words import Words, of_times

SHARE = 0.01  # of the files that change in a night
NIGHTS, QUICK_NIGHTS = 30, 2
CHECKED_EVERY = 10  # nights; the first is restored, too
ADDED = Column("added_bytes", "added a night", "MB", timed=False)
FIRST = Column("first_bytes", "first night", "MB", timed=False)
FIRST_CPU = Column("first_cpu_s", "CPU, first night", "s")
BASE, FULL, UPDATE = "kiln pack --base", "kiln pack", "kiln update"


def edit(tree: Path, share: float, places: random.Random) -> None:
    """Changes a share of the regular files: most in the middle, some grow, some are new, some go."""
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names)
    files = sorted(path for path in paths if os.path.isfile(path) and not os.path.islink(path))
    gone: set[str] = set()
    for path in places.sample(files, max(1, int(len(files) * share))):
        kind, other = places.random(), places.choice(files)
        text = b"" if other in gone else Path(other).read_bytes()[: places.randrange(1, 20_000)]
        if kind < 0.6:
            with open(path, "r+b") as file:
                file.seek(places.randrange(max(1, os.path.getsize(path))))
                file.write(text[:200])
        elif kind < 0.8:
            with open(path, "ab") as file:
                file.write(text)
        elif kind < 0.9:
            Path(f"{path}.{places.randrange(1000)}").write_bytes(text)
        else:
            os.unlink(path)
            gone.add(path)


class Changing:
    """A copy of a tree in which files change from night to night, the same for all who keep it."""

    def __init__(self, bench: Bench, tree: Path) -> None:
        self.root = bench.directory("changing") / "tree"
        quiet("cp", "-a", tree, self.root)
        self.night, self._places = 0, random.Random(1)

    def at(self, night: int) -> Path:
        """Returns the tree as it is after so many nights."""
        while self.night < night:
            edit(self.root, SHARE, self._places)
            self.night += 1
        return self.root


@dataclass
class Keeper:
    """A way to keep generations. `backup` returns the command of a night, 0 is the first; `restore` that of the last
    night into a directory."""

    backup: Callable[[int], list[str]]
    restore: Callable[[int, Path], list[str]]
    folder: Path
    tree: Changing
    env: dict[str, str]
    in_out: bool = False  # it restores into the current directory
    night: int = 0
    first: Cost | None = None
    first_bytes: int = 0

    def used(self) -> int:
        """Returns the bytes in use on the disk of all keepers: blocks that files share count once."""
        quiet("sync", "-f", self.folder)
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def begin(self) -> None:
        """Makes the first backup."""
        before = self.used()
        self.first = measure(self.backup(0), cwd=self.tree.at(0), env=self.env)
        self.first_bytes = self.used() - before

    def spend(self) -> Run:
        """Makes the next night's backup, and restores some of them, outside the time. Raises Wrong."""
        assert self.first is not None
        self.night += 1
        tree, before = self.tree.at(self.night), self.used()
        cost = measure(self.backup(self.night), cwd=tree, env=self.env)
        first = {"first_bytes": self.first_bytes, "first_cpu_s": self.first.cpu_s}
        run = cost.run(added_bytes=self.used() - before, **first)
        if self.night == 1 or self.night % CHECKED_EVERY == 0:
            self.verify(tree)
        return run

    def verify(self, tree: Path) -> None:
        """Restores the last night and compares it with the tree. Raises Wrong."""
        out = self.tree.root.with_name("restored")
        try:
            if self.in_out:
                out.mkdir()
            measure(self.restore(self.night, out), cwd=out if self.in_out else tree, env=self.env)
            images.compare(images.digests(tree), out)
        finally:
            shutil.rmtree(out, ignore_errors=True)


def nights(bench: Bench) -> Iterator[Row]:
    """Yields all ways to keep generations, on one XFS: its files can share blocks."""
    machine.need_root("a disk for backups")
    tree = Changing(bench, bench.tree("mini"))
    disk = bench.kept(("disk",), lambda path: disks.empty(path, "xfs", (1500 << 20) if bench.quick else (9 << 30)))
    device = bench.stack.enter_context(disks.loop(disk, write=True))
    parent = bench.stack.enter_context(disks.mounted(device, bench.new(), "xfs", "noatime"))
    scratch = bench.directory("home")
    env = {"RESTIC_PASSWORD": "x", "RESTIC_CACHE_DIR": str(scratch / "restic"), "BORG_PASSPHRASE": "x"}
    env |= {"BORG_BASE_DIR": str(scratch), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
    root, kiln = str(tree.root), need("kiln")
    pack = [kiln, "pack", "--quiet"]

    def image(way: str, night: int) -> str:
        return str(parent / way / f"{night}.erofs")

    def extract(way: str, night: int, out: Path) -> list[str]:
        return [kiln, "extract", "--quiet", image(way, night), str(out)]

    def based(night: int) -> list[str]:
        return [*pack, *(["--base", image(BASE, night - 1)] if night else []), root, image(BASE, night)]

    def updated(night: int) -> list[str]:
        return [kiln, "update", "--quiet", image(UPDATE, 0), root] if night else [*pack, root, image(UPDATE, 0)]

    restic = [str(find("restic")), "--quiet", "--repo", str(parent / "restic")]
    borg, archive = str(find("borg")), f"{parent / 'borg'}::{{}}".format
    ways: list[tuple[str, list[str], Callable[[int], list[str]], Callable[[int, Path], list[str]]]] = [
        (BASE, [], based, lambda night, out: extract(BASE, night, out)),
        (UPDATE, [], updated, lambda night, out: extract(UPDATE, 0, out)),
        (FULL, [], lambda night: [*pack, root, image(FULL, night)], lambda night, out: extract(FULL, night, out)),
        (
            "restic",
            [*restic, "init"],
            lambda _: [*restic, "backup", "."],
            lambda _, out: [*restic, "restore", "latest", "--target", str(out)],
        ),
        (
            "borg",
            [borg, "init", "--encryption", "none", str(parent / "borg")],
            lambda night: [borg, "create", "--compression", "zstd,3", archive(night), "."],
            lambda night, _: [borg, "extract", archive(night)],
        ),
    ]
    for name, prepare, backup, restore in ways:
        ours = name.startswith("kiln")
        row = Row({"program": name}, command=typed(backup(1)), ours=ours, reason="" if ours else reason(name))
        if not row.reason:
            (parent / name).mkdir()
            if prepare:
                measure(prepare, env=env)
            keeper = Keeper(backup, restore, parent / name, tree, env, in_out=name == "borg")
            row.check, row.measure = keeper.begin, keeper.spend
        yield row


def increments(bench: Bench) -> Iterator[Row]:
    """Yields single increments over images of kiln and of mkfs.erofs, beside a copy and a full pack."""
    tree = bench.tree("mini")
    bench.warm(tree)
    changed, new = bench.directory("changed") / "tree", bench.new("new")
    quiet("cp", "-a", tree, changed)
    edit(changed, SHARE, random.Random(0))
    bench.warm(changed)
    count = str(machine.cpus())
    copy = 'find "$0" -ls && cp --reflink=never "$1" "$2" && sync "$2"'

    def verified(command: Command, source: Path) -> None:
        try:
            measure(command)
            images.same(new, source)
        finally:
            new.unlink(missing_ok=True)

    for what, source in (("nothing", tree), ("one file of a hundred", changed)):
        for program in ("kiln", "mkfs.erofs"):
            row = Row({"changed": what, "program": f"{BASE}, image of {program}"}, ours=True)
            try:
                old = bench.image(program, "" if program == "kiln" else images.erofs("zstd,3", 64), tree)
                command = [
                    need("kiln"),
                    "pack",
                    "--quiet",
                    "--threads",
                    count,
                    "--base",
                    str(old),
                    str(source),
                    str(new),
                ]
                row.command, row.check = typed(command), functools.partial(verified, command, source)
                row.measure = functools.partial(built, command, image=new)
            except Missing as error:
                row.reason = str(error)
            yield row
        if source == tree:
            line = ["sh", "-c", copy, str(tree), str(bench.image("kiln", "", tree)), str(new)]
            row = Row({"changed": what, "program": "find, cp, sync"}, command="find TREE -ls && cp OLD NEW && sync NEW")
        else:
            line = images.command("kiln", "", source, new)
            row = Row({"changed": what, "program": FULL}, command=typed(line), ours=True)
        row.measure = functools.partial(built, line, image=new)
        yield row


APPENDED = Column("appended_bytes", "appended", "MB", timed=False)
DATA = Column("data_bytes", "of it data", "MB", timed=False)
METADATA = Column("metadata_bytes", "of it metadata", "MB", timed=False)
CHANGE = 4096  # bytes of the long file that change


def text(source: random.Random, length: int) -> bytes:
    """Returns text that compresses about as sources do."""
    return " ".join(f"{source.randrange(3000) * 7919:x}" for _ in range(length // 5 + 1)).encode()[:length]


class Updated:
    """A tree and its image. Each update changes one file before it, by a time that nothing else in the tree has."""

    def __init__(self, bench: Bench, many: bool) -> None:
        self.root = bench.directory("updated")
        self.tree, self.image, self.told = self.root / "tree", self.root / "image", self.root / "told"
        self._places, self._round = random.Random(2), 0
        self.path = "00/07/file-000777" if many else "long"
        if many:
            self.make_many(2000 if bench.quick else 80_000)
        else:
            self.tree.mkdir()
            self.make_long((16 if bench.quick else 1000) * 10**6)
        # Files that changed a moment ago would be compared. The root's time says when the image was made.
        self.then = int(os.stat(self.root).st_mtime) - 3600
        for folder, _, names in os.walk(self.tree):
            for name in (*names, "."):
                os.utime(Path(folder) / name, (self.then, self.then))
        os.utime(self.tree, (self.then + 1800, self.then + 1800))
        self.pack = [need("kiln"), "pack", "--quiet", str(self.tree)]
        measure([*self.pack, str(self.image)])

    def make_many(self, count: int) -> None:
        """Makes files of 0.2 to 8 KB in directories of 100."""
        words = text(self._places, 1 << 20)
        for number_ in range(count):
            folder = self.tree / f"{number_ // 10_000:02}" / f"{number_ // 100 % 100:02}"
            folder.mkdir(parents=True, exist_ok=True)
            start, length = self._places.randrange(len(words) - 8192), 200 + self._places.randrange(7800)
            (folder / f"file-{number_:06}").write_bytes(words[start : start + length])

    def make_long(self, length: int) -> None:
        """Makes one file."""
        words = text(self._places, 8 << 20)
        with (self.tree / "long").open("wb") as out:
            for left in range(length, 0, -(1 << 20)):
                start = self._places.randrange(len(words) - (1 << 20))
                out.write(words[start : start + min(left, 1 << 20)])

    def change(self) -> None:
        """Changes the file: a small one as a whole, of the long one some bytes in the middle."""
        self._round += 1
        path = self.tree / self.path
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2 if self.path == "long" else 0)
            file.write(text(self._places, CHANGE))
        os.utime(path, (self.then + self._round, self.then + self._round))

    def update(self, options: list[str]) -> Run:
        """Updates the image, and compares it with the tree outside the time. Raises Wrong."""
        self.change()
        cost = measure([need("kiln"), "update", "--quiet", "--json", str(self.image), *options], output=self.told)
        told = json.loads(self.told.read_text())
        images.same(self.image, self.tree)
        return cost.run(**{column.key: told[column.key] for column in (APPENDED, DATA, METADATA)})

    def compare(self) -> Run:
        """Compares a file of the image with the tree's, as a program that knows nothing of times must."""
        command = [need("kiln"), "cat", str(self.image), f"/{self.path}"]
        return measure(command, ["cmp", "-s", "-", str(self.tree / self.path)], accept=(0, 1)).run()

    def packed(self) -> Run:
        """Packs all of the tree."""
        new = self.root / "new"
        return built([*self.pack, str(new)], image=new)


def updates(bench: Bench) -> Iterator[Row]:
    """Yields updates in place of one file among many and of some bytes in a long file."""
    many, named, one = Updated(bench, True), Updated(bench, True), Updated(bench, False)
    replace = ["--replace", f"{named.path}={named.tree / named.path}"]
    cases: list[tuple[str, str, Callable[[], Run]]] = [
        ("one small file of many", "kiln update IMAGE TREE", lambda: many.update([str(many.tree)])),
        ("one small file of many", "kiln update --replace", lambda: named.update(replace)),
        ("one small file of many", FULL, many.packed),
        ("4 KiB of a long file", "kiln update IMAGE TREE", lambda: one.update([str(one.tree)])),
        ("4 KiB of a long file", "kiln cat, cmp", one.compare),
    ]
    for what, program, work in cases:
        yield Row({"changed": what, "program": program}, work, ours=True)


def kept(results: Results, program: str) -> tuple[float, int, float] | None:
    """Returns the bytes after all nights, their number, and the bytes after the first; None if nothing was kept."""
    table = results.table("nights", "nights")
    row = table.find(program=program) if table else None
    if row is None or not row.runs:
        return None
    first = row.runs[0]["first_bytes"]
    return first + sum(row.values("added_bytes")), len(row.runs), first


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "nights")
    why = {"restic": "a repository shares parts of files with all earlier nights, a chain with the one before"}
    for program in (BASE, UPDATE):
        ours = kept(results, program)
        for peer in ("restic", "borg", FULL):
            if ours and (theirs := kept(results, peer)):
                text_ = f"After {ours[1]} nights {program} keeps {of_times(ours[0] / theirs[0])} the bytes of {peer}"
                loses = ours[0] > theirs[0]
                said.say(f"{text_}{': ' + why[peer] if loses and peer in why else ''}.", loses=loses)
            for column, what in (("cpu_s", "CPU"), ("wall_s", "time")):
                told = {"of": f"A night of {program}", "to": f"one of {peer}"}
                said.compare("nights", column, {"program": program}, {"program": peer}, what, **told)
    for maker in ("kiln", "mkfs.erofs"):
        row = {"changed": "nothing", "program": f"{BASE}, image of {maker}"}
        told = {"of": f"An increment of an unchanged tree over an image of {maker}", "to": "a listing and a copy"}
        said.compare("increments", "wall_s", row, {"program": "find, cp, sync"}, "time", **told)
        row["changed"] = "one file of a hundred"
        told = {"of": f"An increment of one file of a hundred over an image of {maker}", "to": "a full pack"}
        for column, what in (("cpu_s", "CPU"), ("wall_s", "time"), ("size_bytes", "size")):
            said.compare("increments", column, row, {"program": FULL}, what, **told)
    many, one = {"changed": "one small file of many"}, {"changed": "4 KiB of a long file"}
    for program in ("kiln update IMAGE TREE", "kiln update --replace"):
        told = {"of": f"{program} of one small file", "to": "a full pack"}
        said.compare("updates", "cpu_s", {**many, "program": program}, {**many, "program": FULL}, "CPU", **told)
    told = {"of": "An update of 4 KiB in a long file", "to": "reading the file from the image"}
    updated, read = {**one, "program": "kiln update IMAGE TREE"}, {**one, "program": "kiln cat, cmp"}
    said.compare("updates", "wall_s", updated, read, "time", **told, why="it must find what has changed")
    return said.sentences()


SUITE = Suite(
    "nights",
    "Nightly backups: increments, updates in place, repositories",
    "What does a night cost, and what do thirty nights keep? A copy of a tree changes in one file of a hundred each "
    "night. A chain of images, one image that is updated in place, and full images stand beside repositories of "
    "restic and borg. Single increments stand beside what they must beat: a listing with a copy of the image, and a "
    "full pack.",
    [
        Table(
            "nights",
            "A night of a changing tree",
            [WALL, CPU, MEMORY, ADDED, FIRST, FIRST_CPU],
            nights,
            Plot("bars", "added_bytes", log_y=True),
            rounds=NIGHTS,
            quick_rounds=QUICK_NIGHTS,
            note="A run is a night. All keep their backups on one XFS, whose used space is counted: blocks that files "
            "share count once. The first night after the first backup and each tenth are restored and compared.",
        ),
        Table(
            "increments",
            "One increment, over images of kiln and of mkfs.erofs",
            [WALL, CPU, MEMORY, SIZE],
            increments,
            Plot("bars", "wall_s", series="program"),
            note="The tree is in memory. The time ends when the image is on the disk.",
        ),
        Table(
            "updates",
            "Updates in place, beside packing and comparing",
            [WALL, CPU, MEMORY, APPENDED, DATA, METADATA],
            updates,
            Plot("bars", "wall_s", series="program", log_y=True),
            note="80,000 files of up to 8 KB, and one of 1 GB; in the quick form 2,000 and 16 MB.",
        ),
    ],
    words,
)
