#!/usr/bin/env python3
"""Measure hot lists: cold starts of a program from slow storage, reads of pinned files, and replays with little memory.

TREE is the root of a system with `usr/bin/python3` and its libraries. `kiln record` records an interpreter that is started in it, by
chroot. Slow storage is `slow_file`, whose requests are counted. Root only.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import lib
import mounted
import packers
import servers

INTERPRETER = "/usr/bin/python3"
# What the recorded program imports; what a tree has not is left out.
START = ["asyncio", "concurrent.futures", "ctypes", "decimal", "email.message", "http.server", "json", "logging.config", "sqlite3", "ssl",
         "tarfile", "unittest", "urllib.request", "xml.dom.minidom", "zipfile"]
# Twenty other programs.
PROGRAMS = [["json"], ["ssl"], ["sqlite3"], ["asyncio"], ["email.message", "smtplib"], ["http.server"], ["unittest"],
            ["xml.dom.minidom"], ["decimal", "fractions"], ["ctypes"], ["multiprocessing.pool"], ["logging.config"],
            ["argparse", "shutil"], ["tarfile", "zipfile"], ["urllib.request"], ["csv", "statistics"], ["difflib", "pydoc"],
            ["concurrent.futures"], ["curses", "readline"], ["doctest", "pdb"]]
DELAYS_US = (1000, 10_000)
METHODS = {"zstd": ["-z", "zstd,3", "-C", "64k"], "lzma": ["-z", "lzma,6", "-C", "64k"]}
PIN = "256M"
LIMIT = 64 * lib.MIB
GROUPS = Path("/sys/fs/cgroup/memory")
REPLAY = Path(__file__).resolve().parent / "replay.py"
SLOW_FILE = packers.kiln_path().resolve().parent / "examples/slow_file"
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Variant:
    """An image that is made of the tree and the list, and how it is mounted. To add one is to add a line below."""

    name: str
    make: Callable[["Scene", Path], Sequence[str]]  # the command that makes the image
    mount: Callable[["Scene"], Sequence[str]] = lambda scene: ()
    bars: Dict[int, float] = field(default_factory=dict)  # of the first variant's wall time, by delay in microseconds
    requests_bar: Optional[float] = None


@dataclass(frozen=True)
class Scene:
    """State that all cases share."""

    kiln: Path
    tree: Path
    folder: Path
    start_list: Path

    @property
    def place(self) -> Path:
        """Mount point of images."""
        return self.folder / "mount"


def pack(*options: str, order: bool = False) -> Callable[[Scene, Path], Sequence[str]]:
    """`kiln pack` of the tree."""
    def command(scene: Scene, image: Path) -> Sequence[str]:
        ordered = ["--order", str(scene.start_list)] if order else []
        return [str(scene.kiln), "pack", "--quiet", "--force", *options, *ordered, str(scene.tree), str(image)]
    return command


def relayout(*options: str) -> Callable[[Scene, Path], Sequence[str]]:
    """`kiln relayout` of the unordered image."""
    script = """"$0" pack --quiet --force "$1" "$3.unordered" && "$0" relayout --quiet "$3.unordered" "$3" --order "$2" "${@:4}"
    status=$?; rm -f "$3.unordered"; exit $status"""
    return lambda scene, image: ["bash", "-c", script, str(scene.kiln), str(scene.tree), str(scene.start_list), str(image), *options]


def preload(*more: str) -> Callable[[Scene], Sequence[str]]:
    """Options of `kiln mount` that read the list in advance."""
    return lambda scene: ["--preload", str(scene.start_list), *more]


VARIANTS = [
    Variant("unordered", pack()),
    Variant("--order", pack(order=True)),
    Variant("--order, --preload", pack(order=True), preload(), {1000: 0.45, 10_000: 0.25}, 0.1),
    Variant("relayout, --preload", relayout(), preload(), {1000: 0.45, 10_000: 0.25}, 0.1),
    Variant("--order, --preload --pin", pack(order=True), preload("--pin", PIN), {1000: 0.45, 10_000: 0.25}, 0.1),
]


def program(modules: Sequence[str]) -> List[str]:
    """Return the command of an interpreter that imports what it finds."""
    code = f"import importlib\nfor name in {list(modules)!r}:\n try: importlib.import_module(name)\n except ImportError: pass"
    return [INTERPRETER, "-c", code]


def mount_command(scene: Scene, image: Path, options: Sequence[str] = ()) -> List[str]:
    """kiln's server in the foreground."""
    return [str(scene.kiln), "mount", "--via", "fuse", "--foreground", "--quiet", *options, str(image), str(scene.place)]


