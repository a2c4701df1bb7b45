#!/usr/bin/env python3
"""Samples of a dataset read from Python: kilnfs and its peers, in interleaved rounds, each measurement in a process of
its own.

Makes virtual environments with the peers, generates the sets, builds the containers and compares every byte of each
with its source before anything is timed. Prints Markdown; `--out` keeps every run. `bars.py` and `plot.py` read that
file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

import environment  # noqa: E402
import lib  # noqa: E402
import tables  # noqa: E402
from cases import (  # noqa: E402
    BATCH,
    CASES,
    CI_CASES,
    FLAT_OBJECT,
    FLOOR,
    IMAGE,
    SLOW,
    SPECIAL,
    STORED_BY_URL,
    STORED_MANY,
    STORED_VIEWS,
    ZSTD_MANY,
    Case,
    Special,
)
from contestants import CONTESTANTS  # noqa: E402
from sets import FORMS  # noqa: E402

TIMEOUT_S = 3600
FORM_NAMES = ("full", "quick", "ci")
# Of the form `ci` all contestants are prepared and verified, and these are measured, so that all code has run.
CI_LABELS = (STORED_MANY, STORED_VIEWS, STORED_BY_URL, ZSTD_MANY, FLOOR, FLAT_OBJECT)


@dataclass
class Row:
    """A contestant in a case, and its runs."""

    label: str
    workers: int | None = None
    reason: str | None = None  # why there are no numbers
    runs: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For the JSON file."""
        named = {"label": self.label} if self.workers is None else {"label": self.label, "workers": self.workers}
        return {**named, "reason": self.reason, "median": medians(self.runs), "runs": self.runs}


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of all numbers, nested ones, too; each number for itself."""
    found: dict[str, Any] = {}
    for name in runs[0] if runs else ():
        values = [run[name] for run in runs if run.get(name) is not None]
        if values and all(isinstance(value, dict) for value in values):
            found[name] = medians(values)
        elif values:
            found[name] = lib.median(values)
    return found


class Bench:
    """The state of one run: sets and contestants that are ready, and those that are not, with reasons."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.sets: dict[str, dict[str, Any]] = {}
        self.prepared: dict[tuple[str, str], dict[str, Any]] = {}
        self.problems: list[str] = []

    def set(self, name: str) -> dict[str, Any]:
        """The set in the form that was asked for: what it is, and its directory."""
        if name not in self.sets:
            files = self.arguments.files or FORMS[name][FORM_NAMES.index(self.arguments.sets)]
            lib.say(f"set {name}: {files} files")
            command = [str(environment.interpreter(environment.PEERS)), str(HERE / "sets.py"), name, str(files)]
            about = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            self.sets[name] = {**about, "directory": str(environment.home() / "sets" / f"{name}-{files}")}
        return self.sets[name]

    def place(self, set_name: str, label: str) -> Path:
        """Return the path of a contestant's container."""
        return environment.home() / "built" / f"{set_name}-{self.set(set_name)['files']}" / CONTESTANTS[label].container

    def measure(self, kind: str, set_name: str, label: str, container: str = "", **fields: Any) -> dict[str, Any]:
        """One process of `worker.py`; `container` is the contestant whose container is read, if it is not `label`."""
        known = CONTESTANTS[container or label]
        place = self.place(set_name, container or label)
        spec = {
            "kind": kind,
            "label": label,
            "tree": self.set(set_name)["directory"],
            "place": str(place),
            "batch": BATCH[set_name],
            **fields,
        }
        command = [str(environment.interpreter(known.environment)), str(HERE / "worker.py")]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(spec),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            return {"missing": f"no environment {known.environment}: run environment.py"}
        except subprocess.TimeoutExpired:
            return {"failed": f"longer than {TIMEOUT_S} s"}
        if done.returncode != 0 or not done.stdout:
            return {"failed": f"exit code {done.returncode}: {done.stderr.strip()[-500:]}"}
        answer: dict[str, Any] = json.loads(done.stdout)
        if "failed" in answer:
            lib.say(done.stderr.strip()[-2000:])
        return answer

    def prepare(self, set_name: str, label: str) -> str | None:
        """Build and verify, once. Returns the reason if the contestant cannot take part."""
        key = (set_name, label)
        if key not in self.prepared:
            self.prepared[key] = answer = self.measure("prepare", set_name, label)
            lib.say(f"  {label}: {tables.prepared(answer)}")
            needed = answer.get("missing") if self.arguments.need.search(label) else None
            if problem := answer.get("failed") or answer.get("wrong") or needed:
                self.problems.append(f"{label}, set {set_name}: {problem}")
        answer = self.prepared[key]
        wrong = answer.get("wrong")
        return answer.get("missing") or answer.get("failed") or (f"void: {wrong}" if wrong else None)

    def prepare_all(self, set_name: str) -> None:
        """Prepare all contestants that were asked for, several at a time: nothing is timed. Those of one container
        follow each other."""
        self.set(set_name)
        groups: dict[str, list[str]] = {}
        for label, contestant in CONTESTANTS.items():
            if self.arguments.only.search(label) and set_name in contestant.only_sets:
                groups.setdefault(contestant.container, []).append(label)
        with ThreadPoolExecutor(lib.cpu_count()) as pool:
            list(pool.map(lambda labels: [self.prepare(set_name, label) for label in labels], groups.values()))

    def drop(self, set_name: str) -> None:
        """Delete all containers of a set."""
        shutil.rmtree(self.place(set_name, IMAGE).parent, ignore_errors=True)


