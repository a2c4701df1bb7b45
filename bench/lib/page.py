"""The report as one HTML file: light and dark, readable on a phone, without script or font from elsewhere."""

from __future__ import annotations

import re
from html import escape
from itertools import chain

from lib import claims, grid, plots, reader, svg
from lib.reader import Part, Report
from lib.results import TableResult

# Names of colours on light and on dark ground.
_COLOURS = {
    "ground": ("#ffffff", "#0d1117"), "text": ("#1f2328", "#f0f6fc"), "quiet": ("#59636e", "#9198a1"),
    "rule": ("#d1d9e0", "#3d444d"), "soft": ("#f6f8fa", "#151b23"), "ours": ("#fff1e5", "#3a2312"),
    "mark": ("#c44e00", "#ff9147"), "link": ("#0b5cad", "#5aa9f5"), "good": ("#116b4a", "#4fd1a5"),
    "bad": ("#a33a80", "#ef93cb"),
}  # fmt: skip
_STYLE = """
*{box-sizing:border-box}
html{color-scheme:light dark;-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1000px;padding:16px;background:var(--ground);color:var(--text);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.35rem;margin:3rem 0 .5rem;border-bottom:1px solid var(--rule)}
h3{font-size:1.08rem;margin:2.2rem 0 .5rem}
a{color:var(--link)}p,ul{margin:.5rem 0;max-width:75ch}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;padding:10px 0;border-block:1px solid var(--rule)}
nav a{padding:4px 0}
.box{overflow-x:auto;margin:.7rem 0;border:1px solid var(--rule);border-radius:6px}
table{border-collapse:collapse;font-size:.86rem;width:max-content;min-width:100%}
th,td{max-width:34em;padding:4px 10px;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
tr:last-child td{border-bottom:0}
th{background:var(--soft);font-weight:600}th,.n{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums}
.ours td{background:var(--ours)}.ours td:first-child{box-shadow:inset 3px 0 var(--mark)}
.why{color:var(--quiet);font-style:italic;min-width:16em}
.l{max-width:22em}@media(max-width:600px){.l{max-width:10em}}
.note{color:var(--quiet);font-size:.9rem}
.plot{display:block;width:100%;max-width:600px;height:auto;margin:.5rem 0}
summary{cursor:pointer;padding:6px 0;color:var(--link)}
pre{overflow-x:auto;background:var(--soft);padding:10px;border-radius:6px;font-size:.8rem;line-height:1.45}
code{font-size:.9em;background:var(--soft);border-radius:4px;padding:0 3px}
.warn{border-left:4px solid var(--mark);padding:6px 12px;background:var(--soft)}
.claim{border:1px solid var(--rule);border-radius:6px;padding:10px 14px;margin:.7rem 0}
.claim p{margin:0 0 .4rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 12px;margin:0;font-size:.9rem}
dt{color:var(--quiet)}dd{margin:0;min-width:0}
.kind{font-weight:600;white-space:nowrap}.good{color:var(--good)}.bad{color:var(--bad)}
"""
_TONES = {"holds": "good", "no longer": "bad", "never shown": "bad"}


