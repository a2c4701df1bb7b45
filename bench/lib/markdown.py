"""The report in Markdown: one page a suite, plots as files beside it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from lib import claims, grid, plots, reader
from lib.reader import Part, Report
from lib.results import TableResult

MADE = "<!-- made by bench/report -->"


def pages(report: Report, plots_in: str = "") -> dict[str, str]:
    """Returns all files by name: pages and plots. `plots_in` is the folder of the plots, "plots/"."""
    files = {"README.md": index(report), "claims.md": claims_page(report)}
    for part in report.parts:
        pictures = {table.key: plots.picture(table) for table in part.tables}
        files[f"{part.suite.name}.md"] = suite_page(part, {key for key, svg in pictures.items() if svg}, plots_in)
        files |= {f"{plots_in}{reader.slug(t)}.svg": svg for t in part.tables if (svg := pictures[t.key])}
    return files


def index(report: Report) -> str:
    """Returns the first page: machine, versions, suites."""
    lines = [MADE, f"# {report.title}"]
    lines.append(prose("`bench/report` makes these pages of the results that `bench/run` has written."))
    if report.quick:
        lines.append(f"**{reader.QUICK}**")
    named = ((part, part.suite.name) for part in report.parts)
    suites = [[f"[{name}]({name}.md)", _cell(part.suite.title), reader.count_words(part)] for part, name in named]
    lines += ["## Suites", table_text(["suite", "about", "size"], suites)]
    lines += ["## Claims", f"[Claim by claim](claims.md). {claims.summary(report.claims)}"]
    lines += ["## Machine", table_text(["fact", "value"], [[name, _cell(value)] for name, value in report.facts])]
    lines += ["## Versions", table_text(["program", "version"], [[name, _cell(v)] for name, v in report.versions])]
    return _joined(lines)


def suite_page(part: Part, drawn: set[str], plots_in: str) -> str:
    """Returns the page of a suite: what it asks, what it found, its tables."""
    lines = [MADE, f"# {part.suite.title}", prose(part.about)]
    lines.append("\n".join(prose(f"* {word}", "  ") for word in part.words))
    for table in part.tables:
        picture = f"{plots_in}{reader.slug(table)}.svg" if table.key in drawn else ""
        lines += [f"## {table.title}", *_table(table, picture)]
    return _joined(lines)


def _table(table: TableResult, picture: str) -> list[str]:
    lines = [f"![{_cell(table.title)}]({picture})"] if picture else []
    lines += [grid_text(grid.grid(table)), prose(" ".join(grid.caption(table)))]
    if found := grid.beside(table):
        lines += [prose(" ".join([*grid.sources(table), found[1]])), grid_text(found[0])]
    elif table.published:
        lines.append(prose(" ".join(grid.sources(table))))
    if spread := grid.spread(table):
        lines += ["<details><summary>Mean, deviation and range</summary>", grid_text(spread), "</details>"]
    if commands := grid.commands(table):
        text = "\n".join(f"# {name}\n{command}" for name, command in commands)
        lines += ["<details><summary>Commands</summary>", f"```sh\n{text}\n```", "</details>"]
    return lines


def grid_text(one: grid.Grid) -> str:
    """Returns a table; kiln's rows are bold."""
    rows = []
    for line in one.lines:
        cells = [_cell(line.reason), *[""] * (len(one.heads) - 1)] if line.reason else [_cell(c) for c in line.cells]
        labels = [f"**{_cell(label)}**" if line.ours and label else _cell(label) for label in line.labels]
        rows.append([*labels, *cells])
    return table_text([*map(_cell, one.labels), *map(_cell, one.heads)], rows, len(one.labels))


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]], labels: int | None = None) -> str:
    """Returns a table; columns after the labels are numbers, at the right. Without `labels`, all is at the left."""
    rule = [":--" if labels is None or place < labels else "--:" for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, rule, *rows])


def claims_page(report: Report) -> str:
    """Returns the page of claims, by source."""
    lines = [MADE, "# Published claims", prose(claims.summary(report.claims))]
    rows = [[kind, str(count), claims.KIND_WORDS[kind]] for kind, count in claims.counts(report.claims)]
    lines.append(table_text(["verdict", "claims", "meaning"], rows))
    lines.append(prose("Seconds of two machines are never compared: only ratios of neighbours, and orders."))
    for source, found in claims.by_source(report.claims):
        rows = []
        for one in found:
            why = "; ".join(text.rstrip(".") for text in (one.verdict.why, one.against) if text)
            verdict = f"**{one.verdict.kind}**"
            rows.append([str(one.number), *map(_cell, (one.where, one.text, one.theirs, one.test)),
                         _cell(one.verdict.ours), verdict, _cell(why), one.suite])  # fmt: skip
        heads = ["", "where", "claim", "theirs", "test", "ours", "verdict", "why", "suite"]
        lines += [f"## {source.partition(',')[0]}", prose(source), table_text(heads, rows)]
    return _joined(lines)


def _cell(text: str) -> str:
    return re.sub(r"([|*<])", r"\\\1", " ".join(text.split()))


def prose(text: str, indent: str = "") -> str:
    """Returns a paragraph in lines of 100 columns."""
    return textwrap.fill(" ".join(text.split()), 100, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
