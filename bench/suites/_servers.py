"""Memory of servers: after one file, and under readers while the kernel's caches are dropped again and again."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from lib import images, machine, readers
from lib.bench import Bench
from lib.mounts import Mount, mount
from lib.process import Failed
from lib.suite import Column, Row, Run, Wrong

ANON = Column("anon_bytes", "anonymous", "MB")
HIGHEST = Column("memory_bytes", "peak", "MB")
TASKS = Column("tasks", "threads", "", timed=False)
CALLS = Column("calls", "calls", "", "more")
SERVER_COLUMNS = [ANON, HIGHEST, TASKS, CALLS]
READERS = 16


def servers(bench: Bench) -> Iterator[Row]:
    """Yields the memory of servers once one file of 8 MiB was read, and under readers while caches are dropped."""
    one = readers.one_file(bench, "text", 8 << 20)
    tree = bench.tree("mini")
    ways = [("kiln mount", ["--cache", "1M"]), ("kiln mount", []), ("erofsfuse", [])]
    for method, kib in (("zstd,3", 64), ("lzma,6", 1024)):
        options = images.kiln(method, kib)
        for load, source in (("one file", one), (f"{READERS} readers", tree)):
            for server, extra in ways[::2] if bench.quick else ways:
                yield Row(
                    {"load": load, "image": f"{method} {kib} KiB", "server": " ".join([server, *extra])},
                    partial(served, bench, server, extra, options, source, load == "one file"),
                    command=f"kiln pack {options}; {server} {' '.join(extra)}".strip(),
                    ours=server.startswith("kiln"),
                )
            if bench.quick:
                break


def served(bench: Bench, server: str, extra: Sequence[str], options: str, source: Path, alone: bool) -> Run:
    """Returns the memory of a server after its load."""
    image = bench.image("kiln", options, source)
    with mount(server, image, bench.scratch / "mount", options=extra) as mounted:
        calls = 0
        if alone:
            for path in mounted.root.iterdir():
                path.read_bytes()
            time.sleep(0.5)  # for a server that reads ahead
        else:
            names = [name for name, about in bench.digests(source).items() if about.startswith("-")]
            calls = pressed(mounted, source, names, 3 if bench.quick else 30)
        found = {"anon_bytes": mounted.memory("RssAnon"), "memory_bytes": mounted.memory("VmHWM")}
        found["tasks"] = len(os.listdir(f"/proc/{mounted.pid}/task"))
        return {**found, **({"calls": calls} if calls else {})}


def pressed(mounted: Mount, source: Path, names: Sequence[str], seconds: float) -> int:
    """Lets readers compare files and pages with the source, at random, while caches are dropped every three seconds.
    Returns the number of their calls. Raises Wrong."""
    end, wrong, calls = time.monotonic() + seconds, [], [0] * READERS

    def read(number: int) -> None:
        dice = random.Random(number)
        while time.monotonic() < end and not wrong:
            name = dice.choice(names)
            with open(mounted.root / name, "rb", buffering=0) as shown, open(source / name, "rb", buffering=0) as truth:
                size = os.fstat(truth.fileno()).st_size
                whole = dice.random() < 0.5
                place, length = (0, 1 << 20) if whole else (dice.randrange(max(1, size)) // 4096 * 4096, 4096)
                if os.pread(shown.fileno(), length, place) != os.pread(truth.fileno(), length, place):
                    wrong.append(f"{name} at {place}")
            calls[number] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end - 3:
        time.sleep(3)
        machine.drop_caches()
    for thread in threads:
        thread.join()
    if wrong:
        raise Wrong(f"{wrong[0]}: other bytes")
    if not all(calls):
        raise Failed("a reader has read nothing")
    return sum(calls)
