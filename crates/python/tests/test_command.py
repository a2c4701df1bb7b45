"""The command within the package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILN = [sys.executable, "-m", "kilnfs"]


def run(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*KILN, *arguments], capture_output=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"contents\n" * 1000)
    run("pack", "--quiet", tmp_path / "source", tmp_path / "image.erofs")
    return tmp_path / "image.erofs"


def test_it_is_the_command_kiln(image: Path) -> None:
    assert run("cat", image, "file").stdout == b"contents\n" * 1000
    assert b"kiln" in run("--version").stdout
    assert b"Usage: kiln pack" in run("pack", "--help").stdout


def test_exit_codes_are_those_of_kiln(image: Path) -> None:
    assert run("cat", image, "nothing", check=False).returncode == 1
    assert run("no-such-command", check=False).returncode == 2
    done = run("install-names", image.parent, check=False)
    assert done.returncode == 2 and b"install the program kiln itself" in done.stderr
    assert sorted(os.listdir(image.parent)) == ["image.erofs", "source"]


def test_arguments_need_not_be_text(image: Path) -> None:
    raw = os.fsencode(image.parent) + b"/\xff\xfe"
    os.rename(image, raw)
    done = subprocess.run([*KILN, b"cat", raw, b"file"], capture_output=True, timeout=120)
    assert done.stdout == b"contents\n" * 1000


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no /dev/fuse")
def test_a_mount_in_the_background_is_a_process_of_its_own(image: Path) -> None:
    mountpoint = image.parent / "mnt"
    mountpoint.mkdir()
    run("mount", "--via", "fuse", image, mountpoint)
    try:
        assert (mountpoint / "file").read_bytes() == b"contents\n" * 1000
        servers = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    command = (process / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if os.fsencode(mountpoint) in command:
                    servers.append(command)
        assert servers and all(command[1:3] == [b"-m", b"kilnfs"] for command in servers), servers
    finally:
        run("umount", mountpoint)
    deadline = time.monotonic() + 30
    while os.path.ismount(mountpoint) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.ismount(mountpoint)


@pytest.mark.parametrize("action", [signal.SIG_DFL, signal.SIG_IGN])
def test_signals_are_those_of_a_program(image: Path, action: signal.Handlers) -> None:
    """A command that waits, here for somebody who reads its FIFO, ends by SIGINT, unless that is ignored."""
    fifo = image.parent / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [*KILN, "pack", image.parent / "source", fifo],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, action),
    )
    try:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        if action == signal.SIG_IGN:
            time.sleep(1)
            assert process.poll() is None
        else:
            assert process.wait(60) != 0
    finally:
        process.kill()
        process.communicate()


def test_handlers_of_signals_are_as_they_were(image: Path) -> None:
    program = """
import signal, sys
from kilnfs.__main__ import main

def state():
    # Of 32 and 33, the C library's own, nobody is told.
    masks = [int(line.split()[1], 16) & 0x7fffffff for line in open("/proc/self/status") if line[:6] in ("SigCgt", "SigIgn")]
    return masks, [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

signal.signal(signal.SIGTERM, lambda *_: print("a handler of Python"))
before = state()
for _ in range(2):
    assert main() == 0
    assert state() == before, (before, state())
signal.raise_signal(signal.SIGTERM)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    arguments = ["pack", "--quiet", "--force", image.parent / "source", image]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, timeout=120, text=True)
    assert (done.returncode, done.stdout) == (0, "a handler of Python\ninterrupted\n"), done.stderr
