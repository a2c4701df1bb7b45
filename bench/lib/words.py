"""Sentences about results. Those where kiln loses come first."""

from __future__ import annotations

from collections.abc import Mapping

from lib.results import Results

# Quotients nearer to 1 than this are no win and no loss.
EQUAL = 0.03


class Words:
    """Collects the sentences of a suite's page."""

    def __init__(self, results: Results, suite: str) -> None:
        self.results, self.suite = results, suite
        self._found: list[tuple[int, str]] = []

    def compare(
        self,
        table: str,
        column: str,
        ours: Mapping[str, str],
        theirs: Mapping[str, str],
        what: str,
        *,
        of: str,
        to: str,
        where: str = "",
        why: str = "",
        more: bool = False,
    ) -> None:
        """Adds `OF takes 0.92 of the WHAT of TO WHERE: WHY.`, if both rows were measured. `more`: more is better."""
        quotient = self.results.ratio(self.suite, table, column, ours, theirs)
        if quotient is None:
            return
        wins = quotient > 1 if more else quotient < 1
        rank = 1 if abs(quotient - 1) < EQUAL else 2 if wins else 0
        verb = "reaches" if more else "takes"
        place, reason = f" {where}" if where else "", f": {why}" if why else ""
        self._found.append((rank, f"{of} {verb} {of_times(quotient)} the {what} of {to}{place}{reason}."))

    def spread(
        self,
        table: str,
        column: str,
        cases: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]],
        what: str,
        *,
        of: str,
        to: str,
        where: str = "",
        why: str = "",
    ) -> None:
        """Adds one sentence on several cases, by name: `OF takes 0.51 (A) to 1.3 (B) of the WHAT of TO WHERE: WHY.`"""
        pairs = ((name, self.results.ratio(self.suite, table, column, *rows)) for name, rows in cases.items())
        found = sorted((quotient, name) for name, quotient in pairs if quotient is not None)
        if not found:
            return
        (least, best), (most, worst) = found[0], found[-1]
        rank = 0 if most > 1 + EQUAL else 1 if most > 1 - EQUAL else 2
        range_ = f"{number(least)} ({best})" + (f" to {number(most)} ({worst})" if len(found) > 1 else "")
        place, reason = f" {where}" if where else "", f": {why}" if why else ""
        self._found.append((rank, f"{of} takes {range_} of the {what} of {to}{place}{reason}."))

    def say(self, sentence: str, *, loses: bool = False) -> None:
        """Adds a sentence that was made elsewhere."""
        self._found.append((0 if loses else 2, sentence))

    def sentences(self) -> list[str]:
        """Returns the sentences: losses, draws, wins."""
        return [begun(sentence) for _, sentence in sorted(self._found, key=lambda one: one[0])]


def begun(sentence: str) -> str:
    """Returns a sentence with a capital, unless it begins with the name of a program."""
    return sentence if sentence.startswith(("kiln", "mk")) else sentence[:1].upper() + sentence[1:]


def number(value: float) -> str:
    """Returns a quotient with two or three digits: `0.92`, `1.3`, `17`."""
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def of_times(quotient: float) -> str:
    """Returns what stands between a verb and a noun: `0.92 of` or `1.3 times`."""
    return f"{number(quotient)} {'of' if quotient < 1 else 'times'}"


def percent(value: float) -> str:
    """Returns a share with its sign, relative to 1: `0.91` is `−9.0 %`."""
    return f"{(value - 1) * 100:+.1f} %".replace("-", "−")
