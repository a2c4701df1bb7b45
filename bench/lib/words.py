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
        size = f"{number(quotient)} {'of' if quotient < 1 else 'times'}"
        self._found.append((rank, f"{of} {verb} {size} the {what} of {to}{place}{reason}."))

    def say(self, sentence: str, *, loses: bool = False) -> None:
        """Adds a sentence that was made elsewhere."""
        self._found.append((0 if loses else 2, sentence))

    def sentences(self) -> list[str]:
        """Returns the sentences: losses, draws, wins."""
        return [sentence for _, sentence in sorted(self._found, key=lambda one: one[0])]


def number(value: float) -> str:
    """Returns a quotient with two or three digits: `0.92`, `1.3`, `17`."""
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def percent(value: float) -> str:
    """Returns a share with its sign, relative to 1: `0.91` is `−9.0 %`."""
    return f"{(value - 1) * 100:+.1f} %".replace("-", "−")