@contextmanager
def serving(scene: Scene, image: Path, options: Sequence[str] = ()) -> Iterator[None]:
    """The image mounted by kiln."""
    server = servers.Server("kiln", "erofs", lambda image, _: mount_command(scene, image, options))
    with servers.serving(server, image, scene.place):
        yield


def stats(scene: Scene) -> Dict[str, Any]:
    """Counters of the mount."""
    done = subprocess.run([str(scene.kiln), "stats", "--json", str(scene.place)], capture_output=True, check=True)
    return json.loads(done.stdout)


def record(scene: Scene, image: Path, modules: Sequence[str], out: Path) -> None:
    """Record a start of the interpreter."""
    with serving(scene, image):
        command = [str(scene.kiln), "record", "--quiet", "--force", "-o", str(out), str(scene.place), "--"]
        subprocess.run([*command, "chroot", str(scene.place), *program(modules)], check=True)


@contextmanager
def slow(image: Path, delay_us: int, folder: Path, is_cached: bool) -> Iterator[Tuple[Path, Callable[[], Tuple[int, int]]]]:
    """The image on slow storage, and what counts its requests and bytes."""
    place = folder / "slow"
    place.mkdir(exist_ok=True)
    options = ["--cached"] if is_cached else []
    server = servers.Server("slow_file", "erofs", lambda image, place: [str(SLOW_FILE), *options, str(image), str(place), str(delay_us)])
    with servers.serving(server, image, place):
        def counts() -> Tuple[int, int]:
            reads, size = (place / "counts").read_text().split()
            return int(reads), int(size)
        yield place / image.name, counts


def cold_start(scene: Scene, variant: Variant, image: Path, delay_us: int, is_cached: bool) -> Dict[str, float]:
    """Mount from slow storage, and start the interpreter at once."""
    mounted.drop_caches()
    image.read_bytes()  # what is slow is the storage, not the disk below it
    with slow(image, delay_us, scene.folder, is_cached) as (path, counts):
        begun = time.perf_counter()
        with serving(scene, path, variant.mount(scene)):
            at_mount, start = counts(), time.perf_counter()
            subprocess.run(["chroot", str(scene.place), *program(START)], check=True)
            wall_s, (requests, size) = time.perf_counter() - start, counts()
            return {"wall_s": wall_s, "with_mount_s": time.perf_counter() - begun, "requests": requests, "bytes": size,
                    "requests_of_mount": at_mount[0]}


def start_case(scene: Scene, runs: int, is_cached: bool, results: List[Dict[str, Any]]) -> None:
    """Cold starts of all variants from storage of each delay, in turns."""
    images = {}
    for variant in VARIANTS:
        image = scene.folder / f"start-{len(images)}.erofs"
        subprocess.run(variant.make(scene, image), check=True)
        images[variant.name] = image
    for delay_us in DELAYS_US:
        taken: Dict[str, List[Dict[str, float]]] = {variant.name: [] for variant in VARIANTS}
        for run in range(runs):
            for variant in lib.rotated(VARIANTS, run):
                taken[variant.name].append(cold_start(scene, variant, images[variant.name], delay_us, is_cached))
        base = {key: lib.median(one[key] for one in taken[VARIANTS[0].name]) for key in taken[VARIANTS[0].name][0]}
        for variant in VARIANTS:
            cost = {key: lib.median(one[key] for one in taken[variant.name]) for key in base}
            ratio = cost["wall_s"] / base["wall_s"]
            results.append({"case": f"start, {delay_us / 1000:g} ms", "who": variant.name, **cost, "of_base": ratio,
                            "bar": variant.bars.get(delay_us), "requests_of_base": cost["requests"] / base["requests"],
                            "requests_bar": variant.requests_bar})
            lib.say(f"{results[-1]}")
    for image in images.values():
        image.unlink()


