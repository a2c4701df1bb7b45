"""Programs that are started in a chroot: thirteen of a desktop system, or three of this machine in the quick form."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lib import machine
from lib.bench import Bench
from lib.disks import unmount
from lib.mounts import mount
from lib.process import Failed, quiet
from lib.programs import need
from lib.suite import Missing

# Modules that the interpreter imports; what a tree has not is left out.
START = (
    "asyncio concurrent.futures ctypes decimal email.message http.server json logging.config sqlite3 ssl tarfile "
    "unittest urllib.request xml.dom.minidom zipfile"
).split()
QUICK_START = "decimal email.message json logging.config zipfile".split()


def importing(python: str, modules: Iterable[str]) -> list[str]:
    """Returns the command of an interpreter that imports those of the modules that it finds."""
    words = f"import importlib\nfor name in {list(modules)!r}:\n try: importlib.import_module(name)\n"
    return [python, "-c", words + " except ImportError: pass"]


# They need no display, write nothing, and end by themselves.
DESKTOP: dict[str, list[str]] = {
    "python3": importing("/usr/bin/python3", START),
    "perl": ["/usr/bin/perl", "-MPOSIX", "-MEncode", "-MStorable", "-MFile::Find", "-MTime::Local", "-e", "print 1"],
    "git": ["/usr/bin/git", "help", "-a"],
    "bash": ["/usr/bin/bash", "-c", "ls -l /usr/bin | sort | head -n 3"],
    "groff": ["/usr/bin/groff", "-man", "-Tutf8", "/usr/share/groff/1.22.4/tmac/an.tmac"],
    "pydoc3": ["/usr/bin/pydoc3", "json"],
    "firefox": ["/usr/lib/firefox-esr/firefox-esr", "--version"],
    "Xorg": ["/usr/lib/xorg/Xorg", "-version"],
    "xfce4-terminal": ["/usr/bin/xfce4-terminal", "--version"],
    "thunar": ["/usr/bin/thunar", "--version"],
    "systemd-analyze": ["/usr/bin/systemd-analyze", "calendar", "daily"],
    "apt-get": ["/usr/bin/apt-get", "--version"],
    "fc-list": ["/usr/bin/fc-list"],
}


def startable(bench: Bench) -> tuple[Path, dict[str, list[str]]]:
    """Returns a tree, and the programs that it has, by name. Raises Missing."""
    if bench.quick and bench.chosen_tree is None:
        return small(bench.scratch / "startable")
    tree = bench.tree("rootfs")
    found = {name: command for name, command in DESKTOP.items() if os.path.lexists(tree / command[0][1:])}
    if not found:
        raise Missing(f"{tree.name} has none of the programs that are started")
    return tree, found


def small(tree: Path) -> tuple[Path, dict[str, list[str]]]:
    """Copies three programs of this machine with all that they load, once a run."""
    python = os.path.realpath(sys.executable)
    commands = {
        "python3": importing(python, QUICK_START),
        "ls": [os.path.realpath(shutil.which("ls") or "/bin/ls"), "-l", "/"],
        "bash": [os.path.realpath(shutil.which("bash") or "/bin/bash"), "-c", "echo started"],
    }
    if tree.exists():
        return tree, commands
    # Compiled modules, too: else each start would compile them.
    told = "\nimport json, sys\nprint(json.dumps([getattr(one, name, None) for one in sys.modules.values()"
    told += " for name in ('__file__', '__cached__')]))"
    modules = json.loads(quiet(python, "-c", commands["python3"][2] + told).splitlines()[-1])
    files = {Path(name) for name in modules if name and os.path.exists(name)} | {
        Path(command[0]) for command in commands.values()
    }
    for file in sorted(files):
        for one in (file, *libraries(file)):
            to = tree / str(one)[1:]
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(one, to)
    for name in ("dev", "proc"):
        (tree / name).mkdir()
    return tree, commands


def libraries(file: Path) -> list[Path]:
    """Returns the shared libraries that a program or a library loads."""
    with file.open("rb") as data:
        if data.read(4) != b"\x7fELF":
            return []
    said = quiet("sh", "-c", 'ldd "$0" || :', file)
    return [Path(name) for name in re.findall(r"(?:=> |^\s+)(/\S+)", said, re.MULTILINE)]


@contextmanager
def bound(root: Path) -> Iterator[None]:
    """Devices and processes of this machine below the root of a tree, as programs expect them."""
    machine.need_root("starts in a chroot")
    done: list[Path] = []
    try:
        for name in ("dev", "proc"):
            quiet("mount", "--bind", f"/{name}", root / name)
            done.append(root / name)
        yield
    finally:
        for place in reversed(done):
            unmount(place)


def record(image: Path, command: list[str], out: Path, place: Path) -> None:
    """Records what a program reads of an image of kiln when it starts. Raises Missing, Failed."""
    with mount("kiln mount", image, place) as one, bound(one.root):
        quiet(need("kiln"), "record", "--quiet", "--force", "-o", out, place, "--", "chroot", place, *command)


def settled(place: Path) -> None:
    """Waits until a server of kiln has pinned what it was told to pin. Raises Failed."""
    deadline, before = time.monotonic() + 60, None
    while time.monotonic() < deadline:
        told = json.loads(quiet(need("kiln"), "stats", "--json", place))
        now = [told[name] for name in ("pinned_bytes", "served_bytes", "decoded_bytes")]
        if now == before and now[0] > 0:
            return
        before = now
        time.sleep(0.3)
    raise Failed("pinning has not come to an end within 60 s")
