"""Plots of tables: bars, lines, scatter, distribution."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from lib import grid, units
from lib.results import RowResult, TableResult
from lib.suite import Plot
from lib.svg import COLOURS, SHOWN_WIDTH, STEP, WIDTH, Axis, Canvas, fitted, spread, style, wide

DASHES = ("", "6 3", "2 3", "8 3 2 3")
Place = tuple[float, float]
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def picture(table: TableResult, scheme: str = "both", *, inline: bool = False) -> str | None:
    """Returns the plot of a table; None if no row has figures of it. `inline`: the page brings the style."""
    plot = Plot(**table.plot)
    drawn = [row for row in table.rows if all(row.labels.get(name) == value for name, value in plot.only.items())]
    if not any(row.values(plot.y) and (plot.kind != "scatter" or row.values(plot.x)) for row in drawn):
        return None
    canvas = Canvas()
    {"bars": _bars, "lines": _lines, "scatter": _scatter, "distribution": _distribution}[plot.kind](
        canvas, table, plot, drawn
    )
    height = math.ceil(canvas.bottom + 8)
    size = "" if inline else f' width="{SHOWN_WIDTH}" height="{round(height * SHOWN_WIDTH / WIDTH)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {height}"{size} role="img">'
    rules = "" if inline else f"<style>{style(scheme)}</style>"
    return "\n".join([f"{head}<title>{escape(table.title)}</title>{rules}", *canvas.parts, "</svg>"]) + "\n"


def _caption(canvas: Canvas, words: str, best: str, *, log: bool = False) -> None:
    more = [words, *(["logarithmic"] if log else []), *([f"{best} is better"] if best else [])]
    canvas.text(fitted(" · ".join(more), WIDTH - 8), 4, 15, "q")


def _numbers(canvas: Canvas, axis: Axis, marks: Iterable[tuple[float, str]], y: float) -> None:
    """Writes the numbers of a horizontal axis: those that find room."""
    free = 0.0
    for value, words in sorted(marks):
        half = wide(words) / 2
        x = min(max(axis.at(value), half + 2), WIDTH - half - 2)
        if x - half >= free:
            canvas.text(words, x, y, "q", "middle")
            free = x + half + 6


def _varying(rows: Sequence[RowResult], names: Iterable[str]) -> list[str]:
    return [name for name in names if len({row.labels.get(name, "") for row in rows}) > 1]


def _theirs(rows: Iterable[RowResult], series: str) -> list[str]:
    return list(dict.fromkeys(row.labels.get(series, "") for row in rows if not row.ours))


def _colour(row: RowResult, series: str, theirs: list[str]) -> str:
    """Returns the colour of a row by its series. The first is kiln's."""
    return "c0" if row.ours else f"c{1 + theirs.index(row.labels.get(series, '')) % (len(COLOURS) - 1)}"


def _split(rows: Sequence[RowResult], names: Iterable[str], series: str) -> list[str]:
    """Returns the labels that tell rows apart beside their series: none that follows from it and from the others."""
    found = _varying(rows, (name for name in names if name != series))
    for name in reversed(found) if series else ():
        left = [series, *(one for one in found if one != name)]
        if len({tuple(row.labels.get(one, "") for one in left) for row in rows}) == len(rows):
            found.remove(name)
    return found