def page(report: Report) -> str:
    """Returns the whole page."""
    title = escape(report.title)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    style = f"<style>{_colours()}{_STYLE}{svg.style()}</style>"
    links = [f'<a href="#{escape(part.suite.name)}">{escape(part.suite.name)}</a>' for part in report.parts]
    parts = [
        f'<!doctype html><html lang="en"><head>{head}<title>{title}</title>{style}</head><body>',
        f"<h1>{title}</h1>",
        f"<p class=warn>{reader.QUICK}</p>" if report.quick else "",
        f'<p>{escape(claims.summary(report.claims))} <a href="#claims">Claim by claim</a>.</p>',
        f'<nav>{"".join(links)}<a href="#claims">claims</a><a href="#machine">machine</a></nav>',
        *chain.from_iterable(_suite(part) for part in report.parts),
        *_claims(report),
        '<h2 id="machine">Machine and versions</h2>',
        _pairs(report.facts),
        _pairs(report.versions),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _colours() -> str:
    light, dark = ("".join(f"--{name}:{pair[n]};" for name, pair in _COLOURS.items()) for n in (0, 1))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def prose(text: str) -> str:
    """Returns a sentence with its code and its addresses marked."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"https?://[^\s<>]*[^\s<>.,;:)]", lambda found: f'<a href="{found[0]}">{found[0]}</a>', marked)


def _suite(part: Part) -> list[str]:
    words = [f"<li>{prose(word)}</li>" for word in part.words]
    return [
        f'<section><h2 id="{escape(part.suite.name)}">{escape(part.suite.title)}</h2>',
        f"<p>{prose(part.about)}</p>",
        f"<ul>{''.join(words)}</ul>" if words else "",
        *chain.from_iterable(_table(table) for table in part.tables),
        "</section>",
    ]


def _table(table: TableResult) -> list[str]:
    parts = [f'<h3 id="{reader.slug(table)}">{escape(table.title)}</h3>', plots.picture(table, inline=True) or ""]
    parts += [_grid(grid.grid(table)), f'<p class="note">{prose(" ".join(grid.caption(table)))}</p>']
    found = grid.beside(table)
    if found or table.published:
        words = [*grid.sources(table), found[1] if found else ""]
        parts.append(f'<p class="note">{prose(" ".join(words))}</p>')
    if found:
        parts.append(_grid(found[0]))
    if spread := grid.spread(table):
        parts.append(f"<details><summary>Mean, deviation and range</summary>{_grid(spread)}</details>")
    if commands := grid.commands(table):
        text = "\n".join(f"# {escape(name)}\n{escape(command)}" for name, command in commands)
        parts.append(f"<details><summary>Commands</summary><pre>{text}</pre></details>")
    return parts


def _grid(one: grid.Grid) -> str:
    heads = [f"<th>{escape(name)}</th>" for name in one.labels] + [f'<th class="n">{escape(h)}</th>' for h in one.heads]
    rows = []
    for line in one.lines:
        labels = "".join(f'<td class="l">{escape(label)}</td>' for label in line.labels)
        cells = "".join(f'<td class="n">{escape(text)}</td>' for text in line.cells)
        if line.reason:
            cells = f'<td class="why" colspan="{len(one.heads)}">{escape(line.reason)}</td>'
        rows.append(f"<tr{' class=ours' if line.ours else ''}>{labels}{cells}</tr>")
    return f'<div class="box"><table><tr>{"".join(heads)}</tr>{"".join(rows)}</table></div>'


def _pairs(pairs: list[tuple[str, str]]) -> str:
    rows = [f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in pairs]
    return f'<div class="box"><table>{"".join(rows)}</table></div>' if rows else ""


def _claims(report: Report) -> list[str]:
    rows = [
        f'<tr><td class="kind {_TONES.get(kind, "")}">{kind}</td><td class="n">{count}</td>'
        f"<td>{claims.KIND_WORDS[kind]}</td></tr>"
        for kind, count in claims.counts(report.claims)
    ]
    parts = ['<section><h2 id="claims">Published claims</h2>', f'<div class="box"><table>{"".join(rows)}</table></div>']
    parts.append("<p>Seconds of two machines are never compared: only ratios of neighbours, and orders.</p>")
    ran = {part.suite.name for part in report.parts}
    for source, found in claims.by_source(report.claims):
        parts.append(f"<h3>{prose(source)}</h3>")
        parts += [_claim(one, one.suite in ran) for one in found]
    return [*parts, "</section>"]


def _claim(one: claims.Judged, linked: bool) -> str:
    suite = f'<a href="#{escape(one.suite)}">{escape(one.suite)}</a>' if linked else escape(one.suite)
    facts = [
        ("where", prose(one.where)), ("theirs", prose(one.theirs)), ("against it", prose(one.against)),
        ("test", prose(one.test)), ("ours", prose(one.verdict.ours)), ("why", prose(one.verdict.why)), ("suite", suite),
    ]  # fmt: skip
    rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    kind = f'<span class="kind {_TONES.get(one.verdict.kind, "")}">{one.verdict.kind}</span>'
    head = f"<p>{one.number}. {prose(one.text)} {kind}</p>"
    return f'<div class="claim" id="claim-{one.number}">{head}<dl>{rows}</dl></div>'
