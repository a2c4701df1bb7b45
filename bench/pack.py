#!/usr/bin/env python3
"""Pack one tree with kiln and its peers at equal settings: time, CPU, memory, size. README.md explains the rules.

The programs take turns within each round, and medians over the rounds are compared. `bars.py` has the cases, and what kiln is to
keep in each.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Optional

import bars
import derived
import lib
import packers
from bars import Bar, Spec
from packers import Packer, Setting

SCHEMA = 3

# Column of the table of ratios, and the number in it.
RATIOS = {
    "wall": "wall_s",
    "to disk": "durable_s",
    "CPU": "cpu_s",
    "peak RSS": "peak_rss_bytes",
    "image": "image_bytes",
}


@dataclass
class Contestant:
    """One program with one set of options, and its runs so far."""

    label: str
    command: List[str]
    image: Path
    runs: List[lib.Run] = field(default_factory=list)

    def run(self) -> None:
        """One more run; its image is removed."""
        self.image.unlink(missing_ok=True)
        run = lib.measure(self.command, self.image)
        self.image.unlink(missing_ok=True)
        self.runs.append(run)
        lib.say(f"  {self.label}: exit {run.exit_code}, {run.wall_s:.2f} s wall, {lib.mb(run.image_bytes)} MB")
        if not run.ok:
            lib.say(f"  {self.label} said: {run.stderr_tail}")

    def failed(self) -> bool:
        """True if any run failed."""
        return any(not run.ok for run in self.runs)

    def document(self) -> Dict[str, Any]:
        """For the JSON file."""
        runs = [asdict(run) for run in self.runs]
        return {"label": self.label, "command": self.command, "median": lib.median_run(self.runs), "runs": runs}


@dataclass
class Case:
    """One setting, all contestants."""

    name: str
    setting: Setting
    bars: List[Bar]
    corpus: lib.Corpus
    contestants: List[Contestant]
    problem: Optional[str] = None

    def ratios(self) -> List[Dict[str, Any]]:
        """Ours divided by the peer's, medians, for every pair that ran."""
        medians = {c.label: lib.median_run(c.runs) for c in self.contestants if not c.failed()}
        return [
            {"kiln": bar.ours, "peer": bar.peer, "same_work": bar.same_work, **divide(medians[bar.ours], medians[bar.peer])}
            for bar in self.bars
            if medians.get(bar.ours) and medians.get(bar.peer)
        ]


def divide(ours: Dict[str, Any], peer: Dict[str, Any]) -> Dict[str, float]:
    """Ratio of each number that both have; below 1 is good for us."""
    ours, peer = ({**m, "durable_s": m["wall_s"] + m["fsync_s"]} for m in (ours, peer))
    return {name: ours[name] / peer[name] for name in RATIOS.values() if ours[name] is not None and peer[name]}


def contestants(found: Dict[str, Packer], spec: Spec, corpus: Path, folder: Path, threads: int) -> List[Contestant]:
    """Return the contestants of a case that are installed."""
    image, setting = folder / "image", spec.setting
    kiln, mkfs, mksquashfs = (found.get(name) for name in ("kiln", "mkfs.erofs", "mksquashfs"))
    commands: Dict[str, List[str]] = {}
    for label in spec.labels():
        if label in bars.KILN_OPTIONS and kiln:
            options = bars.KILN_OPTIONS[label]
            commands[label] = packers.kiln_command(kiln, setting, corpus, image, threads, options)
        elif label in bars.MKFS_OPTIONS and mkfs:
            extended = bars.MKFS_OPTIONS[label]
            commands[label] = packers.mkfs_erofs_command(mkfs, setting, corpus, image, threads, extended)
        elif label == bars.SQUASHFS and mksquashfs:
            commands[label] = packers.mksquashfs_command(mksquashfs, setting, corpus, image, threads)
    return [Contestant(label, command, image) for label, command in commands.items()]


def verify(kiln: Packer, case: Case) -> Optional[str]:
    """Build each of kiln's images once and let `kiln check` read it all, untimed. What is wrong, or None."""
    for ours in (one for one in case.contestants if one.label in bars.KILN_OPTIONS):
        try:
            for command in (ours.command, [str(kiln.path), "check", str(ours.image)]):
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
                if done.returncode != 0:
                    said = (done.stderr + done.stdout).strip()[-2000:]
                    return f"`{' '.join(command)}`: exit {done.returncode}: {said}"
        finally:
            ours.image.unlink(missing_ok=True)
    return None


