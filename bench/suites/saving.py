"""Throughput against the space that compression saves, from files of a set ratio.

In full about 20 minutes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lib import images, judge, readers
from lib.bench import Bench
from lib.readers import FILE, Checks, System, erofs, filled, image, squashfs
from lib.results import Results
from lib.suite import CPU, FETCHED, RATE, REQUESTS, Claim, Column, Plot, Row, Run, Suite, Table, Verdict
from lib.words import Words, number

SAVINGS = (0, 5, 10, 25, 50, 75, 90, 95)
SYSTEMS = [erofs("lz4", 4), erofs("lz4", 4, "kiln mount"), squashfs("lz4", 128), filled("ext4")]
NAMES = {SYSTEMS[0]: "EROFS, kernel", SYSTEMS[1]: "EROFS, kiln mount", SYSTEMS[2]: "squashfs", SYSTEMS[3]: "ext4"}
SAVED = Column("saved", "saved by the image", "%", "", timed=False)
PAGE = 4096


def file_of(path: Path, saving: int, size: int) -> None:
    """Writes a file of which LZ4 saves a set share: in each page some random bytes, which occur once, then zeros."""
    dice = random.Random(saving)
    # A page of zeros takes some bytes, too.
    noise = PAGE if saving == 0 else max(0, round(PAGE * (1 - saving / 100)) - 24)
    with path.open("wb") as out:
        for _ in range(size >> 20):
            parts = dice.randbytes(noise * 256)
            pages = (parts[at : at + noise].ljust(PAGE, b"\0") for at in range(0, len(parts), noise))
            out.write(b"".join(pages))


def rows(bench: Bench, pattern: str) -> Iterator[Row]:
    """Yields a row for each saving and system."""
    size = (8 if bench.quick else 256) << 20
    for saving in (0, 50, 95) if bench.quick else SAVINGS:
        tree = bench.directory("saving")
        file_of(tree / FILE, saving, size)
        checks = Checks(bench, tree)
        for system in SYSTEMS[:2] + SYSTEMS[3:] if bench.quick else SYSTEMS:
            yield Row(
                {"saving, %": str(saving), "system": NAMES[system]},
                partial(run, bench, system, tree, pattern, size),
                partial(checks.check, system),
                readers.command_of(system, pattern),
                ours=system.ours,
            )


def run(bench: Bench, system: System, tree: Path, pattern: str, size: int) -> Run:
    """Reads the file, and adds what its image saves."""
    found = dict(readers.fio(bench, system, tree, pattern))
    if system.program in images.PROGRAMS:
        found["saved"] = max(0.0, 1 - image(bench, system, tree).stat().st_size / size)
    return found


def labels(saving: int, system: str) -> dict[str, str]:
    """Returns the labels of a row."""
    return {"saving, %": str(saving), "system": system}


def ratios(results: Results, table: str) -> dict[int, float]:
    """Returns EROFS's throughput over ext4's, by saving."""
    found = {
        saving: results.ratio("saving", table, "rate", labels(saving, "EROFS, kernel"), labels(saving, "ext4"))
        for saving in SAVINGS
    }
    return {saving: ratio for saving, ratio in found.items() if ratio is not None}


def constant(results: Results) -> Verdict:
    """Judges claim 55: ext4's throughput does not depend on the saving."""
    verdicts = []
    for table in ("sequential", "random"):
        if verdict := judge.absent(results, "saving", table, {"system": "ext4"}):
            return verdict
        found = results.table("saving", table)
        rates = [row.median("rate") or 0 for row in found.all(system="ext4")] if found else []
        width = max(rates) / min(rates)
        verdicts.append(Verdict("holds" if width <= 1.1 else "no longer", f"{table}: within {(width - 1) * 100:.1f} %"))
    return judge.joined(*verdicts)


def crossing(results: Results) -> Verdict:
    """Judges claim 57: there is a saving from which EROFS is faster than ext4."""
    verdicts = []
    for table in ("sequential", "random"):
        found = ratios(results, table)
        if not found:
            return judge.absent(results, "saving", table, {"system": "ext4"}) or Verdict("not run")
        behind = max((saving for saving, ratio in found.items() if ratio < 1), default=-1)
        ahead = [saving for saving in found if saving > behind]
        ours = f"{table}: from {ahead[0]} % on" if ahead else f"{table}: never"
        verdicts.append(Verdict("holds" if ahead else "no longer", ours))
    return judge.joined(*verdicts)


def little(results: Results) -> Verdict:
    """Judges claim 58: with at most 10 % saved EROFS is level at random and behind sequentially."""
    front, rand = ratios(results, "sequential"), ratios(results, "random")
    low = [saving for saving in (0, 5, 10) if saving in front and saving in rand]
    if not low:
        return Verdict("not run")
    good = all(front[saving] < 1 and 0.9 <= rand[saving] <= 1.1 for saving in low)
    pairs = (f"{saving} %: sequential {number(front[saving])}, random {number(rand[saving])}" for saving in low)
    return Verdict("holds" if good else "no longer", f"{'; '.join(pairs)} times ext4")


def rising(results: Results, column: str, more: bool) -> Verdict:
    """Judges that a figure of EROFS rises, or falls, with each step of saving."""
    steps = [labels(saving, "EROFS, kernel") for saving in (0, *SAVINGS[3:])]
    tables = ("sequential", "random")
    return judge.joined(*(judge.steps(results, "saving", table, column, steps, more=more) for table in tables))


CLAIMS = [
    Claim(55, constant),
    Claim(56, lambda results: rising(results, "rate", True)),
    Claim(57, crossing),
    Claim(58, little),
    Claim(59, lambda results: rising(results, "requests", False)),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "saving")
    for table in ("sequential", "random"):
        for saving in (0, 50, 95):
            for peer, to in (("EROFS, kernel", "the kernel's EROFS"), ("ext4", "ext4"), ("squashfs", "squashfs")):
                mine, other = labels(saving, "EROFS, kiln mount"), labels(saving, peer)
                where = f"with {table} blocks of a file that saves {saving} %"
                said.compare(table, "rate", mine, other, "throughput", of="kiln's mount", to=to, where=where, more=True)
    return said.sentences()


def table(pattern: str, title: str, note: str) -> Table:
    """Returns the table of a pattern."""
    plot = Plot("lines", "rate", x="saving, %", series="system")
    columns = [RATE, CPU, FETCHED, REQUESTS, SAVED]
    return Table(pattern, title, columns, lambda bench: rows(bench, pattern), plot, rounds=5, published="P", note=note)


SUITE = Suite(
    "saving",
    "Saving: throughput against the space saved",
    "From which saving on is a compressed file faster than a plain one? Files of 256 MiB have pages with a set share "
    "of random bytes and zeros else, so that each cluster of an image is alike. The paper repeated one cluster's data; "
    "matches between repetitions would save more than the set share.",
    [
        table("sequential", "Sequential blocks of 4 KiB, by the space saved", "fio; fresh mounts and dropped caches."),
        table("random", "Random blocks of 4 KiB, by the space saved", "fio, the whole file, each block once."),
    ],
    words,
    CLAIMS,
)
