"""Archives and images of other formats served as they are, and commands that see an image of their own.

In full about 10 minutes."""

from __future__ import annotations

import functools
import random
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from lib import images, machine
from lib.bench import Bench
from lib.mounts import mount
from lib.process import limited, measure, quiet
from lib.programs import need
from lib.results import Results
from lib.suite import CPU, MEMORY, WALL, Plot, Row, Run, Suite, Table
from lib.words import Words

# Kinds of files, with the peer that serves each: from a tree, at a path.
KINDS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "zip, stored": ("fuse-zip", lambda tree, out: quiet("sh", "-c", f'cd "{tree}" && zip -0qry "{out}" .')),
    "zip, deflated": ("fuse-zip", lambda tree, out: quiet("sh", "-c", f'cd "{tree}" && zip -qry "{out}" .')),
    "tar.zst": ("ratarmount", lambda tree, out: quiet("tar", "--zstd", "-C", tree, "-cf", out, ".")),
    "squashfs, zstd": (
        "squashfuse_ll",
        lambda tree, out: quiet(*images.command("mksquashfs", "-comp zstd -b 128K", tree, out)),
    ),
}
SUFFIX = {"zip, stored": ".zip", "zip, deflated": ".zip", "tar.zst": ".tar.zst", "squashfs, zstd": ".squashfs"}
USES = ("listing", "in order", "shuffled, 1 reader", "shuffled, 8 readers")
# Files that one process of the readers reads.
FILES_EACH = 64
LONGEST_S = 60


def files(tree: Path) -> list[str]:
    """Returns the paths of all regular files below a directory, in the order of their names."""
    found = (path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(str(path.relative_to(tree)) for path in found)


def archive(bench: Bench, kind: str, tree: Path) -> Path:
    """Returns a file of a kind with a tree, made once a table."""
    _, make = KINDS[kind]
    place = bench.directory("archive") / f"tree{SUFFIX[kind]}"
    make(tree, place)
    return place


def reading(bench: Bench, names: list[str], readers: int) -> list[str]:
    """Returns a command that reads files by some readers, by `cat`, which takes little CPU."""
    listed = bench.new("names")
    listed.write_bytes(b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names))
    return ["xargs", "-0", "-a", str(listed), "-n", str(FILES_EACH), "-P", str(readers), "cat"]


def used(bench: Bench, server: str, file: Path, place: Path, use: str, names: list[str]) -> Run:
    """Mounts a file afresh and uses it. The mount is not part of the time."""
    shuffled = random.Random(1).sample(names, len(names))
    command = {
        "listing": lambda: ["ls", "-lR"],
        "in order": lambda: reading(bench, names, 1),
        "shuffled, 1 reader": lambda: reading(bench, shuffled, 1),
        "shuffled, 8 readers": lambda: reading(bench, shuffled, 8),
    }[use]()

    def work() -> float:
        with limited(LONGEST_S) as limit:
            return measure([*limit, *command], cwd=place).cpu_s

    machine.drop_caches()
    with mount(server, file, place) as found:
        return found.during(work)


def same(server: str, file: Path, place: Path, tree: dict[str, str]) -> None:
    """Compares what a server shows with the tree. Raises Wrong."""
    with mount(server, file, place) as found:
        images.compare(tree, found.root)


def served(bench: Bench) -> Iterator[Row]:
    """Yields each use of each kind of file, by its peer and by kiln."""
    tree = bench.tree("mini")
    names, digests = files(tree), bench.digests(tree)
    for kind, (peer, _) in KINDS.items():
        made: list[Path] = []  # by the first row that needs it

        def file(kind: str = kind, made: list[Path] = made) -> Path:
            if not made:
                made.append(archive(bench, kind, tree))
            return made[0]

        for use in USES:
            for server in (peer, "kiln mount"):
                place = bench.new("mounted")
                yield Row(
                    {"file": kind, "use": use, "server": server},
                    lambda server=server, use=use, place=place, file=file: used(
                        bench, server, file(), place, use, names
                    ),
                    (lambda server=server, place=place, file=file: same(server, file(), place, digests))
                    if use == USES[0] and server == "kiln mount"
                    else None,
                    f"{server} tree{SUFFIX[kind]} DIR",
                    ours=server == "kiln mount",
                )


def answered(work: Callable[[], Run]) -> None:
    """Mounts once: the index is made before."""
    work()


