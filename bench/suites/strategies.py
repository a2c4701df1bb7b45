"""Ways to decode LZ4, by the reader and handed over; clusters that decode in place; properties that are counted.

In full about 15 minutes."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lib import judge, machine, published, readers
from lib.bench import Bench
from lib.mounts import Mount
from lib.process import Failed, quiet
from lib.programs import need, typed
from lib.readers import FILE, erofs, opened
from lib.results import Results
from lib.suite import CPU, RATE, Claim, Column, Missing, Plot, Row, Run, Suite, Table, Verdict, Wrong
from lib.units import show
from lib.words import Words
from suites.saving import file_of

WAYS = ("direct", "buffer", "in place", "rolling", "scattered")
TAKEN = Column("taken", "extents that took this way", "%", "", timed=False)
EXTENT = Column("extent_bytes", "mean extent", "KiB", "", timed=False)
PUBLISHED = {"scattered": "vmap", "buffer": "per-CPU buffer", "in place": "with rolling and in place"}


class Ways:
    """Outputs of the example `strategies`: one run of it gives a figure to each way."""

    def __init__(self, cluster: int, request: int, file: Path) -> None:
        self.command = [need("strategies"), str(cluster), str(request), str(file)]
        self._runs: list[dict[str, Run]] = []
        self._given = dict.fromkeys(WAYS, 0)

    def next(self, way: str) -> Run:
        """Returns a way's figure of the first run from which it has none yet."""
        number = self._given[way]
        if number == len(self._runs):
            self._runs.append(self._run())
        self._given[way] += 1
        return self._runs[number][way]

    def _run(self) -> dict[str, Run]:
        text = quiet(*self.command)
        extent = re.search(r"extents of (\d+) bytes", text)
        if not extent:
            raise Failed(f"strategies: {text[:200]}")
        lines = re.findall(r"^(.+?) +(\d+) MB/s +([\d.]+) %$", text, re.MULTILINE)
        return {
            way: {"rate": float(rate) * 1e6, "taken": float(share) / 100, "extent_bytes": float(extent[1])}
            for way, rate, share in lines
        }


def ways(bench: Bench) -> Iterator[Row]:
    """Yields the ways to decode, by size of clusters and of requests."""
    tree = readers.one_file(bench, "text", (4 if bench.quick else 64) << 20)
    cases = [(4, 128), (4, 4), (64, 128), (64, 4)]
    for cluster, request in cases[:1] if bench.quick else cases:
        found = Ways(cluster << 10, request << 10, tree / FILE)
        for way in WAYS:
            like = (cluster, request) == (4, 128) and way in PUBLISHED
            theirs = published.row("P", where="ways to decode", case=PUBLISHED[way])["value"] if like else 0
            yield Row(
                {"cluster": f"{cluster} KiB", "request": f"{request} KiB", "way": way},
                partial(found.next, way),
                command=typed(found.command),
                published={"rate": theirs} if like else {},
                ours=True,
            )


def lengths(bench: Bench) -> Iterator[Row]:
    """Yields rolling decoding of extents of growing length: 17 pages of memory are enough, or the program fails."""
    cases = [(0, 4), (50, 4), (90, 4), (99, 4), (99, 64), (100, 64)]  # % saved, cluster in KiB
    for saving, cluster in cases[:3] if bench.quick else cases:
        file = bench.new("saving")
        if saving < 100:
            file_of(file, saving, (2 if bench.quick else 16) << 20)
        else:
            file.write_bytes(b"kiln" * (4 << 20))
        bench.stack.callback(file.unlink)
        found = Ways(cluster << 10, 64 << 10, file)
        yield Row(
            {"data": f"{saving} % saved", "cluster": f"{cluster} KiB"},
            lambda found=found: {**found.next("rolling"), "scratch_bytes": 17 * 4096.0},
            command=typed(found.command),
            ours=True,
        )


# Where the kernel decodes.

SYNC = {"in the reader's thread": "1", "handed over": "2"}


def handed(bench: Bench) -> Iterator[Row]:
    """Yields the kernel's reads at random, decoded by the reader and by a worker, and kiln's, decoded by the reader."""
    tree = readers.one_file(bench, "text", (8 if bench.quick else 128) << 20)
    for kib in (4,) if bench.quick else (4, 64):
        for where, value in SYNC.items():
            theirs = published.row("P", where="optimizations", quantity="random read", case=where)
            yield Row(
                {"cluster": f"{kib} KiB", "decoded": where, "reader": "kernel"},
                partial(in_thread, bench, kib, tree, value),
                command=f"echo {value} > /sys/fs/erofs/DEVICE/sync_decompress; fio bench/fio/random.fio",
                published={"rate": theirs["value"]} if kib == 4 else {},
            )
        system = erofs("lz4", kib, "kiln library")
        yield Row(
            {"cluster": f"{kib} KiB", "decoded": "in the reader's thread", "reader": "kiln library"},
            partial(readers.fio, bench, system, tree, "random"),
            command=readers.command_of(system, "random"),
            ours=True,
        )