def _bars(canvas: Canvas, table: TableResult, plot: Plot, rows: Sequence[RowResult]) -> None:
    what, fit = grid.column(table, plot.y), grid.unit_of(table, grid.column(table, plot.y))
    _caption(canvas, grid.title(what, fit), what.best, log=plot.log_y)
    names = _split(rows, grid.label_names(table), plot.series)
    series = list(dict.fromkeys(row.labels.get(plot.series, "") for row in rows)) if plot.series else []
    theirs = _theirs(rows, plot.series)
    # Bars under a heading: those of a series, or those with the same first label.
    split = names if series else names[:1] if len(names) > 1 else []
    blocks: dict[str, list[RowResult]] = {}
    for row in rows:
        blocks.setdefault(grid.named(row, split) if split else "", []).append(row)
    rest = [plot.series] if series else [name for name in names if name not in split] or grid.label_names(table)
    labels = {id(row): grid.named(row, rest) for row in rows}
    longest = max(wide(labels[id(row)], bold=row.ours) for row in rows) + 12
    inline = longest <= WIDTH * 0.4
    tops = [figure.median for row in rows if (figure := row.figure(plot.y))]
    left = longest if inline else 4.0
    room = max(wide(f"{grid.UNSTABLE_SIGN} {fit.cell(top)}", bold=True) for top in tops) + 8
    axis, log = Axis(0, max(tops) or 1, left, WIDTH - room), plot.log_y and max(tops) > 0
    y = 24.0
    if log:
        axis = Axis.over([min(top for top in tops if top > 0) / 1.6, max(tops)], (left, WIDTH - room), True, fit.size)
        _numbers(canvas, axis, [(tick, fit.tick(tick)) for tick in axis.ticks()], y + 10)
        y += 18
    start = y
    for heading, block in blocks.items():
        if heading:
            y += 15
            canvas.text(fitted(heading, WIDTH - 8, bold=True), 4, y, "t b")
            y += 5
        for row in block:
            colour = _colour(row, plot.series, theirs) if series else "c0" if row.ours else "p"
            weight = "t b" if row.ours else "t"
            label, figure = labels[id(row)], row.figure(plot.y)
            if not inline:
                canvas.text(fitted(label, WIDTH - 8, bold=row.ours), 4, y + 12, weight)
                y += 17
            else:
                canvas.text(label, left - 8, y + 11, weight, "end")
            if figure is None:
                why = row.reason or "not measured"
                canvas.text(fitted(why, WIDTH - left - 8), left + 2, y + 11, "q")
            else:
                end = axis.at(figure.median)
                shown = fit.cell(figure.median)
                canvas.bar(colour, left, y, max(1.5, end - left), 13, f"{label}: {fit.shown(figure.median)}")
                if what.timed and figure.n > 1 and figure.deviation:
                    low, high = axis.at(figure.median - figure.deviation), axis.at(figure.median + figure.deviation)
                    canvas.line("t", [(low, y + 6.5), (high, y + 6.5)], 1.5)
                    for x in (low, high):
                        canvas.line("t", [(x, y + 3.5), (x, y + 9.5)], 1.5)
                    end = max(end, high)
                sign = f"{grid.UNSTABLE_SIGN} " if what.timed and figure.unstable else ""
                canvas.text(sign + shown, end + 5, y + 11, weight)
            y += 18 if inline else 20
        y += 4
    if log:
        grids = Canvas()
        for tick in axis.ticks():
            grids.line("g", [(axis.at(tick), start), (axis.at(tick), y - 4)])
        canvas.parts[:0] = grids.parts
    canvas.bottom = max(canvas.bottom, y - 6)


@dataclass
class Curve:
    """A line of a plot."""

    name: str
    ours: bool
    points: list[tuple[float, float]]
    errors: list[float] = field(default_factory=list)
    kind: str = ""
    dash: str = ""


