"""A suite: tables, claims that it can judge, and words about its results.

A module `suites/NAME.py` has `SUITE = Suite(...)`. A table names its columns and makes its rows; the runner measures
the rows in turns; the report reads what the runner has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lib.bench import Bench
    from lib.results import Results

Run = Mapping[str, float]  # one measurement: numbers by key of column


class Missing(Exception):
    """Something that a row needs is not on this machine. The message is the reason that the report shows."""


class Wrong(Exception):
    """A row gave other bytes than the source has: it is void."""


@dataclass(frozen=True)
class Column:
    """A quantity of a table. `best` says which direction is better, if one is."""

    key: str
    title: str
    unit: str
    best: Literal["less", "more", ""] = "less"
    # A count or a size repeats exactly: it is never marked as unstable.
    timed: bool = True


WALL = Column("wall_s", "wall", "s")
CPU = Column("cpu_s", "CPU", "s")
MEMORY = Column("memory_bytes", "peak memory", "MiB")
SIZE = Column("size_bytes", "size", "MB", timed=False)
RATIO = Column("ratio", "ratio", "%", timed=False)
FETCHED = Column("fetched_bytes", "from the device", "MB", timed=False)
REQUESTS = Column("requests", "requests", "", timed=False)
RATE = Column("rate", "throughput", "MiB/s", "more")


@dataclass(frozen=True)
class Plot:
    """Drawing of a table in the report.

    * `bars`: a bar for each row, `y` its length; rows that differ only in the label `series` lie together.
    * `lines`: `x` is a label with numbers, a line for each value of `series`.
    * `scatter`: `x` and `y` are keys of columns; points that another beats in both are marked.
    * `distribution`: the share of runs that took at most `y`, a line for each row.
    """

    kind: Literal["bars", "lines", "scatter", "distribution"]
    y: str
    x: str = ""
    series: str = ""
    log_x: bool = False
    log_y: bool = False
    # Only rows with these labels are drawn.
    only: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Row:
    """A contestant in a case. `labels` name it, one for each leading column of the table."""

    labels: dict[str, str]
    measure: Callable[[], Run] | None = None
    # Compares bytes, once, before anything is timed. Raises Wrong or Missing.
    check: Callable[[], None] | None = None
    # The command line, as one can type it, without paths of this machine.
    command: str = ""
    # The figures of the same row in the published table, by key of column.
    published: Mapping[str, float] = field(default_factory=dict)
    ours: bool = False
    # The reason why there are no figures; set by the runner, too.
    reason: str = ""
    # Most runs of a row that takes long; None: as many as there are rounds.
    most: int | None = None


@dataclass(frozen=True)
class Table:
    """Rows that are measured in turns and shown together."""

    key: str
    title: str  # at most 96 characters
    columns: Sequence[Column]
    rows: Callable[[Bench], Iterable[Row]]
    plot: Plot
    rounds: int = 5
    quick_rounds: int = 1
    # Where the published table stands, as `published/` spells it: "B2". Empty: there is none.
    published: str = ""
    # Set-up in plain words: what is cold, what is counted, what differs from the published one.
    note: str = ""
    modelled: bool = False  # on a model of a disk


@dataclass(frozen=True)
class Verdict:
    """Judgement of our figures on a published claim."""

    kind: Literal["holds", "no longer", "never shown", "not to be told apart", "cannot be shown here", "not run"]
    ours: str = ""  # our figures, as one phrase
    why: str = ""


@dataclass(frozen=True)
class Claim:
    """A published claim, by its number in `published/claims.toml`, and its test."""

    number: int
    judge: Callable[[Results], Verdict]


@dataclass(frozen=True)
class Suite:
    """Tables about one question."""

    name: str
    title: str
    # What the suite asks, in one paragraph.
    about: str
    tables: Sequence[Table]
    # Sentences about results: who wins, by how much, why. Where kiln loses comes first.
    words: Callable[[Results], Sequence[str]]
    claims: Sequence[Claim] = ()
