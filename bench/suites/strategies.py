"""Ways to decode LZ4, in the reader's thread and handed over; clusters that decode in place; properties that are counted.

In full about 15 minutes."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from lib import judge, machine, published, readers
from lib.bench import Bench
from lib.mounts import mount
from lib.process import Failed, quiet
from lib.programs import need, typed
from lib.readers import FILE, erofs, opened
from lib.results import Results
from lib.suite import CPU, RATE, Claim, Column, Missing, Plot, Row, Run, Suite, Table, Verdict
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
    tree = readers.one_file(bench, "text", (4 if bench.quick else 128) << 20)
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
    for saving, cluster in ((0, 4), (50, 4), (90, 4), (99, 4), (99, 64), (100, 64)):
        file = bench.new(f"saving-{saving}")
        file_of(file, min(saving, 99), (4 if bench.quick else 64) << 20)
        if saving == 100:
            file.write_bytes(b"kiln" * ((16 if bench.quick else 64) << 18))
        bench.stack.callback(file.unlink)
        found = Ways(cluster << 10, 4096, file)
        yield Row(
            {"data": f"{saving} % saved", "cluster": f"{cluster} KiB"},
            lambda found=found: {**found.next("rolling"), "scratch_bytes": 17 * 4096.0},
            command=typed(found.command),
            ours=True,
        )


# Where the kernel decodes.

SYNC = {"in the reader's thread": "1", "handed over": "2"}


def handed(bench: Bench) -> Iterator[Row]:
    """Yields the kernel's reads at random, decoded by the reader and by a worker, and kiln's, which the reader decodes."""
    tree = readers.one_file(bench, "text", (8 if bench.quick else 128) << 20)
    for kib in (4,) if bench.quick else (4, 64):
        for where, value in SYNC.items():
            yield Row(
                {"cluster": f"{kib} KiB", "decoded": where, "reader": "kernel"},
                partial(in_thread, bench, kib, tree, value),
                command=f"echo {value} > /sys/fs/erofs/DEVICE/sync_decompress; fio bench/fio/random.fio",
                published=published.row("P", where="optimizations", case=where) and theirs(where) if kib == 4 else {},
            )
        system = erofs("lz4", kib, "kiln library")
        yield Row(
            {"cluster": f"{kib} KiB", "decoded": "in the reader's thread", "reader": "kiln library"},
            partial(readers.fio, bench, system, tree, "random"),
            command=readers.command_of(system, "random"),
            ours=True,
        )


def theirs(where: str) -> dict[str, float]:
    """Returns the paper's throughput."""
    return {"rate": published.row("P", where="optimizations", quantity="random read", case=where)["value"]}


def in_thread(bench: Bench, kib: int, tree: Path, value: str) -> Run:
    """Reads at random by the kernel, with its switch set before."""

    def switch(device: str) -> None:
        file = Path(f"/sys/fs/erofs/{device}/sync_decompress")
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
    text = readers.one_file(bench, "text", 512 << 20)
    tree = bench.tree("mini")
    cases = [("text", text, "kiln", f"-z {method} -C {kib}K {PLAIN}") for method in ("lz4", "lz4hc,12") for kib in (4, 64)]
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
