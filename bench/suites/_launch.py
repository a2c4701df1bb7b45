"""Sentences and verdicts about starts of programs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from lib import judge
from lib.results import Results, RowResult, percentile
from lib.suite import Claim, Verdict
from lib.words import EQUAL, Words, number, of_times
from suites._systems import EROFS, EXT4, KERNEL, MOUNT, SQUASHFS, SYSTEMS, System


def shares(results: Results, table: str, system: Mapping[str, str], to: Mapping[str, str]) -> dict[str, float]:
    """Returns the median start from one system in that from another, by program."""
    found = results.table("launch", table)
    names = dict.fromkeys(row.labels.get("program", "") for row in found.rows) if found else {}
    pairs = {
        name: results.ratio("launch", table, "wall_s", {**system, "program": name}, {**to, "program": name})
        for name in names
    }
    return {name: pair for name, pair in pairs.items() if pair is not None}


def row_of(results: Results, table: str, **labels: str) -> RowResult | None:
    """Returns a row that was measured."""
    found = results.table("launch", table)
    row = found.find(**labels) if found else None
    return row if row and row.runs else None


def from_shares(
    results: Results, table: str, first: Mapping[str, str], judged: Callable[[list[float]], Verdict]
) -> Verdict:
    """Judges starts of all programs in those from ext4. Without any, says why."""
    key = next(iter(first))
    found = list(shares(results, table, first, {key: EXT4.name}).values())
    if found:
        return judged(found)
    return judge.absent(results, "launch", table, first, {key: EXT4.name}) or Verdict("not run")


def mean_less(found: list[float]) -> Verdict:
    """Judges that the mean of all programs is less than ext4's."""
    mean = statistics.fmean(found)
    kind = "holds" if mean < 0.99 else "no longer" if mean > 1.01 else "not to be told apart"
    why = "" if kind == "holds" else "reading more bytes costs this disk little; the paper's are of phones"
    return Verdict(kind, f"mean of {len(found)} programs {number(mean)} times ext4's", why)  # type: ignore[arg-type]


def best_of(found: list[float]) -> Verdict:
    """Judges that one program gains over 15 %."""
    return Verdict("holds" if min(found) < 0.85 else "no longer", f"the best takes {number(min(found))} of ext4's time")


def pinned_level(found: list[float]) -> Verdict:
    """Judges that pinned starts take at most 1.02 of ext4's time."""
    mean = statistics.fmean(found)
    return Verdict("holds" if mean <= 1.02 else "no longer", f"mean {number(mean)} times ext4's", "by kiln mount --pin")


def in_little_memory(
    results: Results, table: str, one: System, judged: Callable[[list[float], list[float]], Verdict]
) -> Verdict:
    """Judges the starts from a system beside those from ext4, in little memory."""
    rows = [row_of(results, table, system=system.name) for system in (one, EXT4)]
    if rows[0] is None or rows[1] is None:
        return judge.absent(results, "launch", table, {"system": one.name}, {"system": EXT4.name}) or Verdict("not run")
    return judged(sorted(rows[0].values("wall_s")), sorted(rows[1].values("wall_s")))


def most_quantiles(ours: list[float], theirs: list[float]) -> Verdict:
    """Judges that nine quantiles of ten are less."""
    share = statistics.fmean(one < other for one, other in zip(ours, theirs, strict=False))
    return Verdict("holds" if share >= 0.9 else "no longer", f"ahead in {share:.0%} of the quantiles")


def slowest(ours: list[float], theirs: list[float]) -> Verdict:
    """Judges that the slowest start is slower."""
    return Verdict(
        "holds" if ours[-1] > theirs[-1] else "no longer", f"its slowest {number(ours[-1] / theirs[-1])} times ext4's"
    )


def stalls(ours: list[float], theirs: list[float]) -> Verdict:
    """Judges that p99 is over ten times ext4's."""
    quotient = percentile(ours, 0.99) / percentile(theirs, 0.99)
    why = "one start of an interpreter fits in this memory" if quotient <= 10 else ""
    return Verdict("holds" if quotient > 10 else "no longer", f"p99 {number(quotient)} times ext4's", why)