def run_case(case: Case, kiln: Optional[Packer], runs: int) -> None:
    """All rounds of a case, unless its image is wrong."""
    lib.say(f"{case.name}, {lib.unit_name(case.setting.unit)}")
    if kiln is not None:
        case.problem = verify(kiln, case)
        if case.problem is not None:
            lib.say(f"  not timed: {case.problem}")
            return
    for number in range(runs):
        for contestant in lib.rotated(case.contestants, number):
            contestant.run()


def results_table(cases: List[Case]) -> str:
    """The medians."""
    head = ["case", "tree", "unit", "program", "wall s", "to disk s", "CPU s", "MB/s", "peak RSS MiB", "image MB", "% of input"]
    rows = [
        [case.name, Path(case.corpus.path).name, unit_of(case), *result_row(one, case.corpus)]
        for case in cases
        for one in case.contestants
        if one.runs
    ]
    return lib.markdown_table(head, rows)


def unit_of(case: Case) -> str:
    """The unit, if there is one."""
    return lib.unit_name(case.setting.unit) if case.setting.algorithm else "-"


def result_row(contestant: Contestant, corpus: lib.Corpus) -> List[str]:
    """One contestant's medians; the exit codes if it failed."""
    if contestant.failed():
        codes = ", ".join(str(run.exit_code) for run in contestant.runs)
        return [contestant.label, f"exit {codes}", *["-"] * 6]
    m = lib.median_run(contestant.runs)
    return [
        contestant.label,
        f"{m['wall_s']:.2f}",
        f"{m['wall_s'] + m['fsync_s']:.2f}",
        f"{m['cpu_s']:.2f}",
        f"{corpus.bytes / 1e6 / m['wall_s']:.1f}",
        lib.mib(m["peak_rss_bytes"]),
        lib.mb(m["image_bytes"]),
        f"{100 * m['image_bytes'] / max(1, corpus.bytes):.2f}",
    ]


def ratios_table(cases: List[Case]) -> str:
    """kiln divided by each peer."""
    head = ["case", "kiln / peer", "same work", *RATIOS]
    rows = [
        [case.name, f"{ratio['kiln']} / {ratio['peer']}", "yes" if ratio["same_work"] else "no"]
        + [f"{ratio[name]:.3f}" if name in ratio else "-" for name in RATIOS.values()]
        for case in cases
        for ratio in case.ratios()
    ]
    return lib.markdown_table(head, rows)


def bars_table(cases: List[Case]) -> str:
    """Every bar, the figure beside it, and whether it is kept."""
    head = ["case", "tree", "kiln / peer", "CPU", "bar", "wall", "bar", "image", "bar", "kept"]
    rows = [
        [case.name, Path(case.corpus.path).name, f"{bar.ours} / {bar.peer}", *bar_cells(bar, ratio)]
        for case in cases
        for bar in case.bars
        for ratio in case.ratios()
        if (ratio["kiln"], ratio["peer"]) == (bar.ours, bar.peer)
    ]
    return lib.markdown_table(head, [*rows, *memory_row(cases)])


def bar_cells(bar: Bar, ratio: Dict[str, Any]) -> List[str]:
    """Figures and bars of one pair, and the verdict: `-` where there is no bar."""
    pairs = [(ratio.get("cpu_s"), bar.cpu), (ratio.get("wall_s"), bar.wall), (ratio.get("image_bytes"), bar.image)]
    cells = [cell for figure, most in pairs for cell in (number(figure), number(most))]
    kept = [figure <= most for figure, most in pairs if figure is not None and most is not None]
    return [*cells, ("yes" if all(kept) else "NO") if kept else "-"]


def number(value: Optional[float]) -> str:
    """A quotient."""
    return "-" if value is None else f"{value:.3f}"


def memory_row(cases: List[Case]) -> List[List[str]]:
    """Return the peak memory of kiln over all cases."""
    ours = [one for case in cases for one in case.contestants if one.label in bars.KILN_OPTIONS]
    peaks = [run.peak_rss_bytes for one in ours for run in one.runs if run.peak_rss_bytes is not None]
    if not peaks:
        return []
    kept = "yes" if max(peaks) <= bars.MEMORY_BAR else "NO"
    figure = f"{lib.mb(max(peaks))} MB of {lib.mb(bars.MEMORY_BAR)} MB"
    return [["memory", "all", figure, *["-"] * 6, kept]]