def _coloured(curves: list[Curve]) -> None:
    """Gives each curve a colour, and another dash where a colour comes again; kiln's are all of its colour."""
    ours, theirs = itertools.count(), itertools.count()
    for curve in curves:
        number = next(ours if curve.ours else theirs)
        colours = 1 if curve.ours else len(COLOURS) - 1
        curve.kind = f"c{0 if curve.ours else 1 + number % colours}"
        curve.dash = DASHES[number // colours % len(DASHES)]


def amount(words: str) -> float | None:
    """Returns the number in a label, "4 KiB" or "1,000"; None if there is none."""
    if not (found := _NUMBER.search(words)):
        return None
    prefix = re.match(r"\s*([kKMGT])(i?)B?\b", words[found.end() :])
    size = (1024 if prefix[2] else 1000) ** ("KMGT".index(prefix[1].upper()) + 1) if prefix else 1
    return float(found[0].replace(",", "")) * size


def _lines(canvas: Canvas, table: TableResult, plot: Plot, rows: Sequence[RowResult]) -> None:
    what, fit = grid.column(table, plot.y), grid.unit_of(table, grid.column(table, plot.y))
    _caption(canvas, grid.title(what, fit), what.best, log=plot.log_y)
    rows = [row for row in rows if row.figure(plot.y) and plot.x in row.labels]
    if not rows:
        raise ValueError(f"{table.suite}, {table.key}: the plot's label {plot.x!r} is on no row with figures")
    marks = list(dict.fromkeys(row.labels[plot.x] for row in rows))
    numbers = {mark: amount(mark) for mark in marks}
    # Labels without numbers stand at equal distances.
    if None in numbers.values() or (plot.log_x and min(n for n in numbers.values() if n is not None) <= 0):
        numbers = {mark: float(place) for place, mark in enumerate(marks, 1)}
        log_x = False
    else:
        log_x = plot.log_x
    others = _varying(rows, (name for name in grid.label_names(table) if name != plot.x))
    keys = {(row.labels.get(plot.series), row.labels[plot.x]) for row in rows}
    split = [plot.series] if plot.series and len(keys) == len(rows) else others
    curves: dict[str, Curve] = {}
    for row in rows:
        name, figure = grid.named(row, split), row.figure(plot.y)
        assert figure is not None
        curve = curves.setdefault(name, Curve(name, row.ours, []))
        curve.points.append((numbers[row.labels[plot.x]] or 0.0, figure.median))
        curve.errors.append(figure.deviation if what.timed and figure.n > 1 else 0.0)
    for curve in curves.values():
        both = sorted(zip(curve.points, curve.errors, strict=True))
        curve.points, curve.errors = [point for point, _ in both], [error for _, error in both]
    ticks = [(number or 0.0, mark) for mark, number in numbers.items()]
    _framed(canvas, list(curves.values()), fit, plot.x, ticks, log_x, plot.log_y)


def _distribution(canvas: Canvas, table: TableResult, plot: Plot, rows: Sequence[RowResult]) -> None:
    what, fit = grid.column(table, plot.y), grid.unit_of(table, grid.column(table, plot.y))
    _caption(canvas, f"share of runs that took at most …, %, by {grid.title(what, fit)}", "")
    rows = [row for row in rows if row.values(plot.y)]
    names = _varying(rows, grid.label_names(table)) or grid.label_names(table)
    curves = []
    for row in rows:
        values = sorted(row.values(plot.y))
        steps = [(v, share / len(values)) for n, v in enumerate(values) for share in (n, n + 1)]
        curves.append(Curve(grid.named(row, names), row.ours, steps))
    # Either option means the quantity: shares have no logarithm.
    _framed(canvas, curves, units.unit("%"), grid.title(what, fit), None, plot.log_x or plot.log_y, False, fit)


def _framed(
    canvas: Canvas, curves: list[Curve], fit: units.Unit, x_title: str, marks: list[tuple[float, str]] | None,
    log_x: bool, log_y: bool, x_fit: units.Unit | None = None,
) -> None:  # fmt: skip
    """Draws curves in a frame, with names at the right, or numbers there and names below."""
    _coloured(curves)
    direct = max(wide(curve.name, bold=curve.ours) for curve in curves) <= WIDTH * 0.35
    ends = [curve.name if direct else str(number) for number, curve in enumerate(curves, 1)]
    top, bottom = 32.0, 32.0 + max(210, STEP * len(curves))
    y_axis = Axis.over((y for curve in curves for _, y in curve.points), (bottom, top), log_y, fit.size)
    left = max(wide(fit.tick(tick)) for tick in y_axis.ticks()) + 12
    right = WIDTH - max(wide(end, bold=True) for end in ends) - 22
    xs = [x for curve in curves for x, _ in curve.points]
    if marks is None:
        x_axis = Axis.over(xs, (left, right), log_x, (x_fit or fit).size, zero=False)
        marks = [(tick, (x_fit or fit).tick(tick)) for tick in x_axis.ticks()]
    else:
        x_axis = Axis(min(xs), max(max(xs), min(xs) * 1.001 + 1e-9), left + 6, right - 6, log_x)
    for tick in y_axis.ticks():
        canvas.line("g", [(left, y_axis.at(tick)), (right, y_axis.at(tick))])
        canvas.text(fit.tick(tick), left - 6, y_axis.at(tick) + 4, "q", "end")
    for value, _ in marks:
        canvas.line("g", [(x_axis.at(value), bottom), (x_axis.at(value), bottom + 4)])
    _numbers(canvas, x_axis, marks, bottom + 18)
    canvas.text(fitted(f"{x_title}, logarithmic" if log_x else x_title, WIDTH - left), left, bottom + 36, "q")
    # Distributions all end at the top: a sample of the line stands at its name there, in place of a way to its end.
    tips = spread([top if x_fit else y_axis.at(curve.points[-1][1]) for curve in curves], top, bottom)
    for curve, end, tip in zip(curves, ends, tips, strict=True):
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in curve.points]
        # Distributions have no errors, and too many points.
        for (x, y), (_, value), error in zip(places, curve.points, curve.errors, strict=False):
            canvas.line(curve.kind, [(x, y_axis.at(value - error)), (x, y_axis.at(value + error))])
            canvas.point(curve.kind, x, y, f"{curve.name}: {fit.shown(value)}", size=3)
        canvas.line(curve.kind, places, 3 if curve.ours else 1.75, curve.dash)
        if x_fit:
            canvas.line(curve.kind, [(right + 2, tip), (right + 16, tip)], 3 if curve.ours else 1.75, curve.dash)
        else:
            canvas.line(curve.kind, [(places[-1][0] + 4, places[-1][1]), (right + 14, tip)], 0.75)
        canvas.text(end, right + 18, tip + 4, f"{curve.kind} b" if curve.ours else curve.kind)
    if not direct:
        entries = [(str(number), curve.name, curve.kind, curve.ours) for number, curve in enumerate(curves, 1)]
        _listing(canvas, entries)