def in_thread(bench: Bench, kib: int, tree: Path, value: str) -> Run:
    """Reads at random by the kernel, with its switch set before."""

    def switch(mounted: Mount) -> None:
        assert mounted.counter
        file = Path("/sys/fs/erofs") / mounted.counter.file.parent.name / "sync_decompress"
        if not file.exists():
            raise Missing("this kernel has no switch for the place where EROFS decodes")
        file.write_text(value)

    return readers.fio(bench, erofs("lz4", kib), tree, "random", prepare=switch)


# What `kiln info --stats` counts.

IN_PLACE = Column("in_place", "decode in place", "%", "more", timed=False)
TOUCHES = [
    Column("touch_one", "blocks that touch one pcluster", "%", "more", timed=False),
    Column("touch_two", "two", "%", "", timed=False),
    Column("touch_more", "more", "%", timed=False),
    Column("touch_most", "most", "", timed=False),
]
PLAIN = "--fragments off --dedupe off"


def counts(bench: Bench) -> Iterator[Row]:
    """Yields the shares that `kiln info --stats` counts, of kiln's images and of those of mkfs.erofs."""
    text = readers.one_file(bench, "text", 128 << 20)
    tree = bench.tree("mini")
    cases = [
        ("text", text, "kiln", f"-z {method} -C {kib}K {PLAIN}") for method in ("lz4", "lz4hc,12") for kib in (4, 64)
    ]
    cases += [("text", text, "mkfs.erofs", f"-z{method} -C4096") for method in ("lz4", "lz4hc,12")]
    cases += [("tree", tree, "kiln", f"-z lz4 -C {kib}K {more}") for kib in (4, 64) for more in (PLAIN, "")]
    cases += [("tree", tree, "mkfs.erofs", f"-zlz4 -C65536 {more}".strip()) for more in ("", "-Efragments,dedupe")]
    for data, source, program, options in cases[::3] if bench.quick else cases:
        theirs = published.row("P", where="in-place decoding")["value"]
        yield Row(
            {"data": data, "program": program, "options": options.strip()},
            partial(stats, bench, program, options, source),
            command="kiln info --stats --json IMAGE",
            published={"in_place": theirs} if data == "text" and " -C 4K" in options else {},
            ours=program == "kiln",
        )


def stats(bench: Bench, program: str, options: str, source: Path) -> Run:
    """Returns what `kiln info --stats` counts of an image. Raises Missing."""
    text = quiet(need("kiln"), "info", "--stats", "--json", bench.image(program, options, source))
    found = json.loads(text)["stats"]
    if "in_place" not in found or "block_reads" not in found:
        raise Missing("this kiln does not count it")
    place = found["in_place"]
    reads = {row["pclusters"]: row["blocks"] for row in found["block_reads"]}
    blocks = sum(reads.values()) or 1
    return {
        "in_place": place["fit"] / (place["extents"] or 1),
        "touch_one": reads.get(1, 0) / blocks,
        "touch_two": reads.get(2, 0) / blocks,
        "touch_more": sum(count for number, count in reads.items() if number > 2) / blocks,
        "touch_most": max(reads, default=0),
    }


# What is decoded for a part of an extent, and by how many readers.

DECODED = Column("decoded_bytes", "decoded for the first block", "KiB", timed=False)
FETCH = Column("fetched_bytes", "fetched for it", "KiB", timed=False)


def first_blocks(bench: Bench) -> Iterator[Row]:
    """Yields what kiln decodes for the first block of long extents: the most of many extents."""
    tree = readers.one_file(bench, "text", (4 if bench.quick else 32) << 20)
    for method in ("lz4", "zstd,3", "deflate,6", "lzma,6"):
        for kib in (64,) if bench.quick else (64, 1024):
            options = f"-z {method} -C {kib}K {PLAIN}"
            yield Row(
                {"method": method, "cluster": f"{kib} KiB"},
                partial(first_block, bench, options, tree),
                command="kiln explain --json IMAGE file START+4096",
                ours=True,
            )


