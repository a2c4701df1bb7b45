"""Published claims, joined with the verdicts of the suites that can judge them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args, get_type_hints

from lib import published
from lib.results import Results
from lib.suite import Suite, Verdict

FILE = Path(__file__).resolve().parent.parent / "published" / "claims.toml"
KINDS: tuple[str, ...] = get_args(get_type_hints(Verdict)["kind"])
KIND_WORDS = {
    "holds": "our figures say the same",
    "no longer": "our figures, of newer versions, say otherwise",
    "never shown": "their own figures say otherwise",
    "not to be told apart": "the difference is smaller than the deviation",
    "cannot be shown here": "this machine lacks something that the test needs",
    "not run": "no suite has judged it in these results",
}


@dataclass(frozen=True)
class Judged:
    """A claim and what our figures say of it."""

    number: int
    suite: str
    source: str
    where: str
    text: str
    theirs: str
    test: str
    verdict: Verdict
    # Words where their own figures speak against the claim.
    against: str = ""


def judged(suites: Iterable[Suite], results: Results, file: Path = FILE) -> list[Judged]:
    """Returns all claims by number. Raises ValueError if a suite judges a number that is not there, or one twice."""
    try:
        records = tomllib.loads(file.read_text())["claim"] if file.exists() else []
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise ValueError(f"{file.name}: {error}") from error
    judges: dict[int, tuple[str, Callable[[Results], Verdict] | None]] = {}
    for suite in suites:
        for claim in suite.claims:
            if claim.number in judges:
                raise ValueError(f"{suite.name}: claim {claim.number} has a judge in {judges[claim.number][0]}, too")
            judges[claim.number] = (suite.name, claim.judge)
    found = []
    for record in sorted(records, key=lambda record: record["number"]):
        name, judge = judges.pop(record["number"], ("", None))
        if judge is None:
            verdict = Verdict("not run", why="no suite judges it")
        elif not results.of(name):
            verdict = Verdict("not run", why=f"the suite {name} has not run")
        else:
            verdict = judge(results)
        try:
            found.append(Judged(**{**record, "suite": name or record["suite"]}, verdict=verdict))
        except TypeError as error:
            raise ValueError(f"{file.name}: claim {record['number']}: {error}") from error
    if judges:
        number, (name, _) = next(iter(judges.items()))
        raise ValueError(f"{name}: claim {number} is not in {file.name}")
    return found


def counts(claims: Sequence[Judged]) -> list[tuple[str, int]]:
    """Returns the number of claims by verdict, also of those that no claim has."""
    return [(kind, sum(claim.verdict.kind == kind for claim in claims)) for kind in KINDS]


def by_source(claims: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    """Returns claims by source, with the source in words."""
    letters = dict.fromkeys(claim.source for claim in claims)
    return [(source_words(letter), [claim for claim in claims if claim.source == letter]) for letter in letters]


def source_words(letter: str) -> str:
    """Returns who a source is: a table of it says so. Without one, its letter."""
    tables = sorted((name for name in published.names() if name.startswith(letter)), key=len)
    return f"{letter}: {published.source(tables[0])}" if tables else letter


def summary(claims: Sequence[Judged]) -> str:
    """Returns the counts in a sentence; verdicts that no claim has are left out."""
    parts = [f"{kind} {count}" for kind, count in counts(claims) if count]
    return f"{len(claims)} published claims: {', '.join(parts)}."
