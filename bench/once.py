#!/usr/bin/env python3
"""Builds whose source is cold, larger than memory, or a pipe, beside their peers: time, CPU, memory, bytes read.

As root, each tree is copied into an ext4 of its own, on a loop device that reads past the page cache, and images are written to a second one
(`disks.py`): their counters have what programs read of the source, and what they read back of what they wrote; temporary files are on the
second one, too. A program has to read the source once. That takes more than the sum of the files' lengths, as a disk gives whole blocks,
inodes and directories; so the bytes that `tar` reads, cold and with all memory, are what others are compared with. Without root, the
tree is read where it lies, nothing is counted, and cases are left out that are cold. `once_cases.py` has the cases and the bars.
"""
from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

import disks
import hotlists
import lib
import once_cases
import packers
from disks import Disk
from once_cases import Bar, Case, Contestant, Reading, Scene, Spec

PROGRAMS = ("kiln", *packers.PEERS)
# Room on the output's disk, in bytes of the tree: an archive that is spooled, an old image, a new one.
ROOM = 2.5


def run_case(case: Case, kiln: str, rounds: int) -> None:
    """All rounds of a case, or those until a program fails."""
    lib.say(f"{case.name}, {case.tree}")
    for number in range(rounds):
        for one in lib.rotated(case.contestants, number):
            case.problem = case.problem or run_once(one, case, kiln)
        if case.problem:
            lib.say(f"  void: {case.problem}")
            return


def run_once(one: Contestant, case: Case, kiln: str) -> Optional[str]:
    """One more run of a contestant; kiln checks its own first image. Returns what went wrong."""
    one.output.unlink(missing_ok=True)
    case.before()
    try:
        source, output, seeks = case.source.reads(), case.output.reads(), case.source.seeks()
        run = lib.measure_steps(one.steps, one.output)
        read, written = since(source, case.source), since(output, case.output)
        moved = None if seeks is None else (case.source.seeks() or 0) - seeks
        one.readings.append(Reading(run, read[0], read[1], written[0], moved))
        lib.say(f"  {one.label}: exit {run.exit_code}, {run.wall_s:.2f} s wall, {run.cpu_s:.2f} s CPU, {lib.mb(run.image_bytes)} MB")
        if not run.ok:
            return f"{one.label}: exit {run.exit_code}: {run.stderr_tail}"
        if one.is_ours() and len(one.readings) == 1:
            done = subprocess.run([kiln, "check", str(one.output)], capture_output=True, text=True, errors="replace", check=False)
            return f"{one.label}: {(done.stdout + done.stderr)[-2000:]}" if done.returncode else None
        return None
    finally:
        one.output.unlink(missing_ok=True)
        one.after()


def since(before: Optional[Tuple[int, int]], disk: Disk) -> Tuple[Optional[int], Optional[int]]:
    """Bytes and requests that were read of a disk."""
    after = disk.reads()
    return (None, None) if before is None or after is None else (after[0] - before[0], after[1] - before[1])


def medians(one: Contestant) -> Dict[str, Optional[float]]:
    """Medians of a contestant's numbers; empty if a run failed."""
    if not one.readings or any(not reading.run.ok for reading in one.readings):
        return {}
    names = ("source_bytes", "source_reads", "output_bytes", "source_seeks")
    counted = {name: lib.median(getattr(reading, name) for reading in one.readings) for name in names}
    return {**lib.median_run([reading.run for reading in one.readings]), **counted}


def verdicts(case: Case) -> List[Dict[str, Any]]:
    """Each bar of a case, with the quotients beside it, and whether all of its own are kept."""
    if case.problem:
        return []
    found = {one.label: medians(one) for one in case.contestants}
    return [verdict(bar, found[bar.ours], found[bar.peer], case.once_bytes) for bar in case.bars]


def verdict(bar: Bar, ours: Dict[str, Optional[float]], peer: Dict[str, Optional[float]], once: Optional[int]) -> Dict[str, Any]:
    """Quotients of medians beside their bars."""
    quotients = {
        "wall": divided(ours["wall_s"], peer["wall_s"]),
        "cpu": divided(ours["cpu_s"], peer["cpu_s"]),
        "source": divided(ours["source_bytes"], once),
        "read_back": divided(ours["output_bytes"], ours["image_bytes"]),
    }
    most = {name: getattr(bar, name) for name in quotients}
    judged = [quotients[name] <= most[name] for name in quotients if quotients[name] is not None and most[name] is not None]
    return {"kiln": bar.ours, "peer": bar.peer, "quotients": quotients, "bars": most, "kept": all(judged) if judged else None}


def divided(one: Optional[float], other: Optional[float]) -> Optional[float]:
    """A quotient; None if a number is not known, or if there is nothing to divide by."""
    return one / other if one is not None and other else None


def results_table(cases: List[Case]) -> str:
    """The medians."""
    head = ["case", "tree", "program", "wall s", "CPU s", "peak RSS MiB", "source MB", "reads", "seeks", "read back MB", "image MB"]
    return lib.markdown_table(head, [[case.name, case.tree, *result_row(one)] for case in cases for one in case.contestants])