def first_block(bench: Bench, options: str, tree: Path) -> Run:
    """Explains reads of the first 4 KiB of extents."""
    explain = [need("kiln"), "explain", "--json", str(bench.image("kiln", options, tree)), FILE]
    pieces = json.loads(quiet(*explain))["pieces"]
    # The end of a file is short, and short extents are decoded whole.
    half = max(piece["extent_bytes"] for piece in pieces) / 2
    pieces = [piece for piece in pieces if piece["extent_bytes"] > half]
    decoded, fetched = [], []
    for piece in pieces[:: max(1, len(pieces) // 40)]:
        told = json.loads(quiet(*explain, f"{piece['offset']}+4096"))
        decoded.append(told["decoded"])
        fetched.append(told["fetched"])
    mean = sum(piece["extent_bytes"] for piece in pieces) / len(pieces)
    return {"decoded_bytes": max(decoded), "fetched_bytes": max(fetched), "extent_bytes": mean}


DECODES = Column("decodes", "decodes", "", timed=False)
READERS = 16


def joint(bench: Bench) -> Iterator[Row]:
    """Yields how often kiln's mount decodes an extent that readers want at the same time, each another page of it."""
    tree = readers.one_file(bench, "text", 4 << 20)
    for count in (1, READERS):
        yield Row(
            {"readers": str(count), "server": "kiln mount"},
            partial(at_once, bench, tree, count),
            command="kiln mount; 16 × pread of 4 KiB; kiln stats",
            ours=True,
        )
    yield Row({"readers": str(READERS), "server": "kernel"}, reason="the kernel does not count what EROFS decodes")


def at_once(bench: Bench, tree: Path, count: int) -> Run:
    """Lets readers begin at the same time, and counts by `kiln stats`."""
    system = erofs("zstd,3", 256, "kiln mount")
    page, wrong = 4096, []
    with opened(bench, system, tree) as mounted, (tree / FILE).open("rb") as truth:
        machine.drop_caches()
        start = threading.Barrier(count)

        def read(number: int) -> None:
            file = os.open(mounted.root / FILE, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
                start.wait()
                place = (1 + number) * page  # behind the first page: kiln decodes up to the last that is wanted
                if os.pread(file, page, place) != os.pread(truth.fileno(), page, place):
                    wrong.append(place)
            finally:
                os.close(file)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = json.loads(quiet(need("kiln"), "stats", "--json", mounted.root))
    if wrong:
        raise Wrong(f"{FILE}: other bytes at {wrong[0]}")
    return {"decodes": sum(told["decodes"].values()), "decoded_bytes": told["decoded_bytes"]}


def algorithms(bench: Bench) -> Iterator[Row]:
    """Yields decoding alone: all streams of an image from memory, by one thread."""
    tree = readers.one_file(bench, "text", (4 if bench.quick else 64) << 20)
    for method in ("lz4", "lz4hc,12", "zstd,3", "deflate,6", "lzma,6"):
        options = f"-z {method} -C 64K {PLAIN}"

        def run(options: str = options) -> Run:
            told = json.loads(quiet(need("read-client"), "decode", bench.image("kiln", options, tree)))
            return {"rate": told["bytes"] / told["cpu_s"], "cpu_s": told["cpu_s"]}

        yield Row({"method": method}, run, command="read-client decode IMAGE", ours=True)


CASE = {"cluster": "4 KiB", "request": "128 KiB"}


def beats(results: Results, way: str, others: tuple[str, ...], by: float) -> Verdict:
    """Judges that a way gives more than others by a factor."""
    pairs = [({**CASE, "way": way}, {**CASE, "way": other}) for other in others]
    return judge.joined(
        *(judge.ratio(results, "strategies", "ways", "rate", *pair, lambda x: x > by) for pair in pairs)
    )


def share(results: Results, column: str, good: Callable[[float], bool], table: str = "counts", **row: str) -> Verdict:
    """Judges one figure of a row."""
    if verdict := judge.absent(results, "strategies", table, row):
        return verdict
    found = results.median("strategies", table, column, **row)
    if found is None:
        return Verdict("not run")
    ours = f"{found * 100:.2f} %" if found < 1 else f"{found:,.0f}"
    return Verdict("holds" if good(found) else "no longer", ours)


def constant(results: Results) -> Verdict:
    """Judges claim 65: the memory of rolling decoding, whatever the length of extents."""
    if verdict := judge.absent(results, "strategies", "lengths", {}):
        return verdict
    found = results.table("strategies", "lengths")
    rows = [row for row in found.rows if row.runs] if found else []
    most = max(row.median("scratch_bytes") or 0 for row in rows)
    longest = max(row.median("extent_bytes") or 0 for row in rows)
    ours = f"{show(most, 'KiB')} for extents of up to {show(longest, 'KiB')}"
    return Verdict("holds" if most <= 17 * 4096 else "no longer", ours)


def inline(results: Results) -> Verdict:
    """Judges claim 62: the kernel's own switch."""
    one, other = ({"cluster": "4 KiB", "decoded": where, "reader": "kernel"} for where in SYNC)
    return judge.ratio(results, "strategies", "threads", "rate", one, other, lambda found: found > 1.05)


def once(results: Results) -> Verdict:
    """Judges claim 67 by kiln's mount, for the kernel does not count."""
    labels = {"readers": str(READERS), "server": "kiln mount"}
    found = share(results, "decodes", lambda x: x == 1, "joint", **labels)
    why = "the first reader decodes up to its own page; the others wait, and share one decode of the whole extent"
    return replace(found, why=why) if found.kind == "no longer" else found


LONG = {"method": "lz4", "cluster": "64 KiB"}
FITS = {"data": "text", "program": "kiln", "options": f"-z lz4 -C 4K {PLAIN}"}
SLOWER = [{"method": method} for method in ("zstd,3", "deflate,6", "lzma,6")]
CLAIMS = [
    Claim(60, lambda results: beats(results, "buffer", ("scattered",), 1.01)),
    Claim(61, lambda results: judge.joined(*(beats(results, way, WAYS[4:] + WAYS[1:2], 1.03) for way in WAYS[2:4]))),
    Claim(62, inline),
    Claim(63, lambda results: share(results, "in_place", lambda found: found >= 0.99, **FITS)),
    Claim(64, lambda results: share(results, "touch_most", lambda found: found <= 2, **FITS)),
    Claim(65, constant),
    Claim(66, lambda results: share(results, "decoded_bytes", lambda found: found <= 4096, "first", **LONG)),
    Claim(67, once),
    Claim(
        68,
        lambda results: judge.order(results, "strategies", "algorithms", "rate", {"method": "lz4"}, SLOWER, more=True),
    ),
]


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "strategies")
    for cluster in ("4 KiB", "64 KiB"):
        direct = {"cluster": cluster, "request": "128 KiB", "way": "direct"}
        for way in WAYS[1:]:
            where = f"for clusters of {cluster} and requests of 128 KiB"
            other = {**direct, "way": way}
            said.compare("ways", "rate", direct, other, "text a CPU second", of="decoding at the destination, which "
                         "kiln does,", to=f"the way “{way}”", where=where, more=True)  # fmt: skip
    one = {"cluster": "4 KiB", "decoded": "in the reader's thread", "reader": "kernel"}
    mine = {**one, "reader": "kiln library"}
    said.compare("threads", "rate", mine, one, "throughput", of="kiln's library", to="the kernel's EROFS",
                 where="at random with clusters of 4 KiB", more=True)  # fmt: skip
    return said.sentences()


SUITE = Suite(
    "strategies",
    "Strategies: ways to decode, and what a read decodes",
    "Which way to decode is fastest, who should decode, how many clusters decode in place, and how much is decoded "
    "that nobody wants? The paper's ways are those of a kernel; here they run in user space, as far as they exist "
    "there. “Scattered” is its vmap, “buffer” its per-CPU buffer, “direct” what kiln does.",
    [
        Table("ways", "Ways to decode LZ4: text a CPU second", [RATE, TAKEN, EXTENT], ways, Plot("bars", "rate"),
              rounds=5, published="P",
              note="The example `strategies` compares each request with the text; a figure is the median of 5 rounds."),
        Table("lengths", "Rolling decoding in 17 pages, for extents of any length",
              [RATE, EXTENT, Column("scratch_bytes", "memory beside the destination", "KiB", timed=False)], lengths,
              Plot("bars", "rate", log_y=True), rounds=1,
              note="Requests of 64 KiB; a way that needed more memory would give other bytes and fail."),
        Table("threads", "Reads at random, decoded by the reader and handed over", [RATE, CPU], handed,
              Plot("bars", "rate", series="decoded"), rounds=10, published="P",
              note="The kernel's switch is sync_decompress. fio, the whole file, fresh mounts, caches dropped."),
        Table("counts", "Pclusters that decode in place, and pclusters that one block of 4 KiB touches",
              [IN_PLACE, *TOUCHES], counts, Plot("bars", "in_place", series="program"), rounds=1, published="P",
              note="By kiln info --stats. It decodes in place if LZ4's margin fits into the blocks of its text."),
        Table("first", "The first block of long extents: bytes decoded and fetched", [DECODED, FETCH, EXTENT],
              first_blocks, Plot("bars", "decoded_bytes"), rounds=1,
              note="By kiln explain, for a reader with nothing in memory; the most of 40 extents."),
        Table("joint", "One extent and sixteen readers",
              [DECODES, Column("decoded_bytes", "decoded", "KiB", timed=False)], joint, Plot("bars", "decodes"),
              rounds=10, quick_rounds=3, note="Each reads another page of one extent of zstd at the same time."),
        Table("algorithms", "Decoding alone, by algorithm: text a CPU second", [RATE, CPU], algorithms,
              Plot("bars", "rate", log_y=True), rounds=5, note="Text, pclusters of 64 KiB, in memory, one thread."),
    ],
    words,
    CLAIMS,
)  # fmt: skip