def opened(bench: Bench) -> Iterator[Row]:
    """Yields the time until a mount answers: a zip archive of many members."""
    count = 10_000 if bench.quick else 1_000_000
    place = bench.directory("many")
    zipped = place / "many.zip"
    with zipfile.ZipFile(zipped, "w") as out:
        for at in range(count):
            out.writestr(f"{at % 1000:03}/{at}", b"x")

    def answer(server: str, dir: Path, options: list[str]) -> Run:
        start = time.perf_counter()
        with mount(server, zipped, dir, options=options) as found:
            return {"wall_s": time.perf_counter() - start, "memory_bytes": float(found.memory("VmHWM"))}

    index = ["--index", str(place / "index")]
    for server, options in (("fuse-zip", []), ("kiln mount", []), ("kiln mount", index)):
        work = functools.partial(answer, server, bench.new("mounted"), options)
        way = f"{server} --index FILE" if options else server
        yield Row(
            {"members": f"{count:,}", "server": way},
            work,
            functools.partial(answered, work) if options else None,
            command=f"{way} many.zip DIR",
            ours=server == "kiln mount",
        )


def commands(bench: Bench) -> Iterator[Row]:
    """Yields `true` with an image of its own, by kiln and by hand."""
    tree = bench.tree("quick")
    image = bench.image("kiln", "", tree)
    squashed = bench.image("mksquashfs", "-comp zstd", tree)
    place = bench.directory("at")
    by_hand = f'squashfuse_ll "{squashed}" "{place}" && true; status=$?; umount "{place}"; exit $status'
    ways = {
        "kiln run": [need("kiln"), "run", "--via", "fuse", "--at", str(place), str(image), "--", "true"],
        "kiln run, kernel": [need("kiln"), "run", "--via", "kernel", "--at", str(place), str(image), "--", "true"],
        "unshare and squashfuse_ll": [
            "unshare",
            "--mount",
            "sh",
            "-c",
            by_hand.replace("squashfuse_ll", need("squashfuse_ll")),
        ],
    }
    for name, command in ways.items():

        def many(command: list[str] = command) -> Run:
            count = 20
            cost = measure(
                ["sh", "-c", f'i=0; while [ $i -lt {count} ]; do "$@" || exit 1; i=$((i+1)); done', "sh", *command]
            )
            return {"wall_s": cost.wall_s / count, "cpu_s": cost.cpu_s / count}

        yield Row(
            {"way": name}, many, command=" ".join(Path(word).name for word in command[:2]), ours=name.startswith("kiln")
        )


def words(results: Results) -> list[str]:
    """Tells who wins, and by how much."""
    said = Words(results, "served")
    for kind, (peer, _) in KINDS.items():
        for column, name in (("wall_s", "time"), ("cpu_s", "CPU")):
            cases = {
                use: (
                    {"file": kind, "use": use, "server": "kiln mount"},
                    {"file": kind, "use": use, "server": peer},
                )
                for use in USES
            }
            said.spread("served", column, cases, name, of="kiln's mount", to=peer, where=f"on {kind}")
    by_hand = {"way": "unshare and squashfuse_ll"}
    for way in ("kiln run", "kiln run, kernel"):
        said.compare(
            "commands", "wall_s", {"way": way}, by_hand, "time", of=way, to="unshare and squashfuse_ll by hand"
        )
    return said.sentences()


SUITE = Suite(
    "served",
    "Archives served, and commands with an image of their own",
    "How fast is an archive or an image of another format that kiln serves as it is, beside the server that people use "
    "for it? And what does a mount cost that is made for one command?",
    [
        Table(
            "served",
            "Archives and images of other formats, mounted and used",
            (WALL, CPU, MEMORY),
            served,
            Plot("bars", "wall_s", series="server"),
            rounds=3,
            note="A fresh mount for each run, caches dropped before; the time of mounting is not in it. CPU is that of "
            "readers and server. ratarmount has made its index before.",
        ),
        Table(
            "opening",
            "Time until a mount of a zip archive answers",
            (WALL, MEMORY),
            opened,
            Plot("bars", "wall_s"),
            rounds=3,
        ),
        Table(
            "commands",
            "A command that alone sees an image",
            (WALL, CPU),
            commands,
            Plot("bars", "wall_s"),
            rounds=10,
            quick_rounds=2,
            note="`true`, twenty times in a row; the figures are of one. By hand: a mount namespace, squashfuse_ll, "
            "the command, umount.",
        ),
    ],
    words,
)