def forget(scene: Scene) -> None:
    """Drop the mount's pages from the cache, but not those of the image."""
    for line in scene.start_list.read_text(errors="surrogateescape").splitlines()[1:]:
        try:
            fd = os.open(scene.place / line.split("\t", 2)[2], os.O_RDONLY)
        except OSError:
            continue
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def replay(scene: Scene, lists: Sequence[Path], group: Optional[Path] = None) -> List[float]:
    """Seconds of each list, in a control group if there is one."""
    command = [sys.executable, str(REPLAY), str(scene.place), *map(str, lists)]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def pin_case(scene: Scene, runs: int, results: List[Dict[str, Any]]) -> None:
    """Replays where the image is in memory and nothing of the mount is: unpinned, and pinned."""
    for method, options in METHODS.items():
        image = scene.folder / "pin.erofs"
        subprocess.run(pack(*options)(scene, image), check=True)
        image.read_bytes()
        taken: Dict[str, List[float]] = {"unpinned": [], "--pin": []}
        pinned = 0
        for run in range(runs):
            for who in lib.rotated(list(taken), run):
                with serving(scene, image, preload("--pin", PIN)(scene) if who == "--pin" else ()):
                    replay(scene, [])  # the interpreter that replays is in memory
                    if who == "--pin":
                        settle(scene)
                        forget(scene)
                        pinned = stats(scene)["pinned_bytes"]
                    taken[who].extend(replay(scene, [scene.start_list]))
        image.unlink()
        base = lib.median(taken["unpinned"])
        for who, seconds in taken.items():
            bar = {"zstd": 0.7, "lzma": 0.3}[method] if who == "--pin" else None
            wall_s = lib.median(seconds)
            results.append({"case": f"not decoded, {method}", "who": who, "wall_s": wall_s, "of_base": wall_s / base, "bar": bar,
                            "bytes": pinned if who == "--pin" else 0})
            lib.say(f"{results[-1]}")


def settle(scene: Scene) -> None:
    """Wait until the server has finished reading ahead."""
    deadline, before = time.monotonic() + TIMEOUT_S, None
    while time.monotonic() < deadline:
        time.sleep(0.3)
        now = [stats(scene)[name] for name in ("pinned_bytes", "served_bytes", "decoded_bytes")]
        if now == before and now[0] > 0:
            return
        before = now
    raise OSError("pinning did not come to an end")


@contextmanager
def limited(limit: int) -> Iterator[Path]:
    """Create a control group (version 1) with limited memory, page cache included."""
    group = GROUPS / f"kiln-hotlists-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        group.rmdir()


