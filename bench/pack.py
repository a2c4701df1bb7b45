#!/usr/bin/env python3
"""Pack one tree with kiln and its peers at equal settings: time, CPU, memory, size. README.md says what is fair.

The programs take turns within each round, and medians over the rounds are compared.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import lib
import packers
from packers import Packer, Setting

SCHEMA = 2

CASES: Dict[str, Setting] = {
    "store": Setting(None, None, 128 * lib.KIB),
    "lz4": Setting("lz4", None, 64 * lib.KIB),
    "lz4hc 9": Setting("lz4hc", 9, 64 * lib.KIB),
    "deflate 6": Setting("deflate", 6, 64 * lib.KIB),
    "zstd 3": Setting("zstd", 3, 128 * lib.KIB),
    "zstd 3 +": Setting("zstd", 3, 128 * lib.KIB, more=True),
    "zstd 15": Setting("zstd", 15, 128 * lib.KIB),
    "lzma 6": Setting("lzma", 6, 128 * lib.KIB),
}

KILN = "kiln"
UNPACKED = "kiln, nothing packed, no dedupe"
ENCODED = "kiln, the same, encoded extents"

# Contestants of the cases whose name ends with " +": what erofs-utils has beside its default.
MORE_OF_MKFS = {"mkfs.erofs -E48bit": "48bit", "mkfs.erofs -Ededupe": "dedupe", "mkfs.erofs -Eall-fragments": "all-fragments"}

# (ours, peer, whether both do the same with duplicates and small files).
PAIRS: List[Tuple[str, str, bool]] = [
    (UNPACKED, "mkfs.erofs", True),
    (KILN, "mkfs.erofs", False),
    (KILN, "mksquashfs", True),
    (KILN, UNPACKED, False),
    (ENCODED, "mkfs.erofs -E48bit", True),
    (KILN, "mkfs.erofs -Ededupe", False),
    (KILN, "mkfs.erofs -Eall-fragments", False),
]

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
        """Whether any run did not succeed."""
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
    contestants: List[Contestant]
    problem: Optional[str] = None

    def ratios(self) -> List[Dict[str, Any]]:
        """Ours divided by the peer's, medians, for every pair that ran."""
        medians = {c.label: lib.median_run(c.runs) for c in self.contestants if not c.failed()}
        return [
            {"kiln": ours, "peer": peer, "same_work": same, **divide(medians[ours], medians[peer])}
            for ours, peer, same in PAIRS
            if medians.get(ours) and medians.get(peer)
        ]


def divide(ours: Dict[str, Any], peer: Dict[str, Any]) -> Dict[str, float]:
    """Ratio of each number that both have; below 1 is good for us."""
    ours, peer = ({**m, "durable_s": m["wall_s"] + m["fsync_s"]} for m in (ours, peer))
    return {name: ours[name] / peer[name] for name in RATIOS.values() if ours[name] is not None and peer[name]}


def contestants(
    found: Dict[str, Packer], setting: Setting, corpus: Path, folder: Path, threads: int
) -> List[Contestant]:
    """Everyone that is installed, for one setting."""
    image = folder / "image"
    commands: Dict[str, List[str]] = {}
    if kiln := found.get("kiln"):
        commands[KILN] = packers.kiln_command(kiln, setting, corpus, image, threads)
        commands[UNPACKED] = packers.kiln_command(kiln, setting, corpus, image, threads, packers.UNPACKED)
        if setting.more:
            encoded = (*packers.UNPACKED, "--extents", "encoded")
            commands[ENCODED] = packers.kiln_command(kiln, setting, corpus, image, threads, encoded)
    if mkfs := found.get("mkfs.erofs"):
        commands["mkfs.erofs"] = packers.mkfs_erofs_command(mkfs, setting, corpus, image, threads)
        for label, extended in MORE_OF_MKFS.items() if setting.more else ():
            commands[label] = packers.mkfs_erofs_command(mkfs, setting, corpus, image, threads, extended)
    if mksquashfs := found.get("mksquashfs"):
        commands["mksquashfs"] = packers.mksquashfs_command(mksquashfs, setting, corpus, image, threads)
    return [Contestant(label, command, image) for label, command in commands.items()]


