#!/usr/bin/env python3
"""Archives and images of other formats, to EROFS and back, with kiln and its peers: time, CPU, memory, size.

The programs take turns within each round, and medians over the rounds are compared. After its first run each contestant's output is
read by something else (the kernel, unsquashfs, Python), and a case in which a tree differs from its source is void. `source_cases.py` has
the cases and the bars. Needs root, as it mounts images.
"""
from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Optional

import lib
import packers
import source_cases
import trees
from source_cases import Case, Contestant, Workshop

PROGRAMS = ("kiln", *packers.PEERS)
# Names of the numbers that have bars.
NUMBERS = {"cpu": "cpu_s", "wall": "wall_s", "image": "image_bytes", "memory": "peak_rss_bytes"}


def run_case(case: Case, rounds: int) -> None:
    """All rounds of a case, or those until its outputs are found to be wrong."""
    lib.say(case.name)
    for number in range(rounds):
        for one in lib.rotated(case.contestants, number):
            run_once(one, case)
        case.problem = problem_of(case)
        if case.problem:
            lib.say(f"  void: {case.problem}")
            return


def run_once(one: Contestant, case: Case) -> None:
    """One more run of a contestant; its first output is read."""
    one.output.unlink(missing_ok=True)
    steps = one.steps()
    with one.around():
        run = lib.measure_steps(steps, one.output)
        one.runs.append(run)
        lib.say(f"  {one.label}: exit {run.exit_code}, {run.wall_s:.2f} s wall, {run.cpu_s:.2f} s CPU, {lib.mb(run.image_bytes)} MB")
        if not run.ok:
            lib.say(f"  {one.label} said: {run.stderr_tail}")
        elif len(one.runs) == 1:
            look_at(one, case)
    one.output.unlink(missing_ok=True)


def look_at(one: Contestant, case: Case) -> None:
    """Read the output of a contestant, in another process: trees take memory."""
    expected = case.expected
    try:
        if expected is None:
            one.digest = lib.apart(one.holds)
        else:
            one.wrong = lib.apart(lambda: trees.difference(one.holds(), expected()))
    except RuntimeError as error:
        one.wrong = f"it cannot be read: {error}"


def problem_of(case: Case) -> Optional[str]:
    """Return the reason why the numbers of a case are invalid, if they are."""
    failed = [one.label for one in case.contestants if any(not run.ok for run in one.runs)]
    if failed:
        return f"{', '.join(failed)} failed"
    for one in case.contestants:
        if one.wrong is not None or one.digest != case.contestants[0].digest:
            return f"{one.label} is not what it was made of: {one.wrong or 'other bytes'}"
    return None


def verdicts(case: Case) -> List[Dict[str, Any]]:
    """Each bar of a case with the quotient beside it, medians, and whether it is kept."""
    medians = {one.label: lib.median_run(one.runs) for one in case.contestants}
    first = case.contestants[0].label
    found = []
    for bar in case.bars:
        for name, key in NUMBERS.items():
            ours, peer, most = medians[first].get(key), medians[bar.peer].get(key), getattr(bar, name)
            if ours is not None and peer:
                kept = None if most is None else ours / peer <= most
                found.append({"peer": bar.peer, "of": name, "ours": ours, "theirs": peer, "quotient": ours / peer, "bar": most, "kept": kept})
    if case.wall_s is not None and "wall_s" in medians[first]:
        wall_s = medians[first]["wall_s"]
        kept = wall_s <= case.wall_s
        found.append({"peer": None, "of": "wall", "ours": wall_s, "theirs": None, "quotient": None, "bar": case.wall_s, "kept": kept})
    return found


def table(cases: List[Case]) -> str:
    """A line for each number that both have, and the bar beside it."""
    head = ["case", "ours / the peer's", "of", "ours", "theirs", "quotient", "bar", "kept"]
    rows = []
    for case in cases:
        if case.problem:
            rows.append([case.name, case.problem, *["-"] * 5, "void"])
            continue
        for one in verdicts(case):
            what = f"{case.contestants[0].label} / {one['peer'] or 'seconds'}"
            kept = {None: "-", True: "yes", False: "NO"}[one["kept"]]
            numbers = [shown(one["of"], one[key]) for key in ("ours", "theirs")]
            rows.append([case.name, what, one["of"], *numbers, number(one["quotient"]), number(one["bar"]), kept])
    return lib.markdown_table(head, rows)


