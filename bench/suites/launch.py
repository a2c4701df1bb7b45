"""Starts of programs from cold filesystems: quiet, with reads and writes behind them, short of memory, with hot lists.

In full about an hour, and a soak of half an hour, of four hours with `--long`."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

from lib import disks, readers
from lib.bench import Bench
from lib.mounts import Mount
from lib.process import Failed, quiet
from lib.programs import need, typed
from lib.results import percentile
from lib.suite import (
    CPU,
    FETCHED,
    RATE,
    REQUESTS,
    SIZE,
    WALL,
    Column,
    Missing,
    Plot,
    Row,
    Run,
    Suite,
    Table,
)
from suites._launch import CLAIMS, words
from suites._programs import record, settled, startable
from suites._systems import (
    EROFS,
    EXT4,
    IO_WAIT,
    MEMORY_WAIT,
    MOUNT,
    SYSTEMS,
    System,
    busy,
    compare,
    cpu_group,
    eating,
    image,
    opened,
    start,
)

LIMIT = 64 << 20  # memory of a start
# Memory of a start, and what another program takes of it.
SHORT, EATEN = 80 << 20, 24 << 20
STARTS = 92  # as published
COMPACT = Path("/proc/sys/vm/compact_memory")


def starts(bench: Bench, loaded: bool) -> Iterator[Row]:
    """Yields starts of each program from each system; caches are dropped before each."""
    tree, programs = startable(bench)
    check = bench.stack.enter_context(busy(bench)) if loaded else lambda: None
    mounts: dict[str, Mount | str] = {}
    for system in SYSTEMS:
        try:
            mounts[system.name] = bench.stack.enter_context(opened(bench, system, tree))
        except (Missing, Failed) as error:
            mounts[system.name] = str(error)
    for program, command in programs.items():
        for system in SYSTEMS:
            row = Row({"program": program, "system": system.name}, ours=system.ours)
            row.command = f"chroot MOUNT {typed(command) if len(command[-1]) < 60 else program}"
            one = mounts[system.name]
            if isinstance(one, str):
                row.reason = one
            else:
                row.check = functools.partial(compare, bench, system, tree)

                def run(one: Mount = one, command: list[str] = command) -> Run:
                    check()
                    return start(one, command)

                row.measure = run
            yield row


def pressed(bench: Bench, loaded: bool) -> Iterator[Row]:
    """Yields starts of one program from fresh mounts in a control group of little memory."""
    tree, programs = startable(bench)
    check = bench.stack.enter_context(busy(bench)) if loaded else lambda: None
    command = programs["python3"]

    def run(system: System) -> Run:
        check()
        with (
            disks.memory_group(LIMIT if loaded else SHORT) as group,
            opened(bench, system, tree, group) as one,
            ExitStack() as stack,
        ):
            if not loaded:
                stack.enter_context(eating(group, EATEN))
            return start(one, command, group)

    # A server's default cache is at least 64 MiB.
    little = dataclasses.replace(MOUNT, mounting=("--cache", "16M" if loaded else "4M"))
    for system in (*SYSTEMS[:-1], little):
        work, check_bytes = functools.partial(run, system), functools.partial(compare, bench, system, tree)
        yield Row({"system": system.name}, work, check_bytes, "chroot MOUNT python3 -c ...", ours=system.ours)


def hot(bench: Bench) -> Iterator[Row]:
    """Yields starts from images whose hot data comes first, and from a mount that keeps it decoded."""
    tree, programs = startable(bench)
    chosen = [name for name in ("python3", "git", "firefox", "thunar") if name in programs][: 1 if bench.quick else 4]
    lists = [bench.new("list") for _ in chosen]
    for name, out in zip(chosen, lists, strict=True):
        record(image(bench, MOUNT, tree), programs[name], out, bench.new("recorded"))
    hot_list = bench.scratch / "launch.list"
    quiet(need("kiln"), "hotlist", "merge", "--force", *lists, "-o", hot_list)
    order = f"--order {hot_list}"
    ways = [
        EXT4,
        EROFS,
        MOUNT,
        System("kernel, --order", "kiln", order, "kernel erofs"),
        System("kiln mount, --order", "kiln", order, "kiln mount"),
        System("kiln mount, relayout", "kiln relayout", order, "kiln mount"),
        System(
            "kiln mount, --order, --pin", "kiln", order, "kiln mount", ("--preload", str(hot_list), "--pin", "256M")
        ),
    ]
    for system in ways:
        one = bench.stack.enter_context(opened(bench, system, tree))
        for name in chosen:
            row = Row({"program": name, "way": system.name}, ours=system.ours)
            row.check = functools.partial(compare, bench, system, tree)
            row.command = f"chroot MOUNT {name}"

            def run(
                one: Mount = one, command: list[str] = programs[name], pinned: bool = "--pin" in system.mounting
            ) -> Run:
                if pinned:
                    settled(one.root)
                return start(one, command)

            row.measure = run
            yield row


def shrinking_little(tree: Path) -> list[str]:
    """Returns the paths of files of which samples shrink to no less than nine tenths."""
    found = []
    for folder, _, names in os.walk(tree):
        for name in names:
            path = Path(folder, name)
            if (
                path.is_symlink()
                or not path.is_file()
                or path.stat().st_size < 4096
                or set(str(path)) & set("*?[]{}!\\")
            ):
                continue
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size // 2 - (64 << 10)))
                sample = file.read(128 << 10)
            if len(zlib.compress(sample, 1)) > 0.9 * len(sample):
                found.append(str(path.relative_to(tree)))
    return sorted(found)


def plain(bench: Bench) -> Iterator[Row]:
    """Yields images in which all files are compressed, and in which those are plain that shrink little."""
    tree, programs = startable(bench)
    hints = bench.scratch / "launch.hints"
    hints.write_text("".join(f"/{path}=none\n" for path in shrinking_little(tree)))
    chosen = list(programs.values())[:: 1 if bench.quick else 3]
    for name, options in (("all compressed", ""), ("plain if over 90 %", f"--hints {hints}")):
        system = System(name, "kiln", f"-z lz4 -C 4K {options}".strip(), "kernel erofs")
        one = bench.stack.enter_context(opened(bench, system, tree))

        def run(one: Mount = one, size: int = image(bench, system, tree).stat().st_size) -> Run:
            runs = [start(one, command) for command in chosen]
            found = {key: sum(each.get(key, 0.0) for each in runs) for key in ("wall_s", "cpu_s", "fetched_bytes")}
            return {**found, "size_bytes": size}

        row = Row({"files": name}, run, functools.partial(compare, bench, system, tree), ours=True)
        row.command = f"kiln pack -z lz4 -C 4K {'--hints LIST' if options else ''} TREE IMAGE"
        yield row


def quota(bench: Bench) -> Iterator[Row]:
    """Yields reads at random, decoded by the reader and by a worker, by a reader with a processor and with a fifth."""
    tree = readers.one_file(bench, "text", (4 if bench.quick else 64) << 20)
    system = readers.erofs("lz4", 4)

    def switch(one: Mount, value: str) -> None:
        assert one.counter
        file = Path("/sys/fs/erofs") / one.counter.file.parent.name / "sync_decompress"
        if not file.exists():
            raise Missing("this kernel has no switch for the place where EROFS decodes")
        file.write_text(value)

    def run(share: float, value: str) -> Run:
        with cpu_group(share) if share < 1 else nullcontext() as group:
            return readers.fio(bench, system, tree, "random", group=group, prepare=lambda one: switch(one, value))

    for share, name in ((1.0, "whole"), (0.2, "a fifth")):
        for where, value in (("in the reader's thread", "1"), ("handed over", "2")):
            yield Row({"processor": name, "decoded": where}, functools.partial(run, share, value))


SLICES = 6


def soak(bench: Bench) -> Iterator[Row]:
    """Yields starts for a long time, one slice after the other, with the kernel told to compact memory before each."""
    if not COMPACT.exists():
        raise Missing("this kernel does not compact memory when told to")
    tree, programs = startable(bench)
    seconds = 0 if bench.quick else 14_400 / SLICES / 3 if bench.long else 1_800 / SLICES / 3
    chosen = (EXT4, EROFS, MOUNT)
    mounts = {system.name: bench.stack.enter_context(opened(bench, system, tree)) for system in chosen}

    def run(one: Mount) -> Run:
        deadline, taken = time.monotonic() + seconds, []
        while not taken or time.monotonic() < deadline:
            COMPACT.write_text("1")
            for command in (programs["python3"], programs["bash"]):
                taken.append(start(one, command)["wall_s"])
        return {"p50_s": percentile(taken, 0.5), "p99_s": percentile(taken, 0.99), "starts": len(taken)}

    for number_ in range(1, (2 if bench.quick else SLICES) + 1):
        for system in chosen:
            work = functools.partial(run, mounts[system.name])
            yield Row({"slice": str(number_), "system": system.name}, work, ours=system.ours)


COLUMNS = [WALL, CPU, FETCHED, REQUESTS]
PRESSURE = [WALL, FETCHED, REQUESTS, MEMORY_WAIT, IO_WAIT]

SUITE = Suite(
    "launch",
    "Starts of programs from cold filesystems",
    "How long does a program take to start when nothing of it is in memory? Thirteen programs of a desktop system "
    "start in a chroot on each filesystem: quiet, with four threads that read and write one file at random, with "
    "little memory, with hot lists, and for a long time. The published starts were of applications on phones.",
    [
        Table(
            "quiet",
            "Starts of programs, nothing beside them",
            COLUMNS,
            lambda bench: starts(bench, False),
            Plot("bars", "wall_s", series="system", log_y=True),
            rounds=10,
            published="P",
            note="Caches are dropped before each start, and the image is read past the page cache. In the quick form "
            "three programs of this machine.",
        ),
        Table(
            "loaded",
            "Starts with four threads of reads and writes behind them",
            PRESSURE,
            lambda bench: starts(bench, True),
            Plot("bars", "wall_s", series="system", log_y=True),
            rounds=10,
            published="P",
            note="fio reads and writes one file of 64 MiB at random, each thread held to 256 KiB a second by fio, not "
            "by a group. Waiting is that of the whole system (PSI, “some”).",
        ),
        Table(
            "short",
            "92 starts in 80 MiB of which another program holds 24",
            PRESSURE,
            lambda bench: pressed(bench, False),
            Plot("distribution", "wall_s"),
            rounds=STARTS,
            published="P",
            note="Program, server, page cache and the eater of memory share a control group, without swap; each start "
            "has a fresh mount. The published memory was a phone's, filled until its compressed swap was full. "
            "Waiting is that of the whole system. kiln mount has `--cache 4M`: with 16M, memory is short for all, and "
            "a start takes over a minute.",
        ),
        Table(
            "stalls",
            "92 starts in 64 MiB with reads and writes behind them",
            PRESSURE,
            lambda bench: pressed(bench, True),
            Plot("distribution", "wall_s"),
            rounds=STARTS,
            note="The threads that read and write are outside the group. Each start has a fresh mount. kiln mount has "
            "`--cache 16M`.",
        ),
        Table(
            "hot",
            "Starts from ordered images, and with hot data kept decoded",
            COLUMNS,
            hot,
            Plot("bars", "wall_s", series="way"),
            rounds=10,
            note="The list is a recording of these starts. A pinned mount keeps what the list names decoded; caches "
            "are dropped before each start all the same.",
        ),
        Table(
            "plain",
            "Files left plain that shrink little",
            [WALL, CPU, FETCHED, SIZE],
            plain,
            Plot("bars", "wall_s"),
            note="kiln's images of LZ4 and 4 KiB, read by the kernel; a run is one cold start of each of several "
            "programs. Plain are files of which a sample shrinks to over 90 %.",
        ),
        Table(
            "quota",
            "Decoding in the reader's thread and handed over, by a reader with little of a processor",
            [RATE, CPU],
            quota,
            Plot("bars", "rate", series="decoded"),
            note="fio, 4 KiB at random, EROFS of LZ4 and 4 KiB. The group limits the reader; the kernel's workers are "
            "outside.",
        ),
        Table(
            "soak",
            "Starts for a long time, memory compacted before each",
            [
                Column("p50_s", "p50", "s"),
                Column("p99_s", "p99", "s"),
                Column("starts", "starts", "", "more", timed=False),
            ],
            soak,
            Plot("lines", "p99_s", x="slice", series="system"),
            rounds=1,
            note="Six slices for each system, one after the other: half an hour in all, with --long four hours.",
        ),
    ],
    words,
    CLAIMS,
)