def report(cases: List[Case], facts: Dict[str, Any], arguments: argparse.Namespace) -> str:
    """Return the text for stdout."""
    trees = {case.corpus.path: case.corpus for case in cases}.values()
    about = [f"{c.path}: {c.files} files, {c.directories} directories, {lib.mb(c.bytes)} MB." for c in trees]
    about += [
        f"Medians of {arguments.runs} interleaved runs, {facts['threads']} threads, page cache warm. "
        f"{facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}. {'; '.join(facts['programs'].values())}."
    ]
    parts = [" ".join(about), results_table(cases)]
    if arguments.table:
        parts += ["Ratios of medians, and the bars that they are to keep.", bars_table(cases)]
    elif any(case.ratios() for case in cases):
        parts += ["Ratios of medians; below 1 is better for kiln.", ratios_table(cases)]
    parts += [f"Not timed: {case.name}: {case.problem}" for case in cases if case.problem]
    return "\n\n".join(parts)


def document(cases: List[Case], facts: Dict[str, Any]) -> Dict[str, Any]:
    """The JSON file."""
    listed = [
        {
            "name": case.name,
            "setting": asdict(case.setting),
            "bars": [asdict(bar) for bar in case.bars],
            "corpus": asdict(case.corpus),
            "problem": case.problem,
            "contestants": [one.document() for one in case.contestants],
            "ratios": case.ratios(),
        }
        for case in cases
    ]
    return {"schema": SCHEMA, "kind": "pack", "facts": facts, "cases": listed}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree to pack")
    parser.add_argument("--runs", type=lib.positive, default=5, help="rounds (default 5)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="cases to run")
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    parser.add_argument("--table", action="store_true", help="print the bars beside the figures")
    parser.add_argument("--source-tree", action="store_true", help="the bars for trees of small files")
    parser.add_argument("--slow-tree", type=Path, metavar="DIR", help="a smaller tree for slow codecs (default: the same)")
    parser.add_argument("--unit", type=lib.parse_size, metavar="SIZE", help="one unit for all cases, without bars: 64K, 1M")
    parser.add_argument("--threads", type=int, default=lib.cpu_count(), help="for all programs (default: all)")
    parser.add_argument("--tmp", type=Path, help="directory for images, best on the corpus's disk (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def chosen_cases(arguments: argparse.Namespace) -> Dict[str, Spec]:
    """The cases that --only keeps, with --unit and --source-tree applied."""
    chosen = {name: spec for name, spec in bars.CASES.items() if arguments.only.search(name)}
    return {name: adapted(spec, arguments) for name, spec in chosen.items()}


def adapted(spec: Spec, arguments: argparse.Namespace) -> Spec:
    """A case as the arguments want it."""
    kept = [bar.on_source_tree() for bar in spec.bars] if arguments.source_tree else spec.bars
    if arguments.unit is None:
        return replace(spec, bars=kept)
    without = [replace(bar, cpu=None, wall=None, image=None) for bar in kept]
    return replace(spec, setting=replace(spec.setting, unit=arguments.unit), bars=without)


class Trees:
    """The trees that cases read, each found or made once, and warm."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.main = arguments.corpus.resolve()
        self.slow = (arguments.slow_tree or arguments.corpus).resolve()
        self.folder = folder
        self.known: Dict[Path, lib.Corpus] = {}

    def of(self, spec: Spec) -> lib.Corpus:
        """The tree of a case."""
        source = self.slow if spec.slow else self.main
        if spec.source != bars.CORPUS:
            source = derived.make(spec.source, source, self.folder)
        if source not in self.known:
            lib.say(f"reading {source}")
            self.known[source] = lib.warm(source)
        return self.known[source]


def main() -> int:
    """Exit code 1 if an image was wrong or a program failed, 2 if there was nothing to do. A bar that is not kept is a result."""
    arguments = parse_arguments()
    found = packers.find_packers()
    for sentence in packers.missing_packers(found):
        lib.say(sentence)
    specs = chosen_cases(arguments)
    if arguments.list:
        print(*specs, sep="\n")
        return 0
    if not found or not specs or not arguments.corpus.is_dir():
        lib.say(f"nothing to do: {len(found)} programs, {len(specs)} cases, {arguments.corpus}")
        return 2
    facts = lib.machine_facts()
    facts["threads"] = arguments.threads
    facts["programs"] = {name: packer.version for name, packer in found.items()}
    facts["missing"] = packers.missing_packers(found)
    cases = []
    with lib.scratch(arguments.tmp) as folder:
        trees = Trees(arguments, folder)
        for name, spec in specs.items():
            corpus = trees.of(spec)
            all_of_them = contestants(found, spec, Path(corpus.path), folder, arguments.threads)
            cases.append(Case(name, spec.setting, spec.bars, corpus, all_of_them))
            run_case(cases[-1], found.get("kiln"), arguments.runs)
    print(report(cases, facts, arguments))
    lib.write_json(arguments.out, document(cases, facts))
    return int(any(case.problem or any(one.failed() for one in case.contestants) for case in cases))


if __name__ == "__main__":
    sys.exit(main())
