#!/usr/bin/env python3
"""Turn the JSON files of the suites into documents: bench/results.md, the README's table and its chart.

`report.py add FILE...` adds JSON files of `pack.py`, `read.py` and `once.py` to `bench/results/`, without paths and single runs.
`report.py` generates the documents from these files; `report.py --check` only tells if they are up to date.
"""
from __future__ import annotations

import functools
import json
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import lib

PROJECT = Path(__file__).resolve().parent.parent
KEPT = PROJECT / "bench" / "results"
BEGIN, END = "<!-- made by bench/report.py -->", "<!-- end -->"

# Rows of the README's table: what is said, then tree, case and contestant of `pack.py`.
PACK_ROWS = [
    ("`kiln pack` (zstd 3, equal parts stored once)", "squashfs zstd 3 128K", "kiln"),
    ("`mksquashfs` (zstd 3)", "squashfs zstd 3 128K", "mksquashfs"),
    ("kiln, lz4, like for like", "lz4", "kiln, nothing packed, no dedupe"),
    ("`mkfs.erofs`, lz4", "lz4", "mkfs.erofs"),
    ("kiln, zstd 3, like for like", "zstd 3 128K", "kiln, nothing packed, no dedupe"),
    ("`mkfs.erofs`, zstd 3", "zstd 3 128K", "mkfs.erofs"),
    ("kiln, equal parts, nothing packed", "dedupe", "kiln, nothing packed, parts"),
    ("`mkfs.erofs -Ededupe`", "dedupe", "mkfs.erofs -Ededupe"),
]
PACK_TREE = "rootfs"
# Programs of `once.py`, by those of the rows: its default preset is what the first row measures.
COLD_LABELS = {"kiln": "kiln pack", "mksquashfs": "mksquashfs"}
# The chart compares these rows of the table.
CHART_ROWS = [("kiln", PACK_ROWS[0]), ("mksquashfs", PACK_ROWS[1]), ("mkfs.erofs", PACK_ROWS[5])]
COLOURS = {
    "light": {"text": "#1f2328", "quiet": "#59636e", "ours": "#bc4c00", "theirs": "#8c959f"},
    "dark": {"text": "#f0f6fc", "quiet": "#9198a1", "ours": "#f0883e", "theirs": "#656c76"},
}


def reduced(document: Dict[str, Any]) -> Dict[str, Any]:
    """Return the part of a suite's JSON that is kept: facts and medians, but no path of the machine that ran it."""
    facts = {k: v for k, v in document["facts"].items() if k not in ("missing", "python")}
    facts["kernel"] = facts["kernel"].split("-")[0]  # what follows is a distributor's own
    if document["kind"] == "pack":
        cases = [
            {
                "tree": Path(case["corpus"]["path"]).name,
                "name": case["name"],
                "corpus": {k: v for k, v in case["corpus"].items() if k != "path"},
                "problem": case["problem"],
                "runs": max((len(one["runs"]) for one in case["contestants"]), default=0),
                "contestants": [{"label": one["label"], "median": one["median"]} for one in case["contestants"]],
                "ratios": case["ratios"],
            }
            for case in document["cases"]
        ]
        return {"kind": "pack", "facts": facts, "cases": cases}
    if document["kind"] == "read":
        results = [
            {
                **{k: one[k] for k in ("tree", "setting", "step", "who")},
                "runs": len(one["cpu_s"]),
                "cpu_s": lib.median(one["cpu_s"]),
                "wall_s": lib.median(one["wall_s"]),
                "rss_bytes": lib.median(one["rss_bytes"]),
            }
            for one in document["results"]
        ]
        return {"kind": "read", "facts": facts, "problems": len(document["problems"]), "results": results}
    if document["kind"] == "once":
        cases = [
            {
                **{k: case[k] for k in ("tree", "name", "problem", "once_bytes")},
                "runs": max((len(one["runs"]) for one in case["contestants"]), default=0),
                "contestants": [{"label": one["label"], "median": one["median"]} for one in case["contestants"]],
                "verdicts": case["verdicts"],
            }
            for case in document["cases"]
        ]
        return {"kind": "once", "facts": facts, "cases": cases}
    raise SystemExit(f"{document['kind']}: no suite whose results are kept")


def add(paths: Sequence[str]) -> None:
    """Store the results of these suites in place of earlier ones. Files of one suite and tree are merged."""
    KEPT.mkdir(exist_ok=True)
    found: Dict[Path, Dict[str, Any]] = {}
    for path in paths:
        document = reduced(json.loads(Path(path).read_text()))
        listed = "results" if document["kind"] == "read" else "cases"
        trees = sorted({one["tree"] for one in document[listed]})
        kept = KEPT / f"{document['kind']}-{'-'.join(trees)}.json"
        if kept in found:
            found[kept][listed] += document[listed]
        else:
            found[kept] = document
    for kept, document in found.items():
        kept.write_text(json.dumps(document, indent=1) + "\n")
        lib.say(f"{kept.relative_to(PROJECT)}: written")


