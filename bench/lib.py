"""Library of the benchmarks: run and measure programs, describe the machine and the corpus, print tables.

Python's standard library only. Nothing here knows EROFS or any crate: see `packers.py` for the programs.
"""
from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Run:
    """One finished process, and the image it left."""

    exit_code: int  # negative: killed by that signal
    wall_s: float
    cpu_s: float  # user and system, children included
    peak_rss_bytes: Optional[int]  # None: no more than this process has, see `peak_rss`
    fsync_s: float  # what it then takes to get the image onto the disk
    image_bytes: int
    stderr_tail: str

    @property
    def ok(self) -> bool:
        """True if the program succeeded."""
        return self.exit_code == 0


def measure(command: Sequence[str], image: Path) -> Run:
    """Run `command`, which writes `image`. Earlier writes are flushed first, so that no run pays for another."""
    os.sync()
    with tempfile.TemporaryFile() as messages:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages)
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # an interrupt: leave nothing running behind us
            child.kill()
            child.wait()
            raise
        wall_s = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        return Run(
            exit_code=child.returncode,
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_rss_bytes=peak_rss(usage.ru_maxrss * KIB),
            fsync_s=flush(image) if image.exists() else 0.0,
            image_bytes=image.stat().st_size if image.exists() else 0,
            stderr_tail=tail(messages),
        )


@dataclass(frozen=True)
class Pipe:
    """Pipeline of programs; the output of the last one is discarded."""

    commands: Sequence[Sequence[str]]
    stdin: Optional[Path] = None


def measure_steps(steps: Sequence[Pipe], output: Path) -> Run:
    """Run `steps`, one after the other until one fails, which together write `output`. CPU time is that of all programs, memory that of
    the largest one."""
    os.sync()
    with tempfile.TemporaryFile() as messages:
        start = time.perf_counter()
        cpu_s, peak, exit_code = 0.0, 0, 0
        for step in steps:
            for code, usage in _run_pipe(step, messages):
                cpu_s += usage.ru_utime + usage.ru_stime
                peak = max(peak, usage.ru_maxrss * KIB)
                exit_code = exit_code or code
            if exit_code:
                break
        wall_s = time.perf_counter() - start
        return Run(
            exit_code=exit_code,
            wall_s=wall_s,
            cpu_s=cpu_s,
            peak_rss_bytes=peak_rss(peak),
            fsync_s=flush(output) if output.is_file() else 0.0,
            image_bytes=output.stat().st_size if output.is_file() else 0,
            stderr_tail=tail(messages),
        )


def _run_pipe(pipe: Pipe, messages: Any) -> List[Any]:
    """Exit code and usage of each program of `pipe`."""
    children: List[subprocess.Popen] = []
    before = open(pipe.stdin or os.devnull, "rb")
    try:
        for number, command in enumerate(pipe.commands):
            is_last = number == len(pipe.commands) - 1
            stdout = subprocess.DEVNULL if is_last else subprocess.PIPE
            child = subprocess.Popen(command, stdin=before, stdout=stdout, stderr=messages)
            before.close()  # else a program that ends early would never be told to the one before it
            before = child.stdout
            children.append(child)
        ended = []
        for child in children:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            ended.append((child.returncode, usage))
        return ended
    except BaseException:  # an interrupt: leave nothing running behind us
        for child in children:
            if child.returncode is None:
                child.kill()
                child.wait()
        raise


def children_cpu_s() -> float:
    """User and system time of all finished children, their children included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def own_peak_rss() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def peak_rss(seen: int) -> Optional[int]:
    """A child's peak. Linux counts from its fork on, when it still was a copy of us: smaller ones cannot be seen."""
    return seen if seen > own_peak_rss() else None


def flush(path: Path) -> float:
    """Return the seconds that it takes to flush `path` to the disk."""
    start = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return time.perf_counter() - start


def apart(function: Callable[[], Optional[str]]) -> Optional[str]:
    """Return the result of `function`, run in a separate process: its memory does not count in later measurements.

    Raises RuntimeError if it raised something.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = {"value": function()}
        except BaseException as error:  # noqa: the parent tells
            answer = {"error": f"{type(error).__name__}: {error}"}
        with open(write_end, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(write_end)
    with open(read_end) as answers:
        answer = json.loads(answers.read() or '{"error": "it ended early"}')
    os.waitpid(child, 0)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["value"]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


def tail(messages: Any, length: int = 2000) -> str:
    """Return the end of a program's output."""
    messages.seek(max(0, messages.seek(0, os.SEEK_END) - length))
    return messages.read().decode(errors="replace").strip()


