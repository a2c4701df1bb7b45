"""Verdicts on claims: ratios of neighbours and orders, never seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from lib.results import Results, RowResult
from lib.suite import Verdict
from lib.words import number

Labels = Mapping[str, str]


def absent(results: Results, suite: str, table: str, *rows: Labels) -> Verdict | None:
    """Returns the verdict if a row is missing: *cannot be shown here* with its reason, or *not run*."""
    found = results.table(suite, table)
    if found is None:
        return Verdict("not run")
    for labels in rows:
        row = found.find(**labels)
        if row is None or not row.runs:
            reason = row.reason if row else ""
            return Verdict("cannot be shown here" if reason else "not run", why=reason)
    return None


def ratio(
    results: Results,
    suite: str,
    table: str,
    column: str,
    row: Labels,
    to: Labels,
    holds: Callable[[float], bool],
    why: str = "",
    otherwise: str = "",
) -> Verdict:
    """Judges a quotient of two medians. `why` explains a claim that holds, `otherwise` one that does not."""
    if verdict := absent(results, suite, table, row, to):
        return verdict
    quotient = results.ratio(suite, table, column, row, to)
    if quotient is None:
        return Verdict("not run")
    good = holds(quotient)
    return Verdict("holds" if good else "no longer", f"{number(quotient)} times", why if good else otherwise)


def order(
    results: Results,
    suite: str,
    table: str,
    column: str,
    better: Labels,
    worse: Sequence[Labels] | Labels,
    *,
    more: bool = False,
    why: str = "",
    otherwise: str = "",
) -> Verdict:
    """Judges that one row is better than others: by more than the noise of both."""
    others = [worse] if isinstance(worse, Mapping) else list(worse)
    if verdict := absent(results, suite, table, better, *others):
        return verdict
    found = results.table(suite, table)
    assert found is not None
    one = found.find(**better)
    kinds, ours = [], []
    for labels in others:
        other = found.find(**labels)
        assert one is not None and other is not None
        kind, quotient = apart(one, other, column, more)
        kinds.append(kind)
        differing = {key: value for key, value in labels.items() if better.get(key) != value}
        ours.append(f"{number(quotient)} times {name(differing or labels)}'s")
    kind = "no longer" if -1 in kinds else "not to be told apart" if 0 in kinds else "holds"
    return Verdict(kind, ", ".join(ours), why if kind == "holds" else otherwise)


def steps(
    results: Results, suite: str, table: str, column: str, rows: Sequence[Labels], *, more: bool = True
) -> Verdict:
    """Judges that each row is above the one before it, or below: by more than the noise of both."""
    pairs = zip(rows[1:], rows, strict=False)
    return joined(*(order(results, suite, table, column, after, before, more=more) for after, before in pairs))


def joined(*verdicts: Verdict) -> Verdict:
    """Returns one verdict of several that must all hold: the worst kind, and the figures of all."""
    kinds = ("not run", "cannot be shown here", "never shown", "no longer", "not to be told apart", "holds")
    worst = min(verdicts, key=lambda verdict: kinds.index(verdict.kind))
    whole = worst.kind not in kinds[:2]
    return Verdict(worst.kind, "; ".join(one.ours for one in verdicts if one.ours) if whole else "", worst.why)


def value(
    results: Results,
    suite: str,
    table: str,
    column: str,
    row: Labels,
    holds: Callable[[float], bool],
    told: Callable[[float], str],
    why: str = "",
    otherwise: str = "",
) -> Verdict:
    """Judges one median. `told` says it as a phrase."""
    if verdict := absent(results, suite, table, row):
        return verdict
    found = results.median(suite, table, column, **row)
    if found is None:
        return Verdict("not run")
    good = holds(found)
    return Verdict("holds" if good else "no longer", told(found), why if good else otherwise)


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """Joins the verdicts on the parts of a claim: it holds if all do, and else the worst counts."""
    ranks = ("no longer", "cannot be shown here", "not run", "not to be told apart", "never shown", "holds")
    found = list(verdicts)
    worst = min(found, key=lambda one: ranks.index(one.kind))
    said = dict.fromkeys(one.ours for one in found if one.ours)
    whys = dict.fromkeys(one.why for one in found if one.why and one.kind == worst.kind)
    return Verdict(worst.kind, "; ".join(said), "; ".join(whys))


def called(name: str, verdict: Verdict) -> Verdict:
    """Returns a part of a claim with its name before its figures."""
    return replace(verdict, ours=f"{name}: {verdict.ours}") if verdict.ours else verdict


def apart(one: RowResult, other: RowResult, column: str, more: bool) -> tuple[int, float]:
    """Returns 1 if a row is better than another, -1 if worse, 0 if the noise does not tell; and the quotient."""
    a, b = one.figure(column), other.figure(column)
    if a is None or b is None or b.median == 0:
        return 0, float("nan")
    noise = (a.deviation**2 + b.deviation**2) ** 0.5
    if abs(a.median - b.median) <= max(noise, 0.01 * b.median):
        return 0, a.median / b.median
    return (1 if (a.median > b.median) == more else -1), a.median / b.median


def name(labels: Labels) -> str:
    """Returns labels as a name."""
    return " ".join(labels.values())