def verify(kiln: Packer, case: Case) -> Optional[str]:
    """Build kiln's image once and let `kiln check` read it all, untimed. What is wrong, or None."""
    ours = next(one for one in case.contestants if one.label == KILN)
    try:
        for command in (ours.command, [str(kiln.path), "check", str(ours.image)]):
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0:
                said = (done.stderr + done.stdout).strip()[-2000:]
                return f"`{' '.join(command)}`: exit {done.returncode}: {said}"
        return None
    finally:
        ours.image.unlink(missing_ok=True)


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


def results_table(cases: List[Case], corpus: lib.Corpus) -> str:
    """The medians."""
    head = ["case", "unit", "program", "wall s", "to disk s", "CPU s", "MB/s", "peak RSS MiB", "image MB", "% of input"]
    rows = [
        [case.name, lib.unit_name(case.setting.unit) if case.setting.algorithm else "-", *result_row(one, corpus)]
        for case in cases
        for one in case.contestants
        if one.runs
    ]
    return lib.markdown_table(head, rows)


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


def report(cases: List[Case], corpus: lib.Corpus, facts: Dict[str, Any], runs: int) -> str:
    """All that goes to stdout."""
    about = (
        f"{corpus.path}: {corpus.files} files, {corpus.directories} directories, {lib.mb(corpus.bytes)} MB. "
        f"Medians of {runs} interleaved runs, {facts['threads']} threads, page cache warm. "
        f"{facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}. "
        f"{'; '.join(facts['programs'].values())}."
    )
    parts = [about, results_table(cases, corpus)]
    if any(case.ratios() for case in cases):
        parts += ["Ratios of medians; below 1 is better for kiln.", ratios_table(cases)]
    parts += [f"Not timed: {case.name}: {case.problem}" for case in cases if case.problem]
    return "\n\n".join(parts)


def document(cases: List[Case], corpus: lib.Corpus, facts: Dict[str, Any]) -> Dict[str, Any]:
    """The JSON file."""
    listed = [
        {
            "name": case.name,
            "setting": asdict(case.setting),
            "problem": case.problem,
            "contestants": [one.document() for one in case.contestants],
            "ratios": case.ratios(),
        }
        for case in cases
    ]
    return {"schema": SCHEMA, "kind": "pack", "facts": facts, "corpus": asdict(corpus), "cases": listed}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="the tree to pack")
    parser.add_argument("--runs", type=lib.positive, default=5, help="rounds (default 5)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="cases to run")
    parser.add_argument("--unit", type=lib.parse_size, metavar="SIZE", help="one unit for all cases: 64K, 1M")
    parser.add_argument("--threads", type=int, default=lib.cpu_count(), help="for all programs (default: all)")
    parser.add_argument("--tmp", type=Path, help="directory for images, best on the corpus's disk (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def chosen_cases(arguments: argparse.Namespace) -> Dict[str, Setting]:
    """The cases that --only keeps, with --unit applied."""
    unit = arguments.unit
    return {
        name: Setting(s.algorithm, s.level, unit or s.unit, s.more) for name, s in CASES.items() if arguments.only.search(name)
    }


def main() -> int:
    """Exit code 1 if an image was wrong or a program failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    source = arguments.corpus.resolve()
    found = packers.find_packers()
    for sentence in packers.missing_packers(found):
        lib.say(sentence)
    settings = chosen_cases(arguments)
    if not found or not settings or not source.is_dir():
        lib.say(f"nothing to do: {len(found)} programs, {len(settings)} cases, {source}")
        return 2
    facts = lib.machine_facts()
    facts["threads"] = arguments.threads
    facts["programs"] = {name: packer.version for name, packer in found.items()}
    facts["missing"] = packers.missing_packers(found)
    lib.say(f"reading {source}")
    corpus = lib.warm(source)
    with lib.scratch(arguments.tmp) as folder:
        cases = [
            Case(name, setting, contestants(found, setting, source, folder, arguments.threads))
            for name, setting in settings.items()
        ]
        for case in cases:
            run_case(case, found.get("kiln"), arguments.runs)
    print(report(cases, corpus, facts, arguments.runs))
    lib.write_json(arguments.out, document(cases, corpus, facts))
    return int(any(case.problem or any(one.failed() for one in case.contestants) for case in cases))


if __name__ == "__main__":
    sys.exit(main())
