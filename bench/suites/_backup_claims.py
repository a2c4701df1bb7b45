"""Sentences and verdicts of the suite `backup`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from lib import judge
from lib.results import Results
from lib.suite import Claim, Verdict
from lib.words import Words, number, percent
from suites._backup import theirs

SUITE = "backup"
SIZE, WALL, CPU = "size_bytes", "wall_s", "cpu_s"
THREADS = "mkfs.erofs has threads today; theirs had one thread, against sixteen of squashfs"
Labels = dict[str, str]
HC = {"squashfs": "lz4hc", "erofs": "lz4hc 12"}  # the same level: squashfs has but one


def at(system: str, method: str, kib: int | str, options: str = "default") -> Labels:
    """Returns the labels of a row of the grid."""
    return {"system": system, "options": options, "KiB": str(kib), "method": method}


def one_mib(system: str, method: str) -> Labels:
    """Returns the labels of a row of the first table."""
    return {"system": system, "method": method}


def times_or(quotient: float, column: str) -> str:
    """Returns a quotient of sizes as a change, another as a factor."""
    return f"{number(quotient)} times" if column != SIZE else percent(quotient)


def share(
    results: Results, column: str, row: Labels, to: Labels, least: float, most: float, table: str = "grid"
) -> Verdict:
    """Judges that a quotient lies between two numbers."""
    found = judge.ratio(results, SUITE, table, column, row, to, lambda quotient: least < quotient < most)
    quotient = results.ratio(SUITE, table, column, row, to)
    if not found.ours or quotient is None:
        return found
    what = {SIZE: "size", WALL: "time", CPU: "CPU"}[column]
    return replace(found, ours=f"{judge.name(row)}: {what} {times_or(quotient, column)}")


def never(verdict: Verdict) -> Verdict:
    """Returns the verdict on a claim against which the published figures speak, too."""
    return replace(verdict, kind="never shown") if verdict.kind == "no longer" else verdict


def slower(results: Results, limit: float) -> Verdict:
    """Judges by how much EROFS builds slower than squashfs with lz4hc at 1 MiB: at level 9 or 12."""
    base, parts = at("squashfs", "lz4hc", 1024), []
    for row in (at("erofs", "lz4hc 9", 1024), at("erofs", "lz4hc 12", 1024)):
        one = judge.ratio(results, SUITE, "grid", WALL, row, base, lambda quotient: quotient > limit, otherwise=THREADS)
        cpu = results.ratio(SUITE, "grid", CPU, row, base)
        parts.append(replace(one, ours=f"{row['method']} {one.ours}, CPU {number(cpu)} times") if cpu else one)
    found = next((one for one in parts if one.kind == "holds"), parts[-1])
    return replace(found, ours="; ".join(one.ours for one in parts if one.ours))


def gap(results: Results) -> Verdict:
    """Judges whether duplicates explain half of what EROFS takes more than squashfs."""
    rows = [at("squashfs", "lz4hc", 1024), at("squashfs", "lz4hc", 1024, "no-duplicates"), at("erofs", "lz4hc 9", 1024)]
    if verdict := judge.absent(results, SUITE, "grid", *rows):
        return verdict
    once, all_of_them, erofs = (results.median(SUITE, "grid", SIZE, **row) or 0.0 for row in rows)
    if erofs <= once:
        return Verdict("no longer", f"EROFS is not larger: {percent(erofs / once)}")
    part = (all_of_them - once) / (erofs - once)
    whole = f"duplicates {percent(all_of_them / once)}, EROFS {percent(erofs / once)}"
    return Verdict("holds" if part >= 0.5 else "no longer", whole, "" if part >= 0.5 else "fragments explain more")


def saved(results: Results) -> Verdict:
    """Judges whether equal blocks save EROFS more bytes than equal files save squashfs."""
    ways = [("erofs", "default"), ("erofs", "dedupe"), ("squashfs", "no-duplicates"), ("squashfs", "default")]
    rows = [{"tree": "edited duplicates", "system": one, "options": way, "KiB": "1024"} for one, way in ways]
    if verdict := judge.absent(results, SUITE, "dedupe", *rows):
        return verdict
    sizes = [results.median(SUITE, "dedupe", SIZE, **row) or 0.0 for row in rows]
    blocks, files = sizes[0] - sizes[1], sizes[2] - sizes[3]
    return Verdict("holds" if blocks > files else "no longer", f"{blocks / 1e6:.1f} MB against {files / 1e6:.1f} MB")


def builder(results: Results, column: str, most: float, ways: Iterable[str], said: str) -> Verdict:
    """Judges a column of the builder of EROFS, by its ways to store the system tree."""
    rows = [{"tree": "system", "system": "erofs", "options": way, "KiB": "1024"} for way in ways]
    parts = [
        judge.value(
            results,
            SUITE,
            "dedupe",
            column,
            row,
            lambda value: value <= most,
            lambda value, row=row: f"{row['options']} {said.format(value)}",
        )
        for row in rows
    ]
    return judge.every(parts)


def lead(results: Results, kib: str, method: str = "lz4hc 12") -> float | None:
    """Returns the time of a copy from EROFS relative to that from squashfs."""
    rows = [
        {"KiB": kib, "image": image, "reader": f"kernel {image.split()[0]}"}
        for image in (f"erofs {method}", "squashfs lz4hc")
    ]
    return results.ratio(SUITE, "copies", WALL, *rows)


def leads(results: Results) -> Verdict:
    """Judges whether EROFS leads by more at 4 KiB than at 1 MiB."""
    if verdict := judge.absent(results, SUITE, "copies", {"KiB": "4", "image": "erofs lz4hc 12"}):
        return verdict
    small, large = lead(results, "4"), lead(results, "1024")
    if small is None or large is None:
        return Verdict("not run")
    kind = "not to be told apart" if abs(small - large) < 0.02 else "holds" if small < large else "no longer"
    return Verdict(kind, f"4 KiB {percent(small)}, 1 MiB {percent(large)}")


def copied(results: Results) -> Verdict:
    """Judges whether copying out is faster from EROFS, at both levels."""
    rows = [{"KiB": "1024", "image": f"erofs lz4hc {level}", "reader": "kernel erofs"} for level in (9, 12)]
    base = {"KiB": "1024", "image": "squashfs lz4hc", "reader": "kernel squashfs"}
    return judge.every(judge.order(results, SUITE, "copies", WALL, row, base) for row in rows)


def kept(results: Results) -> Verdict:
    """Judges who keeps ACLs."""
    rows = [({"system": "erofs"}, 1.0), ({"system": "squashfs"}, 0.0)]
    return judge.every(
        judge.value(results, SUITE, "acls", "kept", row, lambda value, want=want: value == want,
                    lambda value, row=row: f"{row['system']} keeps {100 * value:.0f} %")
        for row, want in rows
    )  # fmt: skip


def best(results: Results) -> Verdict:
    """Judges whether no row of kiln is as good as the best of squashfs in time, size and copying out at once. The best
    has the least product of the three."""
    columns = (WALL, SIZE, "copy_s")
    if verdict := judge.absent(results, SUITE, "cold", {"system": "squashfs"}, {"system": "kiln"}):
        return verdict
    table = results.table(SUITE, "cold")
    assert table is not None
    figures = {
        (row.labels["system"], row.labels["method"]): [row.median(column) or 0.0 for column in columns]
        for row in table.rows
        if row.runs and all(row.median(column) for column in columns)
    }
    theirs = {key: of for key, of in figures.items() if key[0] == "squashfs"}
    if not theirs:
        return Verdict("not run")
    name, wanted = min(theirs.items(), key=lambda one: one[1][0] * one[1][1] * one[1][2])
    as_good = [
        key[1]
        for key, of in figures.items()
        if key[0] == "kiln" and all(a <= b for a, b in zip(of, wanted, strict=True))
    ]
    said = f"best squashfs: {name[1]}; kiln as good in all three: {', '.join(as_good) or 'none'}"
    return Verdict("no longer" if as_good else "holds", said)


def every(*parts: Verdict | Iterable[Verdict]) -> Verdict:
    """Joins verdicts."""
    return judge.every(part for one in parts for part in ([one] if isinstance(one, Verdict) else one))


def steps(
    results: Results, system: str, methods: Iterable[str], small: int, large: int, least: float, most: float
) -> Verdict:
    """Judges how much larger blocks shrink an image."""
    return every(
        share(results, SIZE, at(system, method, large), at(system, method, small), least, most) for method in methods
    )


def pairs(kibs: Iterable[int], options: tuple[str, str], systems: tuple[str, str]) -> list[tuple[Labels, Labels]]:
    """Returns rows of the grid beside others, with lz4 and with lz4hc at equal levels."""
    return [
        (
            at(systems[0], method_of(systems[0], method), kib, options[0]),
            at(systems[1], method_of(systems[1], method), kib, options[1]),
        )
        for method in ("lz4", "lz4hc")
        for kib in kibs
    ]


def method_of(system: str, method: str) -> str:
    """Returns how a system spells lz4hc at level 12."""
    return HC[system] if method == "lz4hc" else method


def sizes(
    results: Results, rows: Iterable[tuple[Labels, Labels]], least: float, most: float, column: str = SIZE
) -> Verdict:
    """Judges the quotient of each pair of rows."""
    return every(share(results, column, row, to, least, most) for row, to in rows)


ALL = (4, 128, 1024)
BOTH = ("erofs", "squashfs")
TWICE = pairs(ALL, ("default", "no-duplicates"), ("squashfs", "squashfs"))
FRAGMENTS = pairs(ALL, ("fragments", "default"), ("erofs", "erofs"))
DESIGN = pairs(ALL, ("fragments", "no-duplicates"), BOTH)
DEFAULTS = pairs(ALL[1:], ("default", "fragments"), ("squashfs", "erofs"))
LZ4HC = [("squashfs", "lz4hc"), ("erofs", "lz4hc 9")]
WEAK = one_mib("erofs", "lz4hc 9"), one_mib("erofs", "lz4")
FAST = ("zstd 1", "zstd 3", "lz4")
READ = one_mib("tar (reads only)", "none")
JUDGES: dict[int, Callable[[Results], Verdict]] = {
    1: lambda results: share(results, WALL, *WEAK, 10, 1e9, "first"),
    2: lambda results: never(slower(results, 50)),
    3: lambda results: slower(results, 20),
    4: lambda results: builder(results, "cores", 1.1, ("default", "dedupe"), "{:.2f} cores"),
    5: lambda results: builder(results, "written", 1e6, ("dedupe",), "{:,.0f} bytes a second"),
    6: lambda results: never(gap(results)),
    7: lambda results: every(sizes(results, TWICE, 0.97, 0.99), sizes(results, TWICE, 0.9, 1.1, WALL)),
    8: saved,
    9: lambda results: steps(results, "squashfs", ("zstd 1", "zstd 3", "zstd 6"), 4, 1024, 0, 0.9),
    10: lambda results: never(steps(results, "squashfs", ("zstd 1", "zstd 3", "zstd 6"), 128, 1024, 0, 0.98)),
    11: lambda results: every(
        steps(results, "squashfs", ("zstd 15", "lz4", "lz4hc"), 4, 128, 0, 0.92),
        steps(results, "squashfs", ("zstd 15", "lz4", "lz4hc"), 128, 1024, 0.975, 9),
    ),
    12: lambda results: never(every(steps(results, system, (method,), 4, 1024, 0.95, 9) for system, method in LZ4HC)),
    13: lambda results: every(
        share(results, CPU, at(system, method, 4), at(system, method, 1024), 0, 0.5) for system, method in LZ4HC
    ),
    14: lambda results: every(
        share(results, WALL, one_mib("squashfs", method), READ, 0, 1.2, "cold") for method in FAST
    ),
    15: lambda results: sizes(results, DESIGN, 0, 1),
    16: lambda results: sizes(results, DEFAULTS, 0, 1),
    17: lambda results: sizes(results, FRAGMENTS, 0, 0.97),
    18: copied,
    19: leads,
    20: kept,
    21: best,
}  # fmt: skip
CLAIMS = [Claim(number, judge) for number, judge in JUDGES.items()]


def printed(row: Labels, column: str) -> float | None:
    """Returns a figure of a row of the published grid, which has EROFS with lz4hc at level 9 only; None without one."""
    method = row["method"].replace("12", "9")
    return theirs("B2", row["system"], method, options=row["options"], block=row["KiB"]).get(column)


def changes(results: Results, what: str, rows: Iterable[tuple[Labels, Labels, str]], column: str = SIZE) -> str:
    """Returns a derived sentence: changes between rows, ours with theirs behind them; empty without ours."""
    parts = []
    for row, to, name in rows:
        ours, above, below = results.ratio(SUITE, "grid", column, row, to), printed(row, column), printed(to, column)
        if ours is not None:
            also = f" ({times_or(above / below, column)})" if above and below else ""
            parts.append(f"{name} {times_or(ours, column)}{also}")
    return f"{what}: {', '.join(parts)}; in brackets theirs." if parts else ""


NAMES = {"squashfs": "squashfs", "erofs": "EROFS", "kiln": "kiln"}
READS = [
    ("kernel erofs", "squashfs", "lz4hc"),
    ("kiln mount", "squashfs", "lz4hc"),
    ("kiln mount", "erofs", "lz4hc 12"),
]
BACK = {SIZE: "size", WALL: "time", "restore_s": "time to restore", "one_s": "time for one file back"}
STREAM = "one stream finds what files share, and one file costs the decoding of all before it"
GROWN = [
    *(("squashfs", method) for method in ("zstd 1", "zstd 3", "zstd 6", "zstd 15", "lz4", "lz4hc")),
    *(("erofs", method) for method in ("lz4", "lz4hc 9")),
    *(("kiln", method) for method in ("zstd 3", "lz4hc 12")),
]
PLAIN = pairs(ALL, ("default", "no-duplicates"), BOTH)
TIMES = pairs(ALL, ("default", "default"), BOTH)
ERRORS = [
    "Their own rows contradict three of their sentences: over 50 times slower is lz4hc against plain lz4 (like for "
    "like 20.7); duplicates explain 1.9 of 10.8 points of size; lz4hc depends on the block size more than all others "
    "(−18.5 %).",
    "Two of their rows cannot be right: EROFS with lz4 leaves 92.68 % in B1 and 57.20 % in B2; row 33 of B2 lacks a "
    "digit of its time. Three ratios of B1 do not follow from their sizes.",
]


def named(rows: Iterable[tuple[Labels, Labels]]) -> list[tuple[Labels, Labels, str]]:
    """Returns pairs of rows with their names."""
    return [(row, to, f"{row['method'].split()[0]} {row['KiB']} KiB") for row, to in rows]


def words(results: Results) -> list[str]:
    """Returns what the tables say: where kiln loses, where it wins, what follows, and where the source errs."""
    text = Words(results, SUITE)
    for method, kib in (("zstd 3", 128), ("zstd 15", 1024), ("lz4hc 12", 1024)):
        for system, options, of in (
            ("squashfs", "default", method.replace("hc 12", "hc")),
            ("erofs", "fragments", method),
        ):
            for column, what in ((SIZE, "size"), (CPU, "CPU"), (WALL, "time")):
                ours, other = at("kiln", method, kib), at(system, of, kib, options)
                whose = f"{NAMES[system]} ({options})"
                text.compare("grid", column, ours, other, what, of=f"kiln with {method} and {kib} KiB", to=whose)
    for kib in ("4", "64", "1024"):
        for reader, system, method in READS:
            ours = {"KiB": kib, "image": "kiln lz4hc 12", "reader": reader}
            other = {"KiB": kib, "image": f"{system} {method}", "reader": f"kernel {system}"}
            of, to = f"A copy of all files of kiln's image by {reader}", f"one from {NAMES[system]} by the kernel"
            text.compare("copies", WALL, ours, other, "time", of=of, to=to, where=f"at {kib} KiB")
    for table, where in (("cold", "from a cold disk"), ("memory", "in 400 MB of memory")):
        for column, what in ((WALL, "time"), ("copy_s", "time to copy all out")):
            for method in ("lz4", "zstd 3"):
                ours, other = one_mib("kiln", method), one_mib("squashfs", method)
                text.compare(table, column, ours, other, what, of=f"kiln with {method}", to="squashfs", where=where)
    killed = results.table(SUITE, "memory")
    row = killed.find(system="erofs", options="fragments") if killed else None
    if row and "killed" in row.reason:
        text.say("In 400 MB kiln and mksquashfs build the system tree; the kernel kills mkfs.erofs with fragments.")
    ours = {"program": "kiln", "options": "(default)"}
    for program, options in (("restic", "auto"), ("borg", "zstd,3"), ("tar, zstd", "3")):
        for column, what in BACK.items():
            other = {"program": program, "options": options}
            why = STREAM if (program, column) == ("tar, zstd", SIZE) else ""
            text.compare(
                "peers", column, ours, other, what, of="kiln by its defaults", to=f"{program} {options}", why=why
            )
    grown = [(at(*one, 1024), at(*one, 4), f"{NAMES[one[0]]} {one[1]}") for one in GROWN]
    derived = [
        changes(results, "From 4 KiB to 1 MiB the size changes", grown),
        changes(results, "EROFS with fragments against squashfs without duplicates", named(DESIGN)),
        changes(results, "EROFS without fragments against squashfs without duplicates", named(PLAIN)),
        changes(results, "EROFS with fragments against EROFS without", named(FRAGMENTS)),
        changes(results, "squashfs with whole duplicates stored once against all", named(TWICE)),
        changes(results, "Time of EROFS against squashfs", named(TIMES), WALL),
    ]
    return [*text.sentences(), *(one for one in derived if one), *ERRORS]
