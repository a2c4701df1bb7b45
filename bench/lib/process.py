"""Runs programs and measures them: wall, CPU, peak memory."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

Command = Sequence[str | os.PathLike[str]]
TIMEOUT_S = 4 * 3600
ERRORS = 600  # bytes of a program's messages that are kept


class Failed(Exception):
    """A program ended with an error. The message names it, with the end of what it said."""


@dataclass(frozen=True)
class Cost:
    """Cost of programs that have ended."""

    wall_s: float
    cpu_s: float
    # The sum over the programs of a pipeline. None: no more than Python, which Linux counts for its children.
    memory_bytes: int | None

    def run(self, **more: float) -> dict[str, float]:
        """Returns the cost as a run, with more columns."""
        known = {"memory_bytes": float(self.memory_bytes)} if self.memory_bytes else {}
        return {"wall_s": self.wall_s, "cpu_s": self.cpu_s, **known, **more}


def own_peak() -> int:
    """Peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(
    *commands: Command,
    stdin: Path | None = None,
    output: Path | None = None,
    flush: Path | None = None,
    accept: Sequence[int] = (0,),
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Cost:
    """Runs programs, as a pipeline if there are several. `flush` is a file whose writing to the disk is part of the
    time. Raises Failed."""
    children: list[subprocess.Popen[bytes]] = []
    with (
        tempfile.TemporaryFile() as messages,
        open(stdin or os.devnull, "rb") as source,
        open(output or os.devnull, "wb") as sink,
    ):
        before = source
        start = time.perf_counter()
        try:
            for number, command in enumerate(commands):
                last = number == len(commands) - 1
                child = subprocess.Popen(
                    command,
                    stdin=before,
                    stdout=sink if last else subprocess.PIPE,
                    stderr=messages,
                    cwd=cwd,
                    env={**os.environ, **env} if env else None,
                )
                children.append(child)
                if before is not source:
                    before.close()  # else a program that ends early is never told to the one before it
                before = child.stdout  # type: ignore[assignment]
            cpu_s, memory = 0.0, 0
            for command, child in zip(commands, children, strict=True):
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
                cpu_s += usage.ru_utime + usage.ru_stime
                memory += usage.ru_maxrss * 1024 if usage.ru_maxrss * 1024 > own_peak() else 0
                if child.returncode not in accept:
                    messages.seek(max(0, messages.seek(0, os.SEEK_END) - ERRORS))
                    said = in_a_line(messages.read())
                    raise Failed(f"{Path(command[0]).name}: exit code {child.returncode}: {said}")
            if flush is not None:
                sync(flush)
            return Cost(time.perf_counter() - start, cpu_s, memory or None)
        except BaseException:  # an interrupt, too: nothing runs on behind us
            for child in children:
                if child.returncode is None:
                    child.kill()
                    child.wait()
            raise


@contextmanager
def limited(seconds: int) -> Iterator[list[str]]:
    """Yields what goes before a command to end it after so many seconds; that is a Failed which says so."""
    began = time.monotonic()
    try:
        yield ["timeout", "--kill-after=5", str(seconds)]
    except Failed:
        if time.monotonic() - began >= seconds:
            raise Failed(f"not done within {seconds} s") from None
        raise


def sync(path: Path) -> None:
    """Writes a file or a directory through to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def quiet(*command: str | os.PathLike[str], stdin: bytes | None = None, timeout: float = 3600) -> str:
    """Runs a program that is not measured, and returns what it prints. Raises Failed."""
    try:
        done = subprocess.run(command, input=stdin or b"", capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name}: not done within {timeout:.0f} s") from None
    if done.returncode != 0:
        said = in_a_line((done.stderr or done.stdout)[-ERRORS:])
        raise Failed(f"{Path(command[0]).name}: exit code {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def process_s(pid: int) -> float:
    """CPU seconds of a process, its ended threads included."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)


def in_a_line(said: bytes) -> str:
    """Returns what a program said as one line."""
    return "; ".join(line.strip() for line in said.decode(errors="replace").splitlines() if line.strip())