def run_case(bench: Bench, case: Case, labels: list[str]) -> dict[str, Any]:
    """All rounds of a case."""
    lib.say(case.name)
    fields: dict[str, Any] = {
        "order": case.order,
        "state": case.state,
        "consumer": case.consumer,
        "threads": case.threads,
        "start": case.start,
    }
    fields |= {"delay_s": case.delay_s, "most_samples": case.most_samples, "sampler": dict(case.sampler)}
    counts: Sequence[int | None] = (case.workers[::2] if bench.arguments.sets == "ci" else case.workers) or (None,)
    rows = [Row(label, workers, bench.prepare(case.set, label)) for label in labels for workers in counts]
    for number in range(bench.arguments.rounds):
        for row in lib.rotated(rows, number):
            if row.reason is None:
                more = {} if row.workers is None else {"workers": row.workers}
                add(
                    bench,
                    case.name,
                    row,
                    bench.measure("load" if case.workers else "read", case.set, row.label, **fields, **more),
                )
    return {"name": case.name, "set": case.set, **fields, "batch": case.batch, "rows": [row.document() for row in rows]}


def run_special(bench: Bench, case: Special) -> dict[str, Any]:
    """All rounds of a case of `special.py`; the image is that of a contestant."""
    lib.say(case.name)
    bench.prepare(case.set, IMAGE)
    rows = [Row(label) for label in case.labels]
    for number in range(bench.arguments.rounds):
        for row in lib.rotated(rows, number):
            if row.reason is None:
                add(bench, case.name, row, bench.measure(case.kind, case.set, row.label, IMAGE, start=case.start))
    return {
        "name": case.name,
        "set": case.set,
        "kind": case.kind,
        "start": case.start,
        "rows": [row.document() for row in rows],
    }


def add(bench: Bench, case: str, row: Row, answer: dict[str, Any]) -> None:
    """Take a run, or the reason why it is none: a contestant that failed once has no numbers."""
    row.reason = answer.get("missing") or answer.get("failed")
    if "failed" in answer or "missing" in answer and bench.arguments.need.search(row.label):
        bench.problems.append(f"{case}: {row.label}: {row.reason}")
    if row.reason:
        row.runs.clear()
    else:
        row.runs.append(answer)
    lib.say(f"  {row.label}{'' if row.workers is None else f', {row.workers} workers'}: {tables.progress(answer)}")