def slow_cores(results: Results) -> Verdict:
    """Judges that decoding in the reader's thread gains more with less of a processor."""
    rows = [
        {"processor": p, "decoded": d} for p in ("whole", "a fifth") for d in ("in the reader's thread", "handed over")
    ]
    if verdict := judge.absent(results, "launch", "quota", *rows):
        return verdict
    gains = [results.ratio("launch", "quota", "rate", rows[at], rows[at + 1]) or 0.0 for at in (0, 2)]
    ours = f"the gain is {number(gains[1])} times with a fifth of a processor, {number(gains[0])} times with one"
    why = "a group limits the reader, not the kernel's worker that decodes for it: handing over evades the limit"
    quotient = gains[1] / gains[0]
    kind = "holds" if quotient > 1 + EQUAL else "no longer" if quotient < 1 - EQUAL else "not to be told apart"
    return Verdict(kind, ours, "" if kind == "holds" else why)


def plain_files(results: Results) -> Verdict:
    """Judges that plain files cost little space and no time."""
    some, none = {"files": "plain if over 90 %"}, {"files": "all compressed"}
    return judge.joined(
        judge.ratio(results, "launch", "plain", "size_bytes", some, none, lambda quotient: quotient < 1.02),
        judge.ratio(results, "launch", "plain", "wall_s", some, none, lambda quotient: quotient <= 1.03),
    )


def aged(results: Results) -> Verdict:
    """Judges that starts are no slower at the end of a soak."""
    table = results.table("launch", "soak")
    last = max((row.labels["slice"] for row in table.rows if "slice" in row.labels), default="1") if table else "1"
    ends = [{"slice": at, "system": EROFS.name} for at in (last, "1")]
    why = "a soak of hours, not of days"
    return judge.ratio(results, "launch", "soak", "p99_s", ends[0], ends[1], lambda quotient: quotient <= 1.2, why)


def words(results: Results) -> list[str]:
    """Returns what the tables say."""
    said = Words(results, "launch")
    for table, state in (("quiet", "quiet"), ("loaded", "with reads and writes behind them")):
        for system in (EROFS, SQUASHFS, KERNEL, MOUNT):
            if found := shares(results, table, {"system": system.name}, {"system": EXT4.name}):
                mean = statistics.fmean(found.values())
                best = min(found, key=lambda name: found[name])
                text = f"Starts of {len(found)} programs from {system.name} take {of_times(mean)} the time from ext4, "
                text += f"{state}; the best, {best}, {number(found[best])}."
                said.say(text, loses=system.ours and mean > 1.03)
    for table, state in (
        ("short", "while another program eats memory"),
        ("stalls", "with reads and writes behind them"),
    ):
        theirs = row_of(results, table, system=EXT4.name)
        for system in SYSTEMS[1:]:
            row = row_of(results, table, system=system.name)
            if row and theirs:
                quotients = [
                    f"{name} {number(percentile(row.values('wall_s'), at) / percentile(theirs.values('wall_s'), at))}"
                    for name, at in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))
                ]
                loses = system.ours and percentile(row.values("wall_s"), 0.5) > percentile(theirs.values("wall_s"), 0.5)
                said.say(
                    f"In little memory, {state}, {system.name} has of ext4's start {', '.join(quotients)}.", loses=loses
                )
    for way in ("kernel, --order", "kiln mount, --order", "kiln mount, relayout", "kiln mount, --order, --pin"):
        if found := shares(results, "hot", {"way": way}, {"way": MOUNT.name}):
            mean = statistics.fmean(found.values())
            said.say(
                f"Starts by “{way}” take {of_times(mean)} the time of kiln mount without a list.", loses=mean > 1.03
            )
    return said.sentences()


CLAIMS = [
    Claim(69, lambda results: from_shares(results, "quiet", {"system": EROFS.name}, mean_less)),
    Claim(70, lambda results: from_shares(results, "loaded", {"system": EROFS.name}, mean_less)),
    Claim(71, lambda results: from_shares(results, "quiet", {"system": EROFS.name}, best_of)),
    Claim(72, lambda results: in_little_memory(results, "short", EROFS, most_quantiles)),
    Claim(73, lambda results: in_little_memory(results, "short", EROFS, slowest)),
    Claim(74, lambda results: in_little_memory(results, "stalls", SQUASHFS, stalls)),
    Claim(75, slow_cores),
    Claim(76, plain_files),
    Claim(77, lambda results: from_shares(results, "hot", {"way": "kiln mount, --order, --pin"}, pinned_level)),
    Claim(78, aged),
]
