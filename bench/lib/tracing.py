"""Trace events of the kernel, in an instance of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lib import machine
from lib.disks import mounted
from lib.process import Failed
from lib.suite import Missing


@contextmanager
def tracing(place: Path) -> Iterator[Path]:
    """The kernel's trace events, in an instance of our own. Raises Missing."""
    machine.need_root("tracing")
    try:
        with mounted(Path("tracefs"), place, "tracefs", "rw"):
            instance = place / "instances/kiln-bench"
            instance.mkdir()
            try:
                (instance / "buffer_size_kb").write_text("16384")
                yield instance
            finally:
                instance.rmdir()
    except (Failed, OSError) as error:
        raise Missing(f"no trace events in this kernel: {error}") from error


def traced(trace: Path, events: Sequence[str], work: Callable[[], None]) -> list[str]:
    """Does work, and returns the lines of events meanwhile."""
    (trace / "trace").write_text("")
    for event in events:
        (trace / "events" / event / "enable").write_text("1")
    try:
        work()
    finally:
        for event in events:
            (trace / "events" / event / "enable").write_text("0")
    return (trace / "trace").read_text().splitlines()