def memory_case(scene: Scene, lists: Sequence[Path], runs: int, results: List[Dict[str, Any]]) -> None:
    """Replays of twenty recordings, server and reader together in a control group."""
    image = scene.folder / "memory.erofs"
    subprocess.run(pack(*METHODS["zstd"])(scene, image), check=True)
    found = servers.find_servers(scene.kiln)
    contestants = {"kiln": servers.Server("kiln", "erofs", lambda image, _: mount_command(scene, image, ["--cache", "16M"]))}
    contestants.update({name: found[name] for name in ("erofsfuse", "kernel EROFS") if name in found})
    taken: Dict[str, List[float]] = {name: [] for name in contestants}
    for run in range(runs):
        for name in lib.rotated(list(contestants), run):
            server = contestants[name]
            with limited(LIMIT) as group:
                command = server.command
                if command is not None:
                    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
                    inside = lambda image, place, command=command: ["sh", "-c", enter, "sh", *command(image, place)]
                    server = servers.Server(server.name, server.kind, inside)
                with servers.serving(server, image, scene.place):
                    mounted.drop_caches()
                    taken[name].append(sum(replay(scene, lists, group)))
    image.unlink()
    ours = lib.median(taken["kiln"])
    for name, seconds in taken.items():
        wall_s = lib.median(seconds)
        bar = {"erofsfuse": 0.7, "kernel EROFS": 1.5}.get(name)
        results.append({"case": f"{len(lists)} replays, {LIMIT >> 20} MB", "who": name, "wall_s": wall_s,
                        "of_base": ours / wall_s, "bar": bar})
        lib.say(f"{results[-1]}")


def row(result: Dict[str, Any]) -> List[str]:
    """One line of the table."""
    def judged(value: Optional[float], bar: Optional[float]) -> str:
        if value is None:
            return ""
        return f"{value:.2f}" if bar is None else f"{value:.2f} ({'kept' if value <= bar else 'MISSED'}: {bar})"
    requests = str(int(result["requests"])) if "requests" in result else ""
    return [result["case"], result["who"], f"{result['wall_s'] * 1000:.0f}", judged(result["of_base"], result.get("bar")), requests,
            judged(result.get("requests_of_base"), result.get("requests_bar")), lib.mb(result.get("bytes") or 0)]


def main() -> int:
    """Exit code 1 if a program failed, 2 if there was nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="the root of a system with Python")
    parser.add_argument("--runs", type=lib.positive, default=5)
    parser.add_argument("--only", choices=["start", "pin", "memory"], action="append", help="only these")
    parser.add_argument("--cached", action="store_true", help="slow storage with a page cache and readahead of its own")
    parser.add_argument("--tmp", type=Path, help="directory for images, on a disk")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    kiln, tree = packers.kiln_path().resolve(), arguments.tree.resolve()
    if not kiln.exists() or not SLOW_FILE.exists() or os.geteuid() != 0 or not (tree / INTERPRETER[1:]).exists():
        lib.say(f"needs root, {kiln}, {SLOW_FILE} (cargo build --release --example slow_file) and {tree}{INTERPRETER}")
        return 2
    wanted = arguments.only or ["start", "pin", "memory"]
    results: List[Dict[str, Any]] = []
    problems: List[str] = []
    with lib.scratch(arguments.tmp) as folder:
        scene = Scene(kiln, tree, folder, folder / "start.list")
        scene.place.mkdir()
        image = folder / "recorded.erofs"
        subprocess.run(pack()(scene, image), check=True)
        record(scene, image, START, scene.start_list)
        lists = []
        if "memory" in wanted:
            for number, modules in enumerate(PROGRAMS):
                lists.append(folder / f"{number}.list")
                record(scene, image, modules, lists[-1])
        image.unlink()
        lib.say(subprocess.run([str(kiln), "hotlist", "show", str(scene.start_list)], capture_output=True, text=True, check=True).stdout)
        cases = {"start": lambda: start_case(scene, arguments.runs, arguments.cached, results),
                 "pin": lambda: pin_case(scene, arguments.runs, results),
                 "memory": lambda: memory_case(scene, lists, arguments.runs, results)}
        for name in wanted:
            try:
                cases[name]()
            except (OSError, subprocess.CalledProcessError) as error:
                problems.append(f"{name}: {error}")
                lib.say(problems[-1])
    head = ["case", "who", "ms", "of the first; kiln of this", "requests", "of the first", "MB"]
    print(lib.markdown_table(head, map(row, results)))
    return lib.end(arguments.out, "hotlists", problems, results)


if __name__ == "__main__":
    sys.exit(main())
