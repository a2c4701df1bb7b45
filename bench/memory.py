#!/usr/bin/env python3
"""Memory of FUSE servers: after one file of 8 MiB, and under readers whose caches are dropped again and again.

"One file": kiln with `--cache 1M` and erofsfuse serve the same image of one file, which is read once. "Readers": 16 processes read a
tree in the order of its listing, at random, and page by page, while the kernel's caches are dropped every three seconds. Root only.
"""
from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import lib
import mounted
import packers
import servers

ONE_LEN = 8 << 20
READERS = 16
DROP_S = 3.0
GROUPS = Path("/sys/fs/cgroup/memory")
# What `kiln pack` and `mkfs.erofs` are told for the image of one file.
ONE_FILE = {
    "zstd 64K": (["-z", "zstd,3", "-C", "64k"], ["-zzstd,3", "-C65536"]),
    "lzma 1M": (["-z", "lzma,6", "-C", "1m"], ["-zlzma,6", "-C1048576"]),
}
PRESETS = ["balanced", "archive"]


def kiln_with_cache(kiln: Path, cache: str) -> servers.Server:
    """kiln's mount with a cache of this size."""
    return servers.Server("kiln", "erofs", lambda image, place: [
        str(kiln), "mount", "--via", "fuse", "--foreground", "--quiet", "--cache", cache, str(image), str(place)])


@contextmanager
def limited(server: servers.Server, limit: Optional[int]) -> Iterator[servers.Server]:
    """Return the same server in a control group with limited memory, page cache included."""
    if limit is None:
        yield server
        return
    group = GROUPS / f"kiln-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        yield replace(server, command=lambda image, place: ["sh", "-c", enter, "sh", *server.command(image, place)])
    finally:
        group.rmdir()


def threads(pid: int) -> int:
    """Return the number of threads of a process."""
    return len(os.listdir(f"/proc/{pid}/task"))


def after_one_file(server: servers.Server, image: Path, place: Path) -> Dict[str, int]:
    """Bytes of the server once the file has been read."""
    with servers.serving(server, image, place) as serving:
        for file in serving.root.iterdir():
            file.read_bytes()
        time.sleep(0.5)  # for a server that reads ahead
        return {
            "anon": serving.rss_bytes("RssAnon"), "file": serving.rss_bytes("RssFile"), "threads": threads(serving.pid),
        }


def read_for(root: Path, files: List[str], seed: int, seconds: float) -> int:
    """Read below a mount for a given time; return the exit code of a reader."""
    dice, end = random.Random(seed), time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            way, first = dice.random(), dice.randrange(len(files))
            if way < 0.5:
                for name in files[first : first + 50]:
                    (root / name).read_bytes()
                continue
            for name in (dice.choice(files) for _ in range(50)):
                with open(root / name, "rb", buffering=0) as file:
                    size = os.fstat(file.fileno()).st_size
                    if way < 0.75:
                        file.read(1 << 20)
                    else:
                        for _ in range(8):
                            os.pread(file.fileno(), 4096, dice.randrange(max(1, size)))
        return 0
    except OSError as error:
        lib.say(str(error))
        return 1


def under_readers(server: servers.Server, image: Path, place: Path, files: List[str], seconds: float) -> Dict[str, int]:
    """The server's private memory in bytes at the end, and its highest, seen every second."""
    with servers.serving(server, image, place) as serving:
        readers = []
        for seed in range(READERS):
            pid = os.fork()
            if pid == 0:
                os._exit(read_for(serving.root, files, seed, seconds))
            readers.append(pid)
        end, drop, highest = time.monotonic() + seconds, 0.0, 0
        while time.monotonic() < end:
            if time.monotonic() > drop:
                mounted.drop_caches()
                drop = time.monotonic() + DROP_S
            time.sleep(1)
            highest = max(highest, serving.rss_bytes("RssAnon") or 0)
        failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in readers)
        anon = serving.rss_bytes("RssAnon")
        if failed or anon is None:
            raise OSError(f"{failed} of {READERS} readers failed" if anon is not None else "the server was killed")
        return {"anon": anon, "highest": highest}


def main() -> int:
    """Exit code 1 if a program failed, 2 if there was nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="a tree; the file is the front of its largest one")
    parser.add_argument("--seconds", type=float, default=600, help="how long the readers read")
    parser.add_argument("--cache", default="16M", help="kiln's cache for the readers")
    parser.add_argument("--limit", type=lib.parse_size, help="server in a control group (version 1) of this size, 64M for example")
    parser.add_argument("--only", choices=["one file", *PRESETS], action="append", help="only these")
    parser.add_argument("--who", action="append", default=[], help="only these contestants")
    parser.add_argument("--tmp", type=Path, help="directory for images, not on a tmpfs")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    kiln = packers.kiln_path().resolve()
    if not kiln.exists() or os.geteuid() != 0:
        lib.say(f"needs root and {kiln}: cargo build --release -p kiln-command")
        return 2
    tree = arguments.tree.resolve()
    results, problems = [], []

    def contestants(cache: str) -> List[servers.Server]:
        found = [kiln_with_cache(kiln, cache), servers.find_servers(kiln).get("erofsfuse")]
        return [server for server in found if server and server.name in (arguments.who or [server.name])]

    def note(case: str, server: servers.Server, measure) -> None:
        try:
            results.append({"case": case, "who": server.name, **measure()})
            lib.say(f"{results[-1]}")
        except OSError as error:
            problems.append(f"{case}, {server.name}: {error}")
            lib.say(problems[-1])

    with lib.scratch(arguments.tmp) as folder:
        place, image = folder / "mount", folder / "image.erofs"
        place.mkdir()
        if "one file" in (arguments.only or ["one file"]):
            (folder / "one").mkdir()
            largest = max(lib.walk_files(tree), key=os.path.getsize)
            with open(largest, "rb") as source:
                (folder / "one" / "file").write_bytes(source.read(ONE_LEN))
            for method, (ours, theirs) in ONE_FILE.items():
                commands = {"kiln pack": [str(kiln), "pack", "--quiet", *ours, str(folder / "one"), str(image)]}
                mkfs = packers.peer_path("erofs", "mkfs.erofs")
                if mkfs.exists():
                    commands["mkfs.erofs"] = [str(mkfs), "--quiet", *theirs, str(image), str(folder / "one")]
                for packer, command in commands.items():
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                    for server in contestants("1M"):
                        note(f"one file, {method}, {packer}", server, lambda: after_one_file(server, image, place))
                    image.unlink()
        files = [os.path.relpath(path, tree) for path in lib.walk_files(tree)]
        for preset in arguments.only or PRESETS:
            if preset not in PRESETS:
                continue
            subprocess.run([str(kiln), "pack", "--quiet", "--preset", preset, str(tree), str(image)], check=True)
            for server in contestants(arguments.cache):
                with limited(server, arguments.limit) as server:
                    note(f"{READERS} readers, {preset}", server,
                         lambda: under_readers(server, image, place, files, arguments.seconds))
            image.unlink()
    head = ["case", "who", "RssAnon MB", "highest MB", "RssFile MB", "threads"]
    shown = lambda row, key: lib.mb(row[key]) if key in row else ""
    rows = [
        [r["case"], r["who"], shown(r, "anon"), shown(r, "highest"), shown(r, "file"), str(r.get("threads", ""))]
        for r in results
    ]
    print(lib.markdown_table(head, rows))
    return lib.end(arguments.out, "memory", problems, results)


if __name__ == "__main__":
    sys.exit(main())
