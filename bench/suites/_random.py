"""The tests of table U1: files and attributes of a system tree in random order, by one reader."""

from __future__ import annotations

import json
import os
import random
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lib import judge, published, queues
from lib.bench import Bench
from lib.mounts import mount
from lib.process import Failed, quiet
from lib.results import Results
from lib.suite import CPU, FETCHED, REQUESTS, WALL, Row, Run, Verdict
from lib.words import Words

COLUMNS = [WALL, CPU, FETCHED, REQUESTS]
# The program that makes the image and its options, by system and block. Those of the peers are the published ones.
METHODS = {
    "erofs": ("mkfs.erofs", {
        "not compressed": "-T0",
        "4": "-zlz4hc,12 -C4096 -Efragments -T0",
        "128": "-zlz4hc,12 -C131072 -Efragments -T0",
    }),
    "squashfs": ("mksquashfs", {
        "not compressed": "-noD -noI -noX -noF -no-duplicates",
        "4": "-comp lz4 -Xhc -b 4K -no-xattrs -all-time 0",
        "128": "-comp lz4 -Xhc -b 128K -no-xattrs -all-time 0",
    }),
    "kiln": ("kiln", {
        "not compressed": "--preset plain --mtime 0",
        "4": "-z lz4hc,12 -C 4K --mtime 0",
        "128": "-z lz4hc,12 -C 128K --mtime 0",
    }),
}  # fmt: skip
BLOCKS = list(METHODS["erofs"][1])
# The kind of the driver and the number of entries (0: all), or the command of the client.
TESTS: dict[str, tuple[str, int] | list[list[str]]] = {
    "all data by tar": [["tar", "-cf", "-", "."], ["cat"]],
    "500 files": ("mount", 500),
    "all files": ("mount", 0),
    "all metadata by tar": [["tar", "-cf", "/dev/null", "."]],
    "stat of the 500": ("stat", 500),
    "stat of all": ("stat", 0),
}


def shuffled(tree: Path, *, files: bool = True) -> list[str]:
    """Returns the paths of all regular files of a tree, or of all entries, in random order."""
    found = sorted(
        os.path.relpath(os.path.join(folder, name), tree)
        for folder, folders, names in os.walk(tree)
        for name in ([] if files else folders) + names
        if not files or stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)
    )
    random.Random(1).shuffle(found)
    return found


def rows(bench: Bench, *tests: str) -> Iterator[Row]:
    """Yields some tests of all images. The 500 are the same files in all."""
    tree = bench.tree("mini")
    every = {"mount": shuffled(tree), "stat": shuffled(tree, files=False)}
    every |= {"500": every["mount"][:500]}
    blocks = [block for block in BLOCKS if block != "4"] if bench.quick else BLOCKS
    for system, (program, options) in METHODS.items():
        for block in blocks:
            for test in tests:
                way = TESTS[test]
                names = [] if isinstance(way, list) else every["500"] if way[1] else every[way[0]]

                def work(
                    system: str = system,
                    program: str = program,
                    options: str = options[block],
                    test: str = test,
                    names: Sequence[str] = names,
                ) -> Run:
                    image = bench.image(program, options, tree)
                    kind = "kernel squashfs" if system == "squashfs" else "kernel erofs"
                    with mount(kind, image, bench.new("mount"), counted=True) as found:
                        way = TESTS[test]
                        if isinstance(way, list):
                            return found.client(*way, cold=True)
                        runs: list[dict[str, float]] = []
                        cost = found.during(lambda: driven(way[0], found.root, names, runs), cold=True)
                        if runs[0]["files"] != len(names):
                            raise Failed(f"{runs[0]['files']:.0f} of {len(names)} entries in time")
                        return {**cost, "wall_s": runs[0]["wall_s"]}

                labels = {"system": system, "block": block, "test": test}
                one = Row(labels, work, ours=system == "kiln", command=f"{program} {options[block]}")
                if system != "kiln":
                    one.published = published.row("U1", system=system, block=block, test=test)
                yield one


def driven(kind: str, root: Path, names: Sequence[str], runs: list[dict[str, float]]) -> float:
    """Lets one reader take names in order, keeps what it tells, and returns its CPU seconds."""
    line = [sys.executable, queues.__file__, kind, str(root), "1", "600"]
    runs.append(json.loads(quiet(*line, stdin="\n".join(names).encode())))
    return runs[-1]["cpu_s"]


def times_faster(results: Results, suite: str, least: dict[str, float]) -> Verdict:
    """Judges that EROFS is so many times faster than squashfs, by test, with each block."""

    def one(test: str, block: str, bar: float) -> Verdict:
        squash, erofs = ({"system": system, "block": block, "test": test} for system in ("squashfs", "erofs"))
        above: Callable[[float], bool] = lambda quotient: quotient > bar  # noqa: E731
        return judge.called(f"{test}, {block}", judge.ratio(results, suite, "random", "wall_s", squash, erofs, above))

    table = results.table(suite, "random")
    blocks = [block for block in BLOCKS if table is None or table.find(block=block)]
    return judge.every(one(test, block, bar) for test, bar in least.items() for block in blocks)


def say(text: Words, *tests: str) -> None:
    """Says how kiln's image does beside those of the peers."""
    for test in tests:
        for block in BLOCKS:
            for peer in ("erofs", "squashfs"):
                ours, theirs = ({"system": one, "block": block, "test": test} for one in ("kiln", peer))
                how = block if block.startswith("not") else f"{block} KiB"
                text.compare("random", "wall_s", ours, theirs, "time", of="kiln's image", to=f"that of {peer}",
                             where=f"for {test} ({how})")  # fmt: skip