def shown(of: str, value: Optional[float]) -> str:
    """A number with its unit."""
    if value is None:
        return "-"
    return {"image": f"{value / 1e6:.2f} MB", "memory": f"{value / lib.MIB:.0f} MiB"}.get(of, f"{value:.2f} s")


def number(value: Optional[float]) -> str:
    """A quotient or a bar."""
    return "-" if value is None else f"{value:.3f}"


def document(case: Case) -> Dict[str, Any]:
    """For the JSON file."""
    contestants = [
        {
            "label": one.label,
            "steps": [[list(map(str, command)) for command in step.commands] for step in one.steps()],
            "median": lib.median_run(one.runs),
            "runs": [asdict(run) for run in one.runs],
        }
        for one in case.contestants
    ]
    return {"name": case.name, "problem": case.problem, "contestants": contestants, "verdicts": [] if case.problem else verdicts(case)}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree that archives and images are made of")
    parser.add_argument("--runs", type=lib.positive, default=3, help="rounds (default 3)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="cases to run")
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    parser.add_argument("--members", type=lib.positive, default=source_cases.MANY, help="of the archive of many (default a million)")
    parser.add_argument("--threads", type=int, default=lib.cpu_count(), help="for all programs (default: all)")
    parser.add_argument("--tmp", type=Path, help="directory for archives and images, on a disk (default: here)")
    parser.add_argument("--memory-dir", type=Path, default=Path("/dev/shm"), help="a tmpfs for trees (default /dev/shm)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 if a program failed or a tree was wrong, 2 if there was nothing to do. A bar that is not kept is a result."""
    arguments = parse_arguments()
    chosen = {name: made for name, made in source_cases.cases(arguments.members).items() if arguments.only.search(name)}
    if arguments.list:
        print(*chosen, sep="\n")
        return 0
    found = packers.find_packers(PROGRAMS)
    missing = packers.missing_packers(found, PROGRAMS)
    for sentence in missing:
        lib.say(sentence)
    if "kiln" not in found or not chosen or not arguments.corpus.is_dir() or os.geteuid() != 0:
        lib.say(f"nothing to do: {len(found)} programs, {len(chosen)} cases, {arguments.corpus}; images are mounted by root only")
        return 2
    facts = {**lib.machine_facts(), "threads": arguments.threads, "missing": missing}
    facts["programs"] = {name: packer.version for name, packer in found.items()}
    cases: List[Case] = []
    with lib.scratch(arguments.tmp) as disk, lib.scratch(arguments.memory_dir) as memory:
        corpus = lib.warm(arguments.corpus.resolve())
        shop = Workshop(found, Path(corpus.path), disk, memory, arguments.threads)
        for name, (make, peers) in chosen.items():
            if any(peer not in found for peer in peers):
                lib.say(f"SKIP: {name}: without {', '.join(peer for peer in peers if peer not in found)}")
                continue
            for case in make(shop):
                cases.append(case)
                run_case(case, arguments.runs)
        facts["load_average_after"] = os.getloadavg()[0]
        listed = [document(case) for case in cases]
    load = f"load {facts['load_average_before']:.1f} to {facts['load_average_after']:.1f}"
    about = f"{corpus.path}: {corpus.files} files, {corpus.directories} directories, {lib.mb(corpus.bytes)} MB. "
    about += f"Medians of {arguments.runs} interleaved runs, {arguments.threads} threads, page cache warm, {load}. "
    about += f"{facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}. {'; '.join(facts['programs'].values())}."
    print(about, table(cases), sep="\n\n")
    lib.write_json(arguments.out, {"schema": 1, "kind": "sources", "facts": facts, "corpus": asdict(corpus), "cases": listed})
    return int(any(case.problem for case in cases))


if __name__ == "__main__":
    sys.exit(main())