def result_row(one: Contestant) -> List[str]:
    """One contestant's medians; the exit codes if it failed."""
    found = medians(one)
    if not found:
        codes = ", ".join(str(reading.run.exit_code) for reading in one.readings)
        return [one.label, f"exit {codes}" if codes else "not run", *["-"] * 7]
    known = lambda value, show: "-" if value is None else show(value)  # noqa: E731
    return [
        one.label, f"{found['wall_s']:.2f}", f"{found['cpu_s']:.2f}", lib.mib(found["peak_rss_bytes"]), known(found["source_bytes"], lib.mb),
        known(found["source_reads"], lambda count: f"{count:.0f}"), known(found["source_seeks"], lambda count: f"{count:.0f}"),
        known(found["output_bytes"], lib.mb),
        lib.mb(found["image_bytes"]) if found["image_bytes"] else "-",
    ]  # fmt: skip


def bars_table(cases: List[Case]) -> str:
    """Every bar, the figure beside it, and whether it is kept."""
    head = ["case", "tree", "kiln / peer", "wall", "bar", "CPU", "bar", "source / once", "bar", "read back / image", "bar", "kept"]
    rows = []
    for case in cases:
        if case.problem:
            rows.append([case.name, case.tree, "void", *["-"] * 9])
        for one in verdicts(case):
            cells = [number(one[of][name]) for name in one["quotients"] for of in ("quotients", "bars")]
            rows.append([case.name, case.tree, f"{one['kiln']} / {one['peer']}", *cells, {None: "-", True: "yes", False: "NO"}[one["kept"]]])
    return lib.markdown_table(head, rows)


def number(value: Optional[float]) -> str:
    """A quotient or a bar."""
    return "-" if value is None else f"{value:.3f}"


def document(case: Case) -> Dict[str, Any]:
    """For the JSON file."""
    contestants = [
        {
            "label": one.label,
            "steps": [[list(map(str, command)) for command in step.commands] for step in one.steps],
            "median": medians(one),
            "runs": [asdict(reading) for reading in one.readings],
        }
        for one in case.contestants
    ]
    about = {"name": case.name, "tree": case.tree, "problem": case.problem, "once_bytes": case.once_bytes}
    return {**about, "contestants": contestants, "verdicts": verdicts(case)}


@contextmanager
def scene(found: Dict[str, packers.Packer], arguments: argparse.Namespace, put: Callable[[Path, ExitStack], Disk]) -> Iterator[Scene]:
    """Disks of the cases of one tree, which `put` makes in a directory, and their temporary files on the output's disk."""
    with lib.scratch(arguments.tmp) as folder, lib.scratch(arguments.memory_dir) as memory, ExitStack() as stack:
        stack.callback(disks.sweep, folder)
        source = put(folder, stack)
        size = sum(os.path.getsize(path) for path in lib.walk_files(source.root))
        if os.geteuid() == 0:
            output = stack.enter_context(disks.output_disk(int(ROOM * size), folder))
        else:
            output = Disk(folder / "output")
            output.root.mkdir()
        os.environ["TMPDIR"] = str(output.root)
        stack.callback(os.environ.pop, "TMPDIR")
        yield Scene(found, folder, memory, arguments.threads, source, output, stack)


def given_tree(corpus: Path) -> Callable[[Path, ExitStack], Disk]:
    """A tree of the command line, on a disk of its own if that can be."""
    def put(folder: Path, stack: ExitStack) -> Disk:
        return stack.enter_context(disks.source_disk(corpus, folder)) if os.geteuid() == 0 else Disk(corpus)
    return put


def slow_tree(program: Path) -> Callable[[Path, ExitStack], Disk]:
    """Small files on a slow disk."""
    def put(folder: Path, stack: ExitStack) -> Disk:
        once_cases.make_small(folder / "small")
        return stack.enter_context(disks.slow_disk(folder / "small", folder, program, once_cases.DELAY_US))
    return put


def unique_tree(folder: Path, _: ExitStack) -> Disk:
    """Text without equal parts."""
    once_cases.make_unique(folder / "unique")
    return Disk(folder / "unique")


Work = Tuple[str, Callable[[], ContextManager[Scene]], Dict[str, Spec]]


def all_work(found: Dict[str, packers.Packer], arguments: argparse.Namespace) -> List[Work]:
    """Name of each tree, its disks, and its cases: those of --only that can be run here."""
    def chosen(specs: Dict[str, Spec]) -> Dict[str, Spec]:
        wanted = {name: spec for name, spec in specs.items() if is_wanted(name, arguments.only)}
        reasons = {name: obstacle(name, spec, found, arguments) for name, spec in wanted.items()}
        for name, reason in reasons.items():
            if reason:
                lib.say(f"SKIP: {name}: {reason}")
        return {name: spec for name, spec in wanted.items() if not reasons[name]}

    of_trees, own = chosen(once_cases.OF_TREES), chosen(once_cases.OF_OWN_TREES)
    listed = [(corpus.name, given_tree(corpus.resolve()), of_trees) for corpus in arguments.corpus]
    puts = {once_cases.SLOW_DISK: ("small files", slow_tree(arguments.slow_file)), once_cases.PARTS: ("unique text", unique_tree)}
    listed += [(*puts[name], {name: spec}) for name, spec in own.items()]
    return [(tree, lambda put=put: scene(found, arguments, put), specs) for tree, put, specs in listed if specs]


