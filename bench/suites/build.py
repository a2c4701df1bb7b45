"""Builds: size against CPU of presets and levels; equal settings; cold, with little memory, from pipes.

In full about 90 minutes."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from lib import disks, images, judge, machine
from lib.bench import Bench
from lib.images import built, command, tree_row
from lib.process import measure, quiet
from lib.programs import need, reason, typed, wake
from lib.results import Results
from lib.suite import CPU, MEMORY, SIZE, WALL, Claim, Column, Missing, Plot, Row, Suite, Table, Verdict
from lib.words import Words

COLUMNS = [SIZE, CPU, WALL, MEMORY]
READ = Column("fetched_bytes", "read of the source", "MB", timed=False)
BACK = Column("back_bytes", "read back", "MB", timed=False)
KILN = [
    "--preset plain",
    "--preset fast",
    "",
    "--preset archive",
    "-z zstd,1",
    "-z zstd,9",
    "-z zstd,3 -C 1M",
    "-z zstd,3 -C 128K --dedupe files",
    "-z zstd,9 -C 1M",
    "-z zstd,15 -C 1M",
    "-z lz4hc,9 -C 128K",
]
SQUASH = ["zstd,1", "zstd,3", "zstd,6", "zstd,9", "zstd,15", "lz4", "lz4hc", "gzip", "xz"]
SLOW = ("archive", "15", "xz")  # of options: a minute or more for a system tree
MKFS = ["none", "lz4", "lz4hc,9", "zstd,3", "zstd,9"]


def presets(bench: Bench, name: str) -> Iterator[Row]:
    """Yields kiln's presets and levels, then those of the peers."""
    tree = bench.tree(name)
    bench.warm(tree)
    image = bench.new("out")
    wanted = [("kiln", options) for options in KILN]
    wanted += [("mksquashfs", images.squash(comp, kib)) for comp in SQUASH for kib in (128, 1024)]
    wanted += [
        ("mkfs.erofs", images.erofs(comp, 128, "-Efragments,dedupe" if comp == "zstd,3" and more else more))
        for comp in MKFS
        for more in ("", "-Efragments")
        if comp != "none" or not more
    ]

    if bench.quick:
        wanted = [one for one in wanted if not any(word in one[1] for word in SLOW)]
        wanted = wanted[1:4] + wanted[len(wanted) // 2 :: 6]
    for program, options in wanted:
        # mkfs.erofs takes minutes to compress this much with zstd.
        once = any(word in options for word in SLOW) or (program == "mkfs.erofs" and "-z" in options)
        labels = {"program": program, "options": options or "(default)"}
        row = Row(labels, ours=program == "kiln", most=1 if once else None)
        yield tree_row(row, program, options, tree, image)
    yield Row({"program": "mkdwarfs", "options": "(default)"}, reason=reason("mkdwarfs"))


# Method of kiln and mkfs.erofs, that of mksquashfs, size of clusters and blocks in KiB.
SETTINGS = [
    ("none", "none", 128),
    ("lz4", "lz4", 64),
    ("lz4hc,9", "", 64),
    ("lz4hc,12", "lz4hc", 64),
    ("deflate,6", "gzip,6", 64),
    ("libdeflate,6", "", 64),
    ("lzma,1", "", 128),
    ("lzma,6", "xz", 128),
    ("zstd,1", "zstd,1", 4),
    ("zstd,3", "zstd,3", 4),
    ("zstd,3", "zstd,3", 64),
    ("zstd,3", "zstd,3", 128),
    ("zstd,3", "zstd,3", 1024),
    ("zstd,6", "zstd,6", 128),
    ("zstd,9", "zstd,9", 128),
    ("zstd,15", "zstd,15", 128),
]


def settings(bench: Bench) -> Iterator[Row]:
    """Yields all programs at equal settings: nothing packed together, nothing deduplicated."""
    tree = bench.tree("mini")
    bench.warm(tree)
    image = bench.new("out")
    chosen = SETTINGS[1::4] if bench.quick else SETTINGS
    for method, squash, kib in chosen:
        ways = {
            "kiln": images.kiln(method.replace("libdeflate", "deflate"), kib, "--fragments off --dedupe off"),
            "mkfs.erofs": images.erofs(method, kib),
            "mksquashfs": images.squash(squash, kib, "-no-duplicates -no-fragments"),
        }
        for program, options in ways.items():
            if program != "mksquashfs" or squash:
                row = Row({"method": method, "KiB": str(kib), "program": program}, ours=program == "kiln")
                yield tree_row(row, program, options, tree, image)


def cold(bench: Bench, name: str) -> Iterator[Row]:
    """Yields builds of a tree in memory, of one that is not, and of one that memory cannot hold."""
    place, source, out, output = bench.stack.enter_context(disks.on_disks(bench.new, bench.tree(name)))
    image = out / "image"
    squash = images.squash("zstd,3", 128)
    group = bench.stack.enter_context(disks.memory_group((60 if bench.quick else 400) * 10**6))
    ways: list[tuple[str, str, str, str]] = [
        ("memory", "kiln", "", ""),
        ("memory", "mksquashfs", squash, ""),
        ("cold", "kiln", "", ""),
        ("cold", "mksquashfs", squash, ""),
        ("cold", "mkfs.erofs", images.erofs("zstd,3", 128, "-Efragments"), ""),
        ("little memory", "kiln", "--memory 64M", "group"),
        ("little memory", "mksquashfs", f"{squash} -mem 200M", "group"),
        ("cold", "tar (reads only)", "", ""),
    ]
    for state, program, options, grouped in ways:
        row = Row({"source": state, "program": program, "options": options or "(default)"}, ours=program == "kiln")
        try:
            line = command(program, options, place, image)
            row.command = typed(line)
            line = disks.within(group if grouped else None, line)
            work = lambda line=line: built(line, image=image)  # noqa: E731
        except Missing as error:
            row.reason = str(error)
        except KeyError:  # tar does not read what it writes to /dev/null
            row.command = "tar -cf - . | cat"
            work = lambda: measure(["tar", "-C", str(place), "-cf", "-", "."], ["cat"]).run()  # noqa: E731

        def run(work: Callable[[], dict[str, float]] = work, cold: bool = state != "memory") -> dict[str, float]:
            if cold:
                machine.drop_caches()
                wake("kiln", "mksquashfs", "mkfs.erofs", "tar", "sh", "cat")
            else:
                measure(["tar", "-C", str(place), "-cf", "-", "."], ["cat"])
            before, back = source.read(), output.read()
            return {
                **work(),
                "fetched_bytes": source.since(before)["fetched_bytes"],
                "back_bytes": output.since(back)["fetched_bytes"],
            }

        row.measure = run
        yield row


def pipes(bench: Bench) -> Iterator[Row]:
    """Yields builds from an archive that comes through a pipe."""
    tree = bench.tree("mini")
    archive = bench.kept(("tar",), lambda path: quiet("tar", "--format=pax", "-C", tree, "-cf", path, "."))
    image = bench.new("out")
    count = str(machine.cpus())
    names = bench.directory("names") / "mkfs.erofs"  # kiln by another's name
    names.symlink_to(need("kiln"))
    ways: list[tuple[str, str, Callable[[], list[str]]]] = [
        ("plain", "kiln", lambda: [need("kiln"), "pack", "--quiet", "--preset", "plain", "-", str(image)]),
        ("plain", "kiln as mkfs.erofs", lambda: [str(names), "--tar=f", "--quiet", str(image)]),
        ("plain", "mkfs.erofs", lambda: [need("mkfs.erofs"), "--tar=f", f"--workers={count}", "--quiet", str(image)]),
        (
            "zstd 3",
            "kiln",
            lambda: [
                need("kiln"),
                "pack",
                "--quiet",
                "-z",
                "zstd,3",
                "-C",
                "128K",
                "--dedupe",
                "files",
                "-",
                str(image),
            ],
        ),
        (
            "zstd 3",
            "tar2sqfs",
            lambda: [
                need("tar2sqfs"),
                "-q",
                "-f",
                "-c",
                "zstd",
                "-X",
                "level=3",
                "-b",
                "131072",
                "-j",
                count,
                str(image),
            ],
        ),
        (
            "zstd 3",
            "sqfstar",
            lambda: [
                need("sqfstar"),
                "-quiet",
                "-no-progress",
                "-comp",
                "zstd",
                "-Xcompression-level",
                "3",
                "-b",
                "128K",
                "-processors",
                count,
                str(image),
            ],
        ),
    ]
    for method, name, line in ways:
        row = Row({"method": method, "program": name}, ours=name.startswith("kiln"))
        try:
            words = line()
            row.command = f"cat tree.tar | {typed(words)}"
            row.measure = lambda words=words: built(["cat", str(archive)], words, image=image)  # type: ignore[misc]
        except Missing as error:
            row.reason = str(error)
        yield row


def text_tree(root: Path, size: int, lines_log2: int) -> None:
    """Makes files of 4 KiB to 4 MiB of lines in random order: they compress as sources do, and no part occurs twice."""
    rng = random.Random(size)
    words = [
        "".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1), k=rng.randrange(2, 10)))
        for _ in range(5000)
    ]
    lines = [
        " ".join(rng.choices(words, [1 / (rank + 3) for rank in range(5000)], k=10)) + "\n"
        for _ in range(1 << lines_log2)
    ]
    while size > 0:
        length = min(size, int(2 ** rng.uniform(12, 22)))
        (root / f"{size:09}").write_text("".join(rng.choices(lines, k=length // 30 + 1))[:length])
        size -= length


def parts(bench: Bench) -> Iterator[Row]:
    """Yields the price of looking for equal parts where there are none, and their worth where there are."""
    unique = bench.directory("unique")
    text_tree(unique, (2 if bench.quick else 400) * 10**6, 12 if bench.quick else 16)
    image = bench.new("out")
    for label, tree in (("no equal parts", unique), ("system tree", bench.tree("mini"))):
        for way in ("off", "files", "parts"):
            options = images.kiln("zstd,3", 128, f"--dedupe {way}")
            yield tree_row(Row({"tree": label, "dedupe": way}, ours=True), "kiln", options, tree, image)


def million(bench: Bench) -> Iterator[Row]:
    """Yields builds of very many very small files."""
    tree = bench.stack.enter_context(disks.tmpfs(bench.new(), 8 << 30))
    rng, folders = random.Random(1), 20 if bench.quick else 1000
    pool = rng.randbytes(1 << 16)
    for folder in range(folders):
        (tree / f"{folder:04}").mkdir()
        for name in range(100 if bench.quick else 1000):
            start = rng.randrange(1 << 15)
            (tree / f"{folder:04}" / f"{name:04}").write_bytes(pool[start : start + rng.randrange(600)])
    image = bench.new("out")
    for program, options in (
        ("kiln", ""),
        ("mksquashfs", images.squash("zstd,3", 128)),
        ("mkfs.erofs", "-zzstd,3 -Efragments -C131072"),
    ):
        yield tree_row(Row({"program": program}, ours=program == "kiln"), program, options, tree, image)


ESTIMATES = [
    SIZE,
    Column("off", "size, built ÷ estimated", "", "", timed=False),
    CPU,
    Column("off_cpu", "CPU, built ÷ estimated", "", ""),
    Column("estimating_s", "CPU of the estimate", "s"),
]


def estimates(bench: Bench) -> Iterator[Row]:
    """Yields builds beside their estimates, which one command gives for all presets."""
    tree, image = bench.tree("mini"), bench.new("out")
    line = [need("kiln"), "pack", "--estimate", "--json", str(tree)]

    def run(preset: str) -> dict[str, float]:
        said = bench.new("said")
        cost = measure(line, output=said)
        one = next(one for one in json.loads(said.read_text())["estimates"] if one["preset"] == preset)
        found = built(command("kiln", f"--preset {preset}", tree, image), image=image)
        off = {"off": found["size_bytes"] / one["image_bytes"], "off_cpu": found["cpu_s"] / one["cpu_secs"]}
        return {**found, **off, "estimating_s": cost.cpu_s}

    for preset in ("plain", "fast", "balanced", *([] if bench.quick else ["archive"])):
        yield Row({"preset": preset}, functools.partial(run, preset), command=typed(line), ours=True)


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    text = Words(results, "build")
    kiln, squash = (
        {"program": "kiln", "options": "(default)"},
        {"program": "mksquashfs", "options": "-comp zstd -Xcompression-level 3 -b 128K"},
    )
    for column, what in (("size_bytes", "size"), ("cpu_s", "CPU"), ("wall_s", "time")):
        text.compare(
            "root",
            column,
            kiln,
            squash,
            what,
            of="kiln's default preset",
            to="mksquashfs with zstd 3 and blocks of 128 KiB",
            where="for the system tree",
        )
        text.compare(
            "root",
            column,
            kiln,
            {"program": "mkfs.erofs", "options": "-zzstd,3 -C131072 -Efragments"},
            what,
            of="kiln's default preset",
            to="mkfs.erofs with zstd 3, 128 KiB and fragments",
        )
    for state, what in (
        ("memory", "in memory"),
        ("cold", "that is not in memory"),
        ("little memory", "larger than its memory"),
    ):
        ours = {"source": state, "program": "kiln"}
        text.compare(
            "cold",
            "wall_s",
            ours,
            {"source": state, "program": "mksquashfs"},
            "time",
            of="kiln",
            to="mksquashfs",
            where=f"for a tree {what}",
        )
    text.compare(
        "cold",
        "wall_s",
        {"source": "cold", "program": "kiln"},
        {"source": "cold", "program": "tar (reads only)"},
        "time",
        of="A cold build by kiln",
        to="a tar that only reads the tree",
    )
    for peer in ("sqfstar", "tar2sqfs"):
        text.compare(
            "pipes",
            "wall_s",
            {"method": "zstd 3", "program": "kiln"},
            {"method": "zstd 3", "program": peer},
            "time",
            of="kiln",
            to=peer,
            where="for an archive from a pipe",
        )
    text.compare(
        "pipes",
        "wall_s",
        {"method": "plain", "program": "kiln as mkfs.erofs"},
        {"method": "plain", "program": "mkfs.erofs"},
        "time",
        of="kiln as mkfs.erofs",
        to="mkfs.erofs --tar=f",
    )
    text.compare(
        "parts",
        "cpu_s",
        {"tree": "no equal parts", "dedupe": "parts"},
        {"tree": "no equal parts", "dedupe": "files"},
        "CPU",
        of="Looking for equal parts",
        to="looking for equal files only",
        where="where no part occurs twice",
    )
    return text.sentences()


def both(
    results: Results, row: Mapping[str, str], to: Mapping[str, str], spans: Mapping[str, tuple[float, float]]
) -> Verdict:
    """Judges that quotients of two rows lie in spans, by column."""
    parts = []
    for column, (least, most) in spans.items():
        one = judge.ratio(results, "build", "root", column, row, to, lambda value, a=least, b=most: a < value < b)
        parts.append(replace(one, ours=f"{WHAT[column]} {one.ours}") if one.ours else one)
    return judge.every(parts)


def squashed(compressor: str, kib: int) -> dict[str, str]:
    """Returns the labels of a row of mksquashfs."""
    return {"program": "mksquashfs", "options": images.squash(compressor, kib)}


WHAT = {"size_bytes": "size", "cpu_s": "CPU", "wall_s": "time"}
SIX, FIFTEEN, ONE, LZ4 = (
    squashed(*one) for one in (("zstd,6", 1024), ("zstd,15", 1024), ("zstd,1", 128), ("lz4", 128))
)
CLAIMS = [
    Claim(125, lambda results: both(results, SIX, FIFTEEN, {"size_bytes": (0, 1.02), "cpu_s": (0, 0.5)})),
    Claim(126, lambda results: both(results, ONE, LZ4, {"size_bytes": (0, 1), "wall_s": (0.9, 1.1)})),
]


SUITE = Suite(
    "build",
    "Builds: size against CPU, cold sources, little memory, pipes",
    "How large is an image, and what does it cost to make it? kiln's presets and levels stand beside those of "
    "mksquashfs and mkfs.erofs, and a point that another beats in size and in CPU is marked. The other tables build "
    "from sources that are not in memory, that are larger than memory, or that come through a pipe.",
    [
        Table(
            "root",
            "Presets and levels over a system tree",
            COLUMNS,
            lambda bench: presets(bench, "rootfs"),
            Plot("scatter", "size_bytes", x="cpu_s", series="program", log_x=True),
            rounds=3,
            note="The tree is in memory. The time ends when the image is on the disk. Slow levels run once.",
        ),
        Table(
            "sources",
            "Presets and levels over kernel sources",
            COLUMNS,
            lambda bench: presets(bench, "linux-source"),
            Plot("scatter", "size_bytes", x="cpu_s", series="program", log_x=True),
            rounds=3,
        ),
        Table(
            "settings",
            "Equal settings: nothing packed together, nothing deduplicated",
            COLUMNS,
            settings,
            Plot("bars", "cpu_s", series="program", log_y=True),
            rounds=3,
            note="mksquashfs without a level has one only; its -Xhc is LZ4HC at level 12.",
        ),
        Table(
            "cold",
            "Sources in memory, cold, and larger than memory",
            [WALL, CPU, MEMORY, SIZE, READ, BACK],
            lambda bench: cold(bench, "rootfs"),
            Plot("bars", "wall_s", series="program"),
            note="Source and image lie on two ext4 on loop devices that read past the page cache. Little memory: "
            "program and page cache share 400 MB.",
        ),
        Table("pipes", "An archive from a pipe", COLUMNS, pipes, Plot("bars", "wall_s", series="program")),
        Table("parts", "Looking for equal parts", COLUMNS, parts, Plot("bars", "cpu_s", series="dedupe")),
        Table("million", "A million files of up to 600 bytes", COLUMNS, million, Plot("bars", "wall_s"), rounds=3),
        Table(
            "estimates",
            "Estimates beside builds",
            ESTIMATES,
            estimates,
            Plot("bars", "off"),
            rounds=1,
            note="An estimate compresses samples. Its own CPU is that of all presets together.",
        ),
    ],
    words,
    CLAIMS,
)