@functools.lru_cache(maxsize=None)
def suites(kind: str) -> List[Dict[str, Any]]:
    """Return the stored results of a suite."""
    kept = (json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json")))
    return [document for document in kept if document["kind"] == kind]


def about(facts: Dict[str, Any]) -> str:
    """The machine and the programs, in a sentence."""
    programs = "; ".join(facts.get("programs", {}).values())
    return (
        f"{facts['cpu_model']}, {facts['cpus']} processors, Linux {facts['kernel']}, {facts['date'][:10]}"
        f"{'; ' + programs if programs else ''}."
    )


def wrapped(text: str) -> str:
    """Text in lines of at most 100 columns."""
    return "\n".join(textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False))


def packed(tree: str, case: str, label: str) -> Optional[Dict[str, float]]:
    """Medians of a contestant of `pack.py`, if they are there."""
    for document in suites("pack"):
        for one in document["cases"]:
            if (one["tree"], one["name"]) == (tree, case):
                found = [c["median"] for c in one["contestants"] if c["label"] == label and c["median"]]
                return found[0] if found else None
    return None


def once(tree: str, name: str, label: str) -> Optional[Dict[str, float]]:
    """Medians of a program of `once.py`, by its name in the rows, if they are there."""
    for document in suites("once"):
        for one in document["cases"]:
            if (one["tree"], one["name"]) == (tree, name):
                found = [c["median"] for c in one["contestants"] if c["label"] == COLD_LABELS.get(label) and c["median"]]
                return found[0] if found else None
    return None


def seconds(value: Optional[float]) -> str:
    """Seconds with three digits."""
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def pack_tables() -> List[str]:
    """A section for each tree of `pack.py`."""
    parts = []
    for document in suites("pack"):
        for tree in dict.fromkeys(case["tree"] for case in document["cases"]):
            cases = [case for case in document["cases"] if case["tree"] == tree]
            corpus = cases[0]["corpus"]
            parts.append(f"## Packing `{tree}`: {corpus['files']} files, {lib.mb(corpus['bytes'])} MB")
            runs = f"`bench/pack.py`, medians of {cases[0]['runs']} runs in turn."
            parts.append(wrapped(f"{runs} {about(document['facts'])}"))
            rows = [
                [
                    case["name"], one["label"], seconds(m["wall_s"]), seconds(m["cpu_s"]),
                    known(m["peak_rss_bytes"], lib.mib), lib.mb(m["image_bytes"]),
                ]
                for case in cases for one in case["contestants"] if (m := one["median"])
            ]
            parts.append(lib.markdown_table(["case", "program", "wall s", "CPU s", "peak MiB", "image MB"], rows))
            ratios = [
                [case["name"], f"{r['kiln']} / {r['peer']}", *(f"{r[k]:.3f}" for k in ("cpu_s", "wall_s", "image_bytes"))]
                for case in cases for r in case["ratios"]
            ]
            parts.append(lib.markdown_table(["case", "ours / the peer's", "CPU", "wall", "image"], ratios))
    return parts


def read_tables() -> List[str]:
    """A section for each tree and method of `read.py`."""
    parts = []
    for document in suites("read"):
        results = document["results"]
        for tree, method in dict.fromkeys((one["tree"], one["setting"]) for one in results):
            chosen = [one for one in results if (one["tree"], one["setting"]) == (tree, method)]
            parts.append(f"## Reading `{tree}`, {method}")
            parts.append(wrapped(
                f"`bench/read.py`, CPU seconds of client, server and kernel together, medians of {chosen[0]['runs']} runs in "
                f"turn; `library` is kiln's library without a mount. {about(document['facts'])}"
            ))
            readers = list(dict.fromkeys(one["who"] for one in chosen))
            by_key = {(one["step"], one["who"]): one["cpu_s"] for one in chosen}
            steps = dict.fromkeys(one["step"] for one in chosen)
            rows = [[step, *(seconds(by_key.get((step, who))) for who in readers)] for step in steps]
            parts.append(lib.markdown_table(["step", *readers], rows))
    return parts


def known(value: Optional[float], show: Callable[[float], str]) -> str:
    """A number as `show` writes it; empty if it is not known. The suites write their own memory for an unknown peak,
    which is not ours."""
    return "" if value is None else show(value)


def once_tables() -> List[str]:
    """A section for each run of `once.py`."""
    parts = []
    for document in suites("once"):
        trees = ", ".join(f"`{tree}`" for tree in dict.fromkeys(case["tree"] for case in document["cases"]))
        parts.append(f"## Reading once: {trees}")
        parts.append(wrapped(
            f"`bench/once.py`, medians of {document['cases'][0]['runs']} runs in turn; MB read of the source and read back of the "
            f"output. {about(document['facts'])}"
        ))
        rows = [
            [
                case["name"], case["tree"], one["label"], seconds(m["wall_s"]), seconds(m["cpu_s"]),
                known(m["peak_rss_bytes"], lib.mib), known(m["source_bytes"], lib.mb), known(m["output_bytes"], lib.mb),
                lib.mb(m["image_bytes"]) if m["image_bytes"] else "",
            ]
            for case in document["cases"] for one in case["contestants"] if (m := one["median"])
        ]
        head = ["case", "tree", "program", "wall s", "CPU s", "peak MiB", "source MB", "read back MB", "image MB"]
        parts.append(lib.markdown_table(head, rows))
        verdicts = [
            [
                case["name"], case["tree"], f"{one['kiln']} / {one['peer']}",
                *(f"{one['quotients'][k]:.2f} (bar {one['bars'][k]})" if one["bars"][k] else "" for k in ("wall", "cpu", "source", "read_back")),
            ]
            for case in document["cases"] for one in case["verdicts"]
        ]
        parts.append(lib.markdown_table(["case", "tree", "ours / the peer's", "wall", "CPU", "source / once", "read back / image"], verdicts))
    return parts