def is_wanted(name: str, words: Optional[List[str]]) -> bool:
    """True if one of the words is in the name of a case."""
    return not words or any(word in name for word in words)


def obstacle(name: str, spec: Spec, found: Dict[str, packers.Packer], arguments: argparse.Namespace) -> Optional[str]:
    """Return the reason why a case cannot be run here."""
    missing = [peer for peer in spec.peers if peer not in found]
    if missing:
        return f"without {', '.join(missing)}"
    if spec.needs_root and os.geteuid() != 0:
        return "needs root"
    if name == once_cases.SLOW_DISK and not arguments.slow_file.exists():
        return f"no {arguments.slow_file}: cargo build --release -p kiln-mount --example slow_file, or --slow-file"
    return None


def run_all(works: List[Work], arguments: argparse.Namespace) -> Tuple[List[Case], List[str]]:
    """All cases, and the problems of those that could not be prepared."""
    cases: List[Case] = []
    problems: List[str] = []
    for tree, make_scene, specs in works:
        try:
            with make_scene() as at:
                for name, spec in specs.items():
                    try:
                        case = spec.make(at)
                    except (OSError, subprocess.CalledProcessError) as error:
                        problems.append(f"{name}, {tree}: {error}")
                        continue
                    if not case.bars:
                        lib.say(f"SKIP: {name}: none of its peers is here")
                        continue
                    case.tree = tree
                    cases.append(case)
                    run_case(case, at.kiln, arguments.runs)
        except (OSError, subprocess.CalledProcessError) as error:
            problems.append(f"{tree}: {error}")
    return cases, problems + [f"{case.name}, {case.tree}: {case.problem}" for case in cases if case.problem]


def end_at_signals() -> None:
    """Let the first Ctrl-C or SIGTERM unwind everything, and no second one disturb that."""
    def stop(number: int, _: object) -> None:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, stop)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="*", help="trees to pack; the slow disk and the parts have trees of their own")
    parser.add_argument("--runs", type=lib.positive, default=5, help="rounds (default 5)")
    parser.add_argument("--only", action="append", metavar="WORDS", help="cases with these words in their names; can be repeated")
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    parser.add_argument("--slow-file", type=Path, default=hotlists.SLOW_FILE, metavar="FILE", help="the example slow_file of kiln-mount")
    parser.add_argument("--threads", type=lib.positive, default=lib.cpu_count(), help="for all programs (default: all)")
    parser.add_argument("--tmp", type=Path, help="directory for disks and archives, on a disk (default: here)")
    parser.add_argument("--memory-dir", type=Path, default=Path("/dev/shm"), help="a tmpfs for trees (default /dev/shm)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if a program failed or an image was wrong, 2 if there was nothing to do. A bar that is not kept is a result."""
    arguments = parse_arguments()
    if arguments.list:
        print(*once_cases.OF_TREES, *once_cases.OF_OWN_TREES, sep="\n")
        return 0
    found = packers.find_packers(PROGRAMS)
    missing = packers.missing_packers(found, PROGRAMS)
    for sentence in missing:
        lib.say(sentence)
    absent = [str(corpus) for corpus in arguments.corpus if not corpus.is_dir()]
    works = all_work(found, arguments) if "kiln" in found and not absent else []
    if not works:
        lib.say(f"nothing to do: {', '.join(absent) + ' cannot be read' if absent else 'no case with its tree and its programs'}")
        return 2
    end_at_signals()
    tempfile.gettempdir()  # ours stay where they are, away from the disks
    facts = {**lib.machine_facts(), "threads": arguments.threads, "missing": missing}
    facts["programs"] = {name: packer.version for name, packer in found.items()}
    cases, problems = run_all(works, arguments)
    facts["load_average_after"] = os.getloadavg()[0]
    about = f"Medians of {arguments.runs} interleaved runs, {arguments.threads} threads, "
    about += f"load {facts['load_average_before']:.1f} to {facts['load_average_after']:.1f}. "
    about += f"{facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}. {'; '.join(facts['programs'].values())}."
    print(about, results_table(cases), "Quotients of medians, and the bars that they are to keep.", bars_table(cases), sep="\n\n")
    for problem in problems:
        print(f"\nFailed: {problem}")
    listed = [document(case) for case in cases]
    lib.write_json(arguments.out, {"schema": 1, "kind": "once", "facts": facts, "problems": problems, "cases": listed})
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
