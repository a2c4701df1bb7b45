"""Programs: kiln, its peers, their versions."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lib.process import quiet
from lib.suite import Missing

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ.get("PEERS") or Path.home() / "peers")
TARGET = REPOSITORY / "target/release"
# Programs of which nothing newer is needed than the system has.
SYSTEM = ("cat", "cp", "find", "ls", "mkfs.ext4", "mount", "perf", "rm", "rsync", "sh", "tar", "umount", "zip", "zstd")
# Arguments with which programs tell their versions, if not `--version`.
VERSION = {"mkfs.erofs": "-V", "mksquashfs": "-version", "unsquashfs": "-version", "sqfstar": "-version"}
VERSION |= {"restic": "version", "mkfs.ext4": "-V", "mkfs.xfs": "-V", "erofsfuse": "-V", "zip": "-v"}


def find(name: str) -> Path | None:
    """Returns the path of a program: `kiln` and examples from this repository, others from `$PEERS` or the system."""
    if name == "kiln":
        path = Path(os.environ.get("KILN") or TARGET / "kiln").resolve()
        return path if path.exists() else None
    if name in ("slow_file", "strategies"):
        path = TARGET / "examples" / name
        return path if path.exists() else None
    if name == "read-client":
        path = Path(os.environ.get("READ_CLIENT") or TARGET / name)
        return path if path.exists() else None
    if (path := PEERS / "bin" / name).exists():
        return path
    # Never another peer from PATH: it might be years older. Plain tools are the system's.
    system = shutil.which(name)
    return Path(system) if system and (name in SYSTEM or not PEERS.exists()) else None


def need(name: str) -> str:
    """Returns the path of a program. Raises Missing with the reason if it cannot be had."""
    if path := find(name):
        return str(path)
    raise Missing(reasons().get(name, f"{name} is not here"))


@functools.cache
def reasons() -> dict[str, str]:
    """Returns why programs are not to be had: lines `NAME: no: REASON` of `$PEERS/versions.txt`."""
    try:
        lines = (PEERS / "versions.txt").read_text().splitlines()
    except OSError:
        return {}
    found = (re.fullmatch(r"([^:]+): no: (.*)", line) for line in lines)
    return {match[1]: f"{match[1]}: {match[2]}" for match in found if match}


def reason(name: str) -> str:
    """Returns why a program is not here; empty if it is."""
    try:
        need(name)
    except Missing as error:
        return str(error)
    return ""


@functools.cache
def version(name: str) -> str:
    """Returns a program's version as it tells it; empty if it is not here or does not tell."""
    path = find(name)
    if path is None:
        return ""
    try:
        command = [str(path), VERSION.get(name, "--version")]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+[\w.~+-]*", done.stdout + done.stderr)
    return found[0] if found else ""


def typed(command: Sequence[object]) -> str:
    """Returns a command line as one types it: programs by their names, files without their folders."""
    words = []
    for word in map(str, command):
        head, equals, tail = word.partition("=/")
        tail = Path("/" + tail).name if equals else ""
        words.append(f"{head}={tail}" if equals else Path(word).name if word.startswith("/") else word)
    return " ".join(words)


def wake(*names: str) -> None:
    """Reads the files of programs: what they read is cold, they are not."""
    for name in names:
        if path := find(name):
            quiet("sh", "-c", 'cat "$0" >/dev/null; "$0" --version >/dev/null 2>&1 || :', path)
