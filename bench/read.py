#!/usr/bin/env python3
"""Read trees and a large file through mounts and through the library, side by side: CPU of client, server and kernel threads.

kiln's FUSE server, erofsfuse and the kernel's EROFS read one and the same image, made by kiln; SquashFS has the same tree by the
same algorithm, fuse-zip a zip file of it. Rounds take turns, each with fresh mounts, the images in the page cache. A small
client (`read-client`, of the crate `kiln-tests`) compares all that it reads with digests of the source.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import lib
import packers
import servers
from packers import Setting
from servers import Server, Serving

SCHEMA = 1
PAGES = 4000
# The library by way of read-client: how it is called there.
LIBRARIES = {"library": "image", "library, all at once": "many"}
CORES = lib.cpu_count()
SETTINGS = {"lz4": Setting("lz4", None, 64 * lib.KIB), "zstd": Setting("zstd", 3, 64 * lib.KIB)}


@dataclass(frozen=True)
class Step:
    """Something that a client does with a mounted tree: a plan on some threads, or a command."""

    name: str
    plan: Optional[str] = None
    threads: int = 1
    via: str = "mount"  # or "walk", which lists each directory before the first file there
    command: Tuple[str, ...] = ()  # {root} and {target} are replaced


LS = ("ls", "-lR", "{root}")
RSYNC = shutil.which("rsync") or str(packers.peer_path("tools", "rsync"))
# Each list is one mount.
SESSIONS: List[List[Step]] = [
    [Step("ls -lR, cold", command=LS), Step("ls -lR, again", command=LS)],
    [Step("every file, by a walk", "files", via="walk"), Step("every file, by a walk, again", "files", via="walk")],
    [Step("every file, in order of a list", "files"), Step("every file, in order of a list, again", "files")],
    [Step("ls -lR, first", command=LS), Step("every file, shuffled, after ls -lR", "shuffled")],
    [Step("every file, shuffled", "shuffled"), Step("every file, shuffled, again", "shuffled")],
    [Step("every file, shuffled, 8 threads", "shuffled", 8)],
    [Step("every file, shuffled, 64 threads", "shuffled", 64)],
    [Step("4 KiB pages of the largest file", f"pages={PAGES}")],
    [Step("4 KiB pages of the largest file, 16 at once", f"pages={PAGES}", 16)],
    [Step("4 KiB of each 128 KiB", "strided")],
    [Step("the largest file, sequentially", "sequential")],
    [Step("cp -a", command=("cp", "-a", "{root}/.", "{target}"))],
    [Step("rsync -aAXH", command=(RSYNC, "-aAXH", "{root}/", "{target}"))],
    [Step("tar", command=("tar", "-cf", "/dev/zero", "-C", "{root}", "."))],
]


@dataclass
class Result:
    """Cost of one step for one contestant, in all rounds."""

    tree: str
    setting: str
    step: str
    who: str
    cpu_s: List[float] = field(default_factory=list)
    wall_s: List[float] = field(default_factory=list)
    rss_bytes: List[int] = field(default_factory=list)


class Bench:
    """Images, plans and results of one run."""

    def __init__(self, client: Path, folder: Path, target: Path, listed: Dict[str, Server]) -> None:
        self.client, self.folder, self.target, self.servers = client, folder, target, listed
        self.place = folder / "mount"
        self.place.mkdir()
        self.results: Dict[Tuple[str, str, str, str], Result] = {}
        self.problems: List[str] = []

    def plan(self, tree: Path, kind: str) -> Path:
        """The plan of a kind for a tree, made once."""
        path = self.folder / f"{tree.name}-{kind}.plan"
        if not path.exists():
            with open(path, "wb") as out:
                subprocess.run([self.client, "plan", kind, tree], stdout=out, check=True)
        return path

    def step(self, step: Step, tree: Path, root: Path) -> Tuple[float, float]:
        """CPU and wall seconds of the client."""
        if step.plan is not None:
            return self.read(step, tree, step.via, root)
        out = self.target / "out"
        out.mkdir()
        command = [word.format(root=root, target=out) for word in step.command]
        start = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
        assert child.stdout is not None
        lines = sum(1 for line in child.stdout if not line.startswith("total "))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - start
        self.check_command(step, tree, out, lines, child.returncode)
        shutil.rmtree(out)
        return usage.ru_utime + usage.ru_stime, wall_s

    def check_command(self, step: Step, tree: Path, out: Path, lines: int, code: int) -> None:
        """A command must have done its work: as many lines as for the source, or the same files."""
        if code != 0:
            raise OSError(f"{step.name}: exit code {code}")
        if step.command == LS and lines != len(listing(tree)):
            raise OSError(f"{step.name}: {lines} lines, not {len(listing(tree))}")
        if step.name.startswith(("cp", "rsync")):
            subprocess.run(["diff", "-r", "--no-dereference", "-q", tree, out], check=True, stdout=subprocess.DEVNULL)

    def read(self, step: Step, tree: Path, via: str, place: Path) -> Tuple[float, float]:
        """Run the client, which checks what it reads."""
        plan = self.plan(tree, step.plan or "")
        command = [str(self.client), "run", str(plan), str(step.threads), via, str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"{step.name}: {done.stderr.strip()}")
        said = json.loads(done.stdout)
        return said["cpu_s"], said["wall_s"]

    def session(self, steps: List[Step], tree: Path, setting: str, server: Server, image: Path) -> None:
        """All steps in one mount."""
        with servers.serving(server, image, self.place) as serving:
            for step in steps:
                before = serving.cpu_s()
                cpu_s, wall_s = self.step(step, tree, self.place)
                cpu_s += servers.spent(before, settled(serving))
                self.note(tree, setting, step, server.name, cpu_s, wall_s, serving.rss_bytes())

    def library(self, name: str, steps: List[Step], tree: Path, setting: str, image: Path) -> None:
        """The first step by the library; whatever comes again is the same to it."""
        if steps[0].plan is not None:
            cpu_s, wall_s = self.read(steps[0], tree, LIBRARIES[name], image)
            self.note(tree, setting, steps[0], name, cpu_s, wall_s, None)

    def decode(self, tree: Path, setting: str, image: Path) -> None:
        """All streams, each decoded once: alone by one thread, and by the library with all cores."""
        step = Step(f"all streams, {CORES} threads, against decoding alone")
        ways = {"decoding alone": ["decode", str(image)], "library, all at once": ["streams", str(image), str(CORES)]}
        for who, words in ways.items():
            done = subprocess.run([str(self.client), *words], capture_output=True, text=True, check=True)
            said = json.loads(done.stdout)
            self.note(tree, setting, step, who, said["cpu_s"], said["wall_s"], None)

    def note(
        self, tree: Path, setting: str, step: Step, who: str, cpu_s: float, wall_s: float, rss: Optional[int]
    ) -> None:
        """Add a measurement."""
        key = (tree.name, setting, step.name, who)
        result = self.results.setdefault(key, Result(*key))
        result.cpu_s.append(cpu_s)
        result.wall_s.append(wall_s)
        result.rss_bytes += [rss] if rss is not None else []

    def round(self, steps: List[Step], tree: Path, setting: str, images: Dict[str, Path], by: int) -> None:
        """Measure all contestants, each with its own mount. One that fails is reported, and the others continue."""
        for name in lib.rotated([*self.servers, *LIBRARIES], by):
            try:
                if name in LIBRARIES:
                    self.library(name, steps, tree, setting, images["erofs"])
                elif (kind := self.servers[name].kind) in images:
                    self.session(steps, tree, setting, self.servers[name], images[kind])
            except (OSError, subprocess.SubprocessError) as error:
                self.problems.append(f"{tree.name}, {setting}, {name}: {error}")
                lib.say(self.problems[-1])


def settled(serving: Serving) -> Dict[int, float]:
    """Return CPU seconds of all servers once they are idle: releases and read-ahead end after the client."""
    used = serving.cpu_s()
    while True:
        time.sleep(0.05)
        before, used = used, serving.cpu_s()
        if servers.spent(before, used) < 0.001:
            return used


_listings: Dict[Path, List[str]] = {}


def listing(tree: Path) -> List[str]:
    """`ls -lR` of the source, without its totals."""
    if tree not in _listings:
        done = subprocess.run(["ls", "-lR", tree], capture_output=True, text=True, errors="replace", check=True)
        _listings[tree] = [line for line in done.stdout.splitlines() if not line.startswith("total ")]
    return _listings[tree]


def make_images(
    tree: Path, setting: Setting, folder: Path, kinds: List[str], options: List[str]
) -> Dict[str, Path]:
    """One image of each kind, and a zip file where `zip` is installed."""
    found = packers.find_packers()
    threads = lib.cpu_count()
    name = f"{tree.name}-{setting.algorithm}"
    makers = {
        "erofs": ("kiln", lambda packer, image: packers.kiln_command(packer, setting, tree, image, threads, options)),
        "squashfs": ("mksquashfs", lambda packer, image: packers.mksquashfs_command(packer, setting, tree, image, threads)),
    }
    images = {}
    for kind in kinds:
        image = folder / f"{name}.{kind}"
        if kind == "zip":
            if shutil.which("zip") is None:
                continue
            subprocess.run(["zip", "-qry1", str(image), "."], cwd=tree, check=True)
        elif makers[kind][0] in found:
            packer, command = makers[kind]
            # Level 1 is the only one of mksquashfs's LZ4.
            subprocess.run(command(found[packer], image), check=True, stdout=subprocess.DEVNULL)
        else:
            continue
        images[kind] = image
    return images


def table(results: List[Result]) -> str:
    """Medians of CPU seconds for each step, and what kiln's two ways are of the others'."""
    by_key = {(r.tree, r.setting, r.step, r.who): lib.median(r.cpu_s) for r in results}
    head = ["step", "tree", "method", "who", "CPU s", "kiln /", "library /", "all at once /", "wall s", "RSS MiB"]
    rows = []
    for result in results:
        mine = by_key[(result.tree, result.setting, result.step, result.who)]

        def ratio(name: str, one: Result = result, mine: Optional[float] = mine) -> str:
            ours = by_key.get((one.tree, one.setting, one.step, name))
            return f"{ours / mine:.2f}" if ours is not None and mine and name != one.who else ""

        rss = lib.median(result.rss_bytes)
        rows.append([
            result.step, result.tree, result.setting, result.who, f"{mine:.3f}",
            *(ratio(name) for name in ("kiln", *LIBRARIES)),
            f"{lib.median(result.wall_s):.3f}", "" if rss is None else lib.mib(rss),
        ])
    return lib.markdown_table(head, sorted(rows, key=lambda row: (row[1], row[2], order(row[0]))))


def order(step: str) -> int:
    """Return the position of a step in the list."""
    names = [one.name for steps in SESSIONS for one in steps]
    return names.index(step) if step in names else len(names)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs="+", help="trees; the largest file of each is the large file")
    parser.add_argument("--runs", type=lib.positive, default=3, help="rounds (default 3)")
    parser.add_argument("--method", choices=[*SETTINGS], action="append", help="only this algorithm")
    parser.add_argument("--only", action="append", default=[], help="only steps whose name contains this")
    parser.add_argument("--who", action="append", default=[], help="only these contestants")
    parser.add_argument("--pack", default="", help="more options of `kiln pack`, such as '--fragments off'")
    parser.add_argument("--client", type=Path, help="read-client (default: beside kiln)")
    parser.add_argument("--tmp", type=Path, help="directory for images")
    parser.add_argument("--target", type=Path, default=Path("/dev/shm"), help="a tmpfs to copy to (default /dev/shm)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if bytes were wrong or a program failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    kiln = packers.kiln_path().resolve()
    client = arguments.client or kiln.parent / "read-client"
    if not kiln.exists() or not client.exists() or os.geteuid() != 0:
        lib.say(f"needs root, {kiln} and {client}: cargo build --release -p kiln-command -p kiln-tests")
        return 2
    listed = {n: s for n, s in servers.find_servers(kiln).items() if not arguments.who or n in arguments.who}
    kinds = sorted({server.kind for server in listed.values()} | {"erofs"})
    sessions = [s for s in SESSIONS if not arguments.only or any(w in one.name for w in arguments.only for one in s)]
    for step in (step for steps in sessions for step in steps if step.command and not shutil.which(step.command[0])):
        lib.say(f"{step.name}: skipped, {step.command[0]} is not there")
        sessions = [steps for steps in sessions if step not in steps]
    facts = lib.machine_facts()
    with lib.scratch(arguments.tmp) as folder, lib.scratch(arguments.target) as target:
        bench = Bench(client.resolve(), folder, target, listed)
        for tree in (tree.resolve() for tree in arguments.trees):
            lib.warm(tree)
            for setting in arguments.method or SETTINGS:
                lib.say(f"{tree.name}: packing, {setting}")
                images = make_images(tree, SETTINGS[setting], folder, kinds, arguments.pack.split())
                for number in range(arguments.runs):
                    bench.decode(tree, setting, images["erofs"])
                    for steps in sessions:
                        lib.say(f"{tree.name}, {setting}, round {number + 1}: {steps[0].name}")
                        bench.round(steps, tree, setting, images, number)
                for image in images.values():
                    image.unlink()
    results = list(bench.results.values())
    print(f"CPU seconds of client, server and kernel threads: medians of {arguments.runs} interleaved rounds.\n")
    print(table(results))
    lib.write_json(arguments.out, {
        "schema": SCHEMA, "kind": "read", "facts": facts, "problems": bench.problems,
        "results": [asdict(result) for result in results],
    })
    return int(bool(bench.problems))


if __name__ == "__main__":
    sys.exit(main())