def _listing(canvas: Canvas, entries: Sequence[tuple[str, str, str, bool]]) -> None:
    """Writes numbers and names under a plot, in two columns where they fit."""
    y = canvas.bottom + 18
    two = max(wide(f"{name}  00", bold=True) for _, name, _, _ in entries) <= WIDTH / 2 - 20
    half = math.ceil(len(entries) / 2) if two else len(entries)
    for place, (number, name, kind, ours) in enumerate(entries):
        x, at = WIDTH / 2 * (place // half), y + STEP * (place % half)
        canvas.text(number, x + 20, at, f"{kind} b", "end")
        canvas.text(fitted(name, WIDTH / (2 if two else 1) - 30, bold=ours), x + 27, at, "t b" if ours else "t")


def _scatter(canvas: Canvas, table: TableResult, plot: Plot, rows: Sequence[RowResult]) -> None:
    x_what, y_what = grid.column(table, plot.x), grid.column(table, plot.y)
    x_fit, y_fit = grid.unit_of(table, x_what), grid.unit_of(table, y_what)
    _caption(canvas, grid.title(y_what, y_fit), y_what.best, log=plot.log_y)
    beaten = grid.dominated(table, plot.x, plot.y, rows)
    names = _varying(rows, grid.label_names(table)) or grid.label_names(table)
    spots = [(row, x, y) for row in rows
             if (x := row.median(plot.x)) is not None and (y := row.median(plot.y)) is not None]  # fmt: skip
    series = _theirs([row for row, _, _ in spots], plot.series)
    top, bottom = 32.0, 310.0
    y_axis = Axis.over((y for _, _, y in spots), (bottom, top), plot.log_y, y_fit.size, zero=False)
    left = max(wide(y_fit.tick(tick)) for tick in y_axis.ticks()) + 12
    x_axis = Axis.over((x for _, x, _ in spots), (left, WIDTH - 16), plot.log_x, x_fit.size, zero=False)
    for tick in y_axis.ticks():
        canvas.line("g", [(left, y_axis.at(tick)), (WIDTH - 16, y_axis.at(tick))])
        canvas.text(y_fit.tick(tick), left - 6, y_axis.at(tick) + 4, "q", "end")
    for tick in x_axis.ticks():
        canvas.line("g", [(x_axis.at(tick), top), (x_axis.at(tick), bottom + 4)])
    _numbers(canvas, x_axis, [(tick, x_fit.tick(tick)) for tick in x_axis.ticks()], bottom + 18)
    more = ", logarithmic" if plot.log_x else ""
    words = f"{grid.title(x_what, x_fit)}{more} · {x_what.best or 'less'} is better"
    canvas.text(fitted(words, WIDTH - left), left, bottom + 36, "q")
    if beaten:
        canvas.text("Hollow: another is as good in both, and better in one.", 4, bottom + 53, "q")
    places: list[Place] = [(x_axis.at(x), y_axis.at(y)) for _, x, y in spots]
    kinds = [_colour(row, plot.series, series) if plot.series or row.ours else "c6" for row, _, _ in spots]
    # A line through the best of each series.
    for name in dict.fromkeys(row.labels.get(plot.series, "") for row, _, _ in spots) if plot.series else ():
        same = [row for row, _, _ in spots if row.labels.get(plot.series, "") == name]
        worse = grid.dominated(table, plot.x, plot.y, same)
        way = sorted((*place, kind) for place, kind, (row, _, _) in zip(places, kinds, spots, strict=True)
                     if any(row is one for one in same) and id(row) not in worse)  # fmt: skip
        if len(way) > 1:
            canvas.line(way[0][2], [(x, y) for x, y, _ in way], 0.75, "3 3")
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for number, ((row, x, y), place, kind) in enumerate(zip(spots, places, kinds, strict=True), 1):
        tip = f"{grid.named(row, names)}: {x_fit.shown(x)}, {y_fit.shown(y)}"
        canvas.point(kind, *place, tip, hollow=id(row) in beaten, size=5 if row.ours else 4)
        at = _beside(place, str(number), taken)
        canvas.text(str(number), *at, f"{kind} b" if row.ours else kind)
    entries = [(str(number), grid.named(row, names), kind, row.ours)
               for number, ((row, _, _), kind) in enumerate(zip(spots, kinds, strict=True), 1)]  # fmt: skip
    _listing(canvas, entries)


def _beside(place: Place, words: str, taken: list[tuple[float, float, float, float]]) -> Place:
    """Returns the place near a point where words cover least of what is there, and takes it."""
    width, (x, y) = wide(words), place
    best = None
    for away in (7, 13, 20):
        for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)):
            left = x + dx * away - (width if dx < 0 else width / 2 if dx == 0 else 0)
            base = y + 4.5 + dy * (away + 4)
            box = (left, base - 11, left + width, base + 2)
            over = sum(
                max(0.0, min(box[2], b[2]) - max(box[0], b[0])) * max(0.0, min(box[3], b[3]) - max(box[1], b[1]))
                for b in taken
            )
            out = 1000.0 if box[0] < 0 or box[2] > WIDTH or box[1] < 18 else 0.0
            if best is None or over + out + away < best[0]:
                best = (over + out + away, left, base, box)
    assert best is not None
    taken.append(best[3])
    return best[1], best[2]
