#!/usr/bin/env python3
"""Compare the output of `kiln pack --estimate` with the result of `kiln pack`, for all presets and any number of trees.

An error bar holds if the true figure is within the error of the estimate; 95 of 100 should.
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import lib
import packers

SCHEMA = 1

# The figures that have errors, with their unit in the table.
FIGURES = {"image_bytes": ("image MB", 1e6), "cpu_secs": ("CPU s", 1.0), "wall_secs": ("wall s", 1.0)}


def run_json(command: List[str]) -> Dict[str, Any]:
    """The document that a command of kiln prints."""
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def truth_of(document: Dict[str, Any]) -> Dict[str, float]:
    """The same figures of a finished build: an estimate knows nothing of the disk, so without `sync`."""
    phases = [phase for phase in document["phases"] if phase["name"] != "sync"]
    sums = {name: sum(phase[name] for phase in phases) for name in ("cpu_secs", "wall_secs")}
    return {"image_bytes": document["image_bytes"], **sums}


def compare(kiln: Path, source: Path, folder: Path, threads: int, only: re.Pattern[str]) -> Dict[str, Any]:
    """Estimate once, then build with each preset."""
    corpus = lib.warm(source)
    how = ["--json", "--threads", str(threads)]
    start = time.perf_counter()
    before = lib.children_cpu_s()
    estimates = run_json([str(kiln), "pack", "--estimate", *how, str(source)])["estimates"]
    took = {"wall_s": time.perf_counter() - start, "cpu_s": lib.children_cpu_s() - before}
    lib.say(f"{source}: estimated in {took['wall_s']:.1f} s, {took['cpu_s']:.1f} s CPU")
    compared = []
    for estimate in estimates:
        if not only.search(estimate["preset"]):
            continue
        image = folder / "image"
        command = [str(kiln), "pack", *how, "--preset", estimate["preset"], "--force", str(source), str(image)]
        built = run_json(command)
        truth = truth_of(built)
        image.unlink()
        kernels = [estimate["oldest_kernel"], built["oldest_kernel"]]
        compared.append({"estimate": estimate, "truth": truth, "kernels": kernels})
        lib.say(f"  {estimate['preset']}: {lib.mb(estimate['image_bytes'])} MB, in truth {lib.mb(truth['image_bytes'])} MB")
    return {"corpus": {"path": str(source), "bytes": corpus.bytes, "files": corpus.files}, "took": took, "presets": compared}


def holds(estimate: Dict[str, Any], truth: Dict[str, float], name: str) -> bool:
    """Return True if the true figure is within the error; a size within a block of an exact one counts as equal."""
    slack = 4096 if name == "image_bytes" else 0.0
    return abs(estimate[name] - truth[name]) <= estimate[f"{name}_error"] + slack


def row(tree: str, one: Dict[str, Any]) -> List[str]:
    """One line of the table."""
    estimate, truth = one["estimate"], one["truth"]
    cells = [tree, estimate["preset"]]
    for name, (_, unit) in FIGURES.items():
        error = estimate[f"{name}_error"]
        cells += [f"{estimate[name] / unit:.1f} ± {error / unit:.1f}", f"{truth[name] / unit:.1f}"]
        cells += [f"{100 * (estimate[name] / truth[name] - 1):+.1f} %", "yes" if holds(estimate, truth, name) else "no"]
    before, after = one["kernels"]
    return [*cells, after if before == after else f"{before}, in truth {after}"]


def report(results: List[Dict[str, Any]], facts: Dict[str, Any]) -> str:
    """Return the text for stdout."""
    about = f"{facts['version']}, {facts['threads']} threads. {facts['cpu_model']}, Linux {facts['kernel']}, {facts['date']}."
    head = ["tree", "preset"]
    for title, _ in FIGURES.values():
        head += [title, "truth", "off by", "held"]
    rows = [row(Path(r["corpus"]["path"]).name, one) for r in results for one in r["presets"]]
    counts = []
    for name, (title, _) in FIGURES.items():
        held = [holds(one["estimate"], one["truth"], name) for r in results for one in r["presets"]]
        counts.append(f"{title}: {sum(held)} of {len(held)}")
    took = [f"{Path(r['corpus']['path']).name}: {r['took']['wall_s']:.1f} s, {r['took']['cpu_s']:.1f} s CPU" for r in results]
    parts = [about, lib.markdown_table([*head, "oldest kernel"], rows)]
    return "\n\n".join([*parts, f"Bars that held the truth: {'; '.join(counts)}.", f"The estimates took: {'; '.join(took)}."])


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, nargs="+", help="trees to pack")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="presets to build")
    parser.add_argument("--threads", type=int, default=lib.cpu_count(), help="default: all")
    parser.add_argument("--tmp", type=Path, help="directory for images (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    return parser.parse_args()


def main() -> int:
    """Exit code 2 if there was nothing to do. A bar that does not hold is a result, not a failure."""
    arguments = parse_arguments()
    kiln: Optional[packers.Packer] = packers.find_packers().get("kiln")
    sources = [source.resolve() for source in arguments.corpus]
    if kiln is None or not all(source.is_dir() for source in sources):
        lib.say(f"nothing to do: kiln: {kiln}, {sources}")
        return 2
    facts = {**lib.machine_facts(), "threads": arguments.threads, "version": kiln.version}
    with lib.scratch(arguments.tmp) as folder:
        results = [compare(kiln.path, source, folder, arguments.threads, arguments.only) for source in sources]
    print(report(results, facts))
    lib.write_json(arguments.out, {"schema": SCHEMA, "kind": "estimate", "facts": facts, "results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