def chosen_labels(arguments: argparse.Namespace, case: Case) -> list[str]:
    """Contestants of a case. Raises KeyError if a case names one that is not there."""
    unknown = [label for label in case.labels if label not in CONTESTANTS]
    if unknown:
        raise KeyError(f"{case.name}: no contestant {unknown[0]}")
    labels = [label for label in case.labels or CONTESTANTS if case.set in CONTESTANTS[label].only_sets]
    labels = [label for label in labels if case.state == SLOW or not CONTESTANTS[label].only_slow]
    if arguments.sets == "ci":
        labels = [label for label in labels if label in CI_LABELS]
    return [label for label in labels if arguments.only.search(label)]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=lib.positive, help="default 5; 3 with --quick, 1 with --sets ci")
    parser.add_argument("--quick", action="store_true", help="smaller sets and fewer rounds")
    parser.add_argument(
        "--sets", choices=FORM_NAMES, help=f"number of files {FORMS}; default full, or quick with --quick"
    )
    parser.add_argument("--files", type=lib.positive, help="this number of files instead, for all sets")
    parser.add_argument("--case", type=re.compile, default=re.compile(""), metavar="REGEX", help="cases to run")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="contestants to run")
    parser.add_argument(
        "--need",
        type=re.compile,
        default=re.compile(r"(?!)"),
        metavar="REGEX",
        help="contestants that must run: one that cannot is a failure, and no row with a reason",
    )
    parser.add_argument("--list", action="store_true", help="name cases and contestants, and do nothing")
    parser.add_argument("--drop", action="store_true", help="delete the containers of a set after its last case")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    arguments.sets = arguments.sets or ("quick" if arguments.quick else "full")
    arguments.rounds = arguments.rounds or {"full": 5, "quick": 3, "ci": 1}[arguments.sets]
    return arguments


def main() -> int:
    """Exit code 1 if a contestant failed, gave wrong bytes, or was needed and cannot run. One that is not
    installed is a row with its reason otherwise.
    """
    arguments = parse_arguments()
    chosen = [case for case in CASES if arguments.case.search(case.name)]
    if arguments.sets == "ci":
        chosen = [case for case in chosen if case.name in CI_CASES]
    cases = sorted(chosen, key=lambda case: case.set)  # set by set: containers are large
    special = [case for case in SPECIAL if arguments.case.search(case.name)]
    if arguments.list:
        print(*(case.name for case in CASES), *(case.name for case in SPECIAL), "", *CONTESTANTS, sep="\n")
        return 0
    environment.ensure()
    bench = Bench(arguments)
    facts = {**lib.machine_facts(), "root": os.geteuid() == 0, "environment": environment.facts()}
    if arguments.sets == "ci":
        for name in sorted({case.set for case in cases if not case.labels}):
            bench.prepare_all(name)
    results = []
    for case in cases:
        results.append(run_case(bench, case, chosen_labels(arguments, case)))
        still = {other.set for other in cases[len(results) :]} | {other.set for other in special}
        if arguments.drop and case.set not in still:
            bench.drop(case.set)
    found = [run_special(bench, case) for case in special]
    if arguments.drop and special:
        bench.drop(special[-1].set)
    facts["load_average_after"] = os.getloadavg()[0]
    contestants = [{"set": name, "label": label, **answer} for (name, label), answer in bench.prepared.items()]
    document = {
        "schema": 1,
        "kind": "python",
        "facts": facts,
        "rounds": arguments.rounds,
        "form": arguments.sets,
        "problems": bench.problems,
    }
    document |= {"sets": bench.sets, "contestants": contestants, "cases": results, "special": found}
    print(tables.report(document))
    lib.write_json(arguments.out, document)
    for problem in bench.problems:
        lib.say(f"PROBLEM: {problem}")
    return int(bool(bench.problems))


if __name__ == "__main__":
    sys.exit(main())