def median(values: Iterable[Optional[float]]) -> Optional[float]:
    """Return the median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def median_run(runs: Sequence[Run]) -> Dict[str, Optional[float]]:
    """Medians of the numbers of the successful `runs`, each number for itself; empty if none was successful."""
    good = [run for run in runs if run.ok]
    names = ("wall_s", "cpu_s", "peak_rss_bytes", "fsync_s", "image_bytes")
    return {name: median(getattr(run, name) for run in good) for name in names} if good else {}


@dataclass(frozen=True)
class Corpus:
    """Properties of a tree."""

    path: str
    files: int
    directories: int
    bytes: int  # of regular files, as stat says


def warm(root: Path) -> Corpus:
    """Read the whole tree once, so that every contestant finds it in the page cache, and count it."""
    buffer = memoryview(bytearray(MIB))
    files = directories = size = 0
    for path in walk_files(root):
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                size += count
        files += 1
    for _ in os.walk(root):
        directories += 1
    return Corpus(str(root), files, directories, size)


def walk_files(root: Path) -> Iterator[str]:
    """Paths of all regular files below `root`, in an order that depends on their names alone."""
    for folder, directories, names in os.walk(root):
        directories.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def cpu_count() -> int:
    """Processors that this process may use, as `nproc` counts them."""
    return len(os.sched_getaffinity(0))


def cpu_model() -> str:
    """The processor's name as Linux shows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, platform.processor() or platform.machine())


def machine_facts() -> Dict[str, Any]:
    """Return the facts about the machine that readers need to judge the numbers."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": cpu_model(),
        "cpus": cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load_average_before": os.getloadavg()[0],
        "python": platform.python_version(),
    }


@contextmanager
def scratch(parent: Optional[Path]) -> Iterator[Path]:
    """Create a directory for images below `parent` or the current directory, and remove it afterwards."""
    path = Path(tempfile.mkdtemp(prefix="kiln-bench-", dir=(parent or Path.cwd()).resolve()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def rotated(items: Sequence[Any], by: int) -> List[Any]:
    """Return `items` starting with another one, so that no contestant is always first in its round."""
    by %= max(1, len(items))
    return [*items[by:], *items[:by]]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right, padded to be read as text, too."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = [":" + "-" * (width - 1) if column == 0 else "-" * (width - 1) + ":" for column, width in enumerate(widths)]

    def show(line: Sequence[str]) -> str:
        cells = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
        return "| " + " | ".join(cells) + " |"

    return "\n".join([show(lines[0]), show(rule), *(show(line) for line in lines[1:])])


def mb(count: float) -> str:
    """Bytes as megabytes of 10^6."""
    return f"{count / 1e6:.2f}"


def mib(count: Optional[float]) -> str:
    """Peak memory as MiB."""
    return f"< {own_peak_rss() / MIB:.0f}" if count is None else f"{count / MIB:.0f}"


def unit_name(unit: int) -> str:
    """A size of a compression unit: 65536 as `64K`."""
    return f"{unit // MIB}M" if unit % MIB == 0 else f"{unit // KIB}K"


def parse_size(text: str) -> int:
    """`65536`, `64K` or `1M` in bytes."""
    scale = {"K": KIB, "M": MIB}.get(text[-1:].upper(), 1)
    return int(text if scale == 1 else text[:-1]) * scale


def positive(text: str) -> int:
    """A count of at least 1, for argparse."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def say(text: str) -> None:
    """Progress, beside the results: to stderr."""
    print(text, file=sys.stderr, flush=True)


def write_json(path: Optional[Path], document: Dict[str, Any]) -> None:
    """Write the results to `path`, if there is one."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1, sort_keys=False) + "\n")
        say(f"wrote {path}")


def end(path: Optional[Path], kind: str, problems: List[str], results: List[Dict[str, Any]]) -> int:
    """Write the results of a script to `path`, if there is one. Returns its exit code: 1 if anything failed."""
    write_json(path, {"schema": 1, "kind": kind, "facts": machine_facts(), "problems": problems, "results": results})
    return int(bool(problems))
