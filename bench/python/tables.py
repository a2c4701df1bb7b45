"""The results of `run.py` as Markdown, and as lines of progress."""

from __future__ import annotations

from typing import Any

import lib


def prepared(answer: dict[str, Any]) -> str:
    """Format the result of preparing a container."""
    if reason := answer.get("missing") or answer.get("failed"):
        return f"not run: {reason}"
    if answer["wrong"]:
        return f"void: {answer['wrong']}"
    return f"{lib.mb(answer['bytes'])} MB, built in {answer['build_s']:.2f} s, all bytes right"


def progress(answer: dict[str, Any]) -> str:
    """One run."""
    if reason := answer.get("missing") or answer.get("failed"):
        return f"not run: {reason}"
    names = ("samples_per_s", "cpu_us_per_sample", "first_s", "open_s", "wall_s", "reads", "requests", "private_bytes")
    return ", ".join(f"{name} {answer[name]:.6g}" for name in names if answer.get(name) is not None)


def report(document: dict[str, Any]) -> str:
    """All tables."""
    parts = [head(document), containers(document)]
    parts += [f"## {case['name']}\n\n{described(document, case)}\n\n{case_table(case)}" for case in document["cases"]]
    parts += [f"## {case['name']}\n\n{special_table(case)}" for case in document["special"]]
    return "\n\n".join(parts)


def head(document: dict[str, Any]) -> str:
    """Format the head: what was measured, and on which machine."""
    facts = document["facts"]
    sets = "; ".join(
        f"{name}: {one['files']} files, {lib.mb(one['bytes'])} MB" for name, one in document["sets"].items()
    )
    load = f"load {facts['load_average_before']:.1f} to {facts.get('load_average_after', 0):.1f}"
    kernel = facts["kernel"].split("-")[0]
    machine = (
        f"{facts['cpu_model']}, {facts['cpus']} processors, Linux {kernel}, Python {facts['python']}, {facts['date']}"
    )
    return f"Medians of {document['rounds']} interleaved rounds, {load}. {machine}. Sets: {sets}."


def containers(document: dict[str, Any]) -> str:
    """Sizes, times to build, versions and reasons."""
    rows = []
    for one in document["contestants"]:
        reason = one.get("missing") or one.get("failed") or one.get("wrong")
        numbers = ["-", "-"] if reason else [lib.mb(one["bytes"]), f"{one['build_s']:.1f}"]
        rows.append([one["label"], one["set"], *numbers, f"not run: {reason}" if reason else one["version"]])
    return lib.markdown_table(["contestant", "set", "MB on disk", "build s", "version, or why it was not run"], rows)


def described(document: dict[str, Any], case: dict[str, Any]) -> str:
    """Describe a case in a sentence."""
    slow = f", {case['delay_s'] * 1000:g} ms a request" if case["delay_s"] else ""
    what = f"{case['order']}, {case['state']}{slow}, {case['consumer']}"
    return f"Set {case['set']}, {what}, batches of {case['batch']}, {case['threads']} thread(s)."


def case_table(case: dict[str, Any]) -> str:
    """A line for each contestant, the fastest first, those that did not run last."""
    rows = sorted(case["rows"], key=lambda row: (row.get("workers") or 0, -row["median"].get("samples_per_s", 0)))
    lines = []
    for row in rows:
        median = row["median"]
        name = row["label"] if row.get("workers") is None else f"{row['label']}, {row['workers']} workers"
        if row["reason"]:
            lines.append([name, *["-"] * 6, f"not run: {row['reason']}"])
            continue
        fetched, served = median.get("fetched_bytes"), median["bytes"]
        lines.append(
            [
                name,
                f"{median['samples_per_s']:.0f}",
                f"{median['cpu_us_per_sample']:.1f}",
                f"{median['open_s'] * 1000:.2f}" if "open_s" in median else "-",
                f"{median['first_s'] * 1000:.1f}" if "first_s" in median else "-",
                f"{fetched / served:.3f}" if fetched is not None else "-",
                f"{median['requests'] / median['samples']:.3f}" if median.get("requests") is not None else "-",
                f"{median['samples']:.0f} samples",
            ]
        )
    return lib.markdown_table(
        ["contestant", "samples/s", "CPU µs/sample", "open ms", "first ms", "fetched/served", "requests/sample", ""],
        lines,
    )


def special_table(case: dict[str, Any]) -> str:
    """All numbers of a special case as they are."""
    names = list(dict.fromkeys(name for row in case["rows"] for name in row["median"]))
    lines = []
    for row in case["rows"]:
        cells = [f"{row['median'][name]:.6g}" if name in row["median"] else "-" for name in names]
        lines.append([row["label"], *cells, f"not run: {row['reason']}" if row["reason"] else ""])
    return lib.markdown_table(["", *names, ""], lines)