def results() -> str:
    """bench/results.md."""
    head = [
        "# Results",
        "`bench/report.py` generates this page from the JSON files in `results/`, which the suites wrote.\n"
        "[README.md](README.md) explains how to run them and which comparisons are fair;\n"
        "[decisions.md](decisions.md) lists what was decided from measurements.",
    ]
    return "\n\n".join(head + pack_tables() + once_tables() + read_tables()) + "\n"


def readme_table() -> str:
    """Return the README's table of packing."""
    rows = []
    for text, case, label in PACK_ROWS:
        # Warm and cold are of one run, where both were measured.
        if one := once(PACK_TREE, "warm", label) or packed(PACK_TREE, case, label):
            first = once(PACK_TREE, "cold", label)
            rows.append([
                text, f"{seconds(one['wall_s'])} s", f"{seconds(first['wall_s'])} s" if first else "", f"{seconds(one['cpu_s'])} s",
                f"{lib.mb(one['image_bytes']).split('.')[0]} MB", f"{known(one['peak_rss_bytes'], lib.mib)} MiB",
            ])
    header = ["packing a root file system", "time", "from a cold disk", "CPU time", "image", "peak memory"]
    return lib.markdown_table(header, rows) if rows else ""


def chart(colours: Dict[str, str]) -> str:
    """The rows of the chart as bars: time, size and memory beside each other, each to its own scale."""
    panels: List[Tuple[str, str, float]] = [
        ("seconds", "wall_s", 1), ("seconds, cold disk", "cold_s", 1), ("image, MB", "image_bytes", 1e6),
        ("peak memory, MiB", "peak_rss_bytes", lib.MIB),
    ]  # fmt: skip
    found = [
        (name, once(PACK_TREE, "warm", row[2]) or packed(PACK_TREE, row[1], row[2]), once(PACK_TREE, "cold", row[2]) or {})
        for name, row in CHART_ROWS
    ]
    bars = [(name, {**one, "cold_s": first.get("wall_s")}) for name, one, first in found if one]
    width, bar, left, panel = 840, 22, 96, 174
    height = 46 + len(bars) * (bar + 8)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>Packing a root file system with zstd 3: {', '.join(name for name, _ in bars)}</title>",
    ]
    for row, (name, _) in enumerate(bars):
        y = 38 + row * (bar + 8) + bar * 0.7
        lines.append(f'<text x="{left - 10}" y="{y:.0f}" text-anchor="end" fill="{colours["text"]}">{escape(name)}</text>')
    for column, (title, field, unit) in enumerate(panels):
        x = left + column * (panel + 12)
        lines.append(f'<text x="{x}" y="22" fill="{colours["quiet"]}">{escape(title)}</text>')
        values = [(one[field] or 0) / unit for _, one in bars]
        for row, value in enumerate(values):
            if not value:
                continue
            y = 38 + row * (bar + 8)
            length = max(2, (panel - 60) * value / max(values))
            fill = colours["ours" if row == 0 else "theirs"]
            lines.append(f'<rect x="{x}" y="{y}" width="{length:.0f}" height="{bar}" rx="3" fill="{fill}"/>')
            lines.append(
                f'<text x="{x + length + 6:.0f}" y="{y + bar * 0.7:.0f}" fill="{colours["text"]}">'
                f"{seconds(value) if unit == 1 else f'{value:.0f}'}</text>"
            )
    return "\n".join([*lines, "</svg>"]) + "\n"


def documents() -> Dict[Path, str]:
    """Return all generated files and their text."""
    readme = PROJECT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    made = {
        PROJECT / "bench" / "results.md": results(),
        readme: f"{before}{BEGIN}\n\n{readme_table()}\n\n{END}{after}",
    }
    for name, colours in COLOURS.items():
        made[PROJECT / "docs" / f"packing-{name}.svg"] = chart(colours)
    return made


def main(arguments: Sequence[str]) -> int:
    """Return exit code 1 if a document is out of date, with `--check`."""
    if arguments[:1] == ["add"]:
        add(arguments[1:])
    elif arguments not in ([], ["--check"]):
        lib.say(__doc__)
        return 2
    stale = {path: text for path, text in documents().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        if arguments == ["--check"]:
            lib.say(f"{path.relative_to(PROJECT)}: out of date, run bench/report.py")
        else:
            path.write_text(text)
            lib.say(f"{path.relative_to(PROJECT)}: written")
    return int(arguments == ["--check"] and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
