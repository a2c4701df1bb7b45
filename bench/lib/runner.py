"""Runs tables: rows in turns, round by round; a row that cannot run keeps its place with a reason."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from lib import machine, programs, results
from lib.bench import Bench, say
from lib.disks import entries
from lib.process import Failed
from lib.suite import Missing, Row, Suite, Table, Wrong

T = TypeVar("T")
# Programs whose versions every result names, if they are here.
NAMED = (
    "kiln",
    "mkfs.erofs",
    "mksquashfs",
    "mkcomposefs",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "fio",
    "restic",
    "borg",
    "zstd",
    "tar",
    "rsync",
    "squashfuse_ll",
    "fuse-zip",
    "archivemount",
    "ratarmount",
)


def facts(form: str) -> dict[str, Any]:
    """Returns what stands with every table: machine, programs, form."""
    versions = {name: version for name in NAMED if (version := programs.version(name))}
    return {**machine.facts(), "form": form, "versions": versions}


def rotated(items: Sequence[T], by: int) -> list[T]:
    """Returns the items beginning with another one, so that none is always the first of its round."""
    by %= max(1, len(items))
    return [*items[by:], *items[:by]]


def run_suite(
    suite: Suite,
    bench: Bench,
    out: Path,
    *,
    only: re.Pattern[str],
    rounds: int | None,
    done: set[str],
    about: dict[str, Any],
    minutes: float | None = None,
    earlier: Mapping[str, results.TableResult] | None = None,
) -> list[str]:
    """Runs the tables of a suite that are not `done`, and puts each into a file when it is complete, with the runs of
    `earlier` times. Returns the problems: rows that failed or were void. No round of a table begins after so many
    `minutes` of rounds."""
    problems: list[str] = []
    for table in suite.tables:
        if table.key in done or not only.search(table.key):
            continue
        start = time.monotonic()
        say(f"{suite.name}: {table.key}: {table.title}")
        rows = run_table(table, bench, rounds, minutes)
        for row, _ in rows:
            if row.reason.startswith(("failed:", "void:")):
                problems.append(f"{suite.name}, {table.key}: {', '.join(row.labels.values())}: {row.reason}")
        took = {
            "took_s": round(time.monotonic() - start, 1),
            "trees": {tree.name: entries(tree) for tree in sorted(bench.used)},
        }
        found = results.TableResult(
            suite.name,
            table.key,
            table.title,
            [asdict(column) for column in table.columns],
            {**asdict(table.plot), "only": dict(table.plot.only)},
            {**about, **took},
            table.note,
            table.published,
            table.modelled,
            [
                results.RowResult(row.labels, runs, row.reason, row.command, row.published, row.ours)
                for row, runs in rows
            ],
        )
        before = (earlier or {}).get(table.key)
        results.put(out, results.joined(before, found) if before else found)
    return problems


def run_table(
    table: Table, bench: Bench, rounds: int | None = None, minutes: float | None = None
) -> list[tuple[Row, list[Any]]]:
    """Measures a table. Rows that another row's failure does not touch go on."""
    with bench.table():
        try:
            rows = list(table.rows(bench))
        except (Missing, Failed) as error:
            return [(Row({"": "all"}, reason=reason_of(error)), [])]
        runs: list[list[Any]] = [[] for _ in rows]
        for row in rows:
            if row.check and not row.reason:
                guarded(row, row.check)
        count = rounds or (table.quick_rounds if bench.quick else table.rounds)
        start = time.monotonic()
        for number in range(count):
            if minutes and time.monotonic() > start + 60 * minutes:
                break
            for row, found in rotated(list(zip(rows, runs, strict=True)), number):
                if row.reason or row.measure is None or len(found) >= (row.most or count):
                    continue
                run = guarded(row, row.measure)
                if run is None:
                    found.clear()
                else:
                    found.append(dict(run))
                    say(f"  {', '.join(row.labels.values())}: {brief(run)}")
        for row in rows:
            if row.reason:
                say(f"  {', '.join(row.labels.values())}: {row.reason}")
        return list(zip(rows, runs, strict=True))


def guarded(row: Row, work: Any) -> Any:
    """Does a row's work; a problem becomes its reason."""
    try:
        return work()
    except (Missing, Wrong, Failed, OSError, subprocess.SubprocessError) as error:
        row.reason = reason_of(error)
        return None


def reason_of(error: Exception) -> str:
    """Returns the reason that a row shows: why it cannot run, that it is void, or that it failed."""
    if isinstance(error, Missing):
        return str(error)
    return f"void: {error}" if isinstance(error, Wrong) else f"failed: {error}"


def brief(run: dict[str, float]) -> str:
    """Returns a run in a few words, for the progress."""
    return ", ".join(f"{key} {value:.4g}" for key, value in run.items())
