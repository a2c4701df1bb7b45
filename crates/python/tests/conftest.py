"""A directory with files of all kinds, and the images made of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnfs

COMPRESSIONS = {"plain": ["--preset", "plain"], "lz4": ["-z", "lz4"], "zstd": ["-z", "zstd,3"]}
RAW_NAME = b"raw-\xff\xfe\x80"
"""A name that is no UTF-8."""

# A shell starts its background jobs with SIGINT ignored, and the programs that tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pack(source: os.PathLike[str] | str, image: os.PathLike[str] | str, *options: str) -> None:
    """Make an image with the command that the package has in it: in a process of its own, as it catches signals."""
    command = [sys.executable, "-m", "kilnfs", "pack", "--quiet", *options, source, image]
    subprocess.run(command, check=True, timeout=300)


def make_tree(root: Path) -> None:
    """Files of all kinds; the same ones each time."""
    rng = random.Random(7)
    root.mkdir()
    (root / "hello.txt").write_text("hello\nworld\n")
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "latin.txt").write_bytes("grün\n".encode("latin-1"))
    (root / "empty").touch()
    words = [bytes(rng.choices(b"abcdefgh ", k=rng.randint(3, 12))) for _ in range(500)]
    (root / "big.bin").write_bytes(rng.randbytes(700_001) + b" ".join(rng.choices(words, k=300_000)))
    with (root / "hole.bin").open("wb") as file:
        file.seek(300_000)
        file.write(b"between holes")
        file.truncate(1_000_000)
    (root / "all-hole").touch()
    os.truncate(root / "all-hole", 50_000)
    for name in (".hidden", "ünïcode", "with space", "new\nline", "[brackets]", "star*"):
        (root / name).write_text(name)
    with open(os.fsencode(root) + b"/" + RAW_NAME, "wb") as raw:
        raw.write(RAW_NAME)
    (root / ".dir").mkdir()
    (root / ".dir" / "in-hidden.txt").write_text("x")
    (root / "many").mkdir()
    for i in range(300):
        (root / "many" / f"{i:03}.{'txt' if i % 3 else 'JPG'}").write_bytes(rng.randbytes(rng.randint(0, 9000)))
    (root / "empty-dir").mkdir()
    deep = root / "deep"
    for i in range(40):
        deep = deep / f"d{i}"
    deep.mkdir(parents=True)
    (deep / "bottom.txt").write_text("bottom")
    for cls in ("cat", "dog"):
        (root / "train" / cls / "sub").mkdir(parents=True)
        for i in range(5):
            (root / "train" / cls / f"{i}.jpg").write_bytes(b"\xff\xd8" + rng.randbytes(100 * i))
        (root / "train" / cls / "sub" / "0.png").write_bytes(cls.encode())
    links = root / "links"
    links.mkdir()
    for name, target in {
        "file": "../hello.txt",
        "dir": "../many",
        "broken": "nothing/here",
        "loop-a": "loop-b",
        "loop-b": "loop-a",
        "self": "self",
        "up": "..",
        "chain": "dir",
        "through": "chain/001.txt",
    }.items():
        (links / name).symlink_to(target)
    os.symlink(RAW_NAME, os.fsencode(links) + b"/to-raw")
    os.link(root / "hello.txt", root / "hard-1")
    os.link(root / "hello.txt", root / "many" / "hard-2")
    os.mkfifo(root / "fifo", 0o640)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        here = os.open(root, os.O_PATH)  # the path of a socket is short
        try:
            server.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)
    with contextlib.suppress(OSError):  # only root may
        os.mknod(root / "null", 0o20666, os.makedev(1, 3))
        os.mknod(root / "disk", 0o60600, os.makedev(8, 1))
    with contextlib.suppress(OSError):  # not all file systems have them
        os.setxattr(root / "hello.txt", "user.kind", b"greeting\0\xff")
        os.setxattr(root / "hello.txt", "user.empty", b"")
        os.setxattr(root / "many", "user.dir", b"a directory")
    (root / "hello.txt").chmod(0o640)
    (root / "many" / "001.txt").chmod(0o4755)
    (root / "empty-dir").chmod(0o1777)
    os.utime(root / "hello.txt", ns=(0, 1_234_567_890_123_456_789))
    os.utime(root / "empty", ns=(0, 1))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory."""
    root = tmp_path_factory.mktemp("source") / "tree"
    make_tree(root)
    return root


@pytest.fixture(scope="session")
def image_paths(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images of the directory: not compressed, and with two compressors."""
    base = tmp_path_factory.mktemp("images")
    paths = {name: base / f"{name}.erofs" for name in COMPRESSIONS}
    for name, options in COMPRESSIONS.items():
        pack(tree, paths[name], *options)
    return paths


@pytest.fixture(scope="session")
def image_path(image_paths: dict[str, Path]) -> Path:
    """One image of the directory."""
    return image_paths["zstd"]


@pytest.fixture(params=COMPRESSIONS)
def each_image(request: pytest.FixtureRequest, image_paths: dict[str, Path]) -> Iterator[kilnfs.Image]:
    """Each image, open."""
    with kilnfs.open(image_paths[request.param]) as image:
        yield image


@pytest.fixture
def image(image_path: Path) -> Iterator[kilnfs.Image]:
    """One image of the directory, open."""
    with kilnfs.open(image_path) as opened:
        yield opened


def run_python(
    code: str, *arguments: str, flags: tuple[str, ...] = (), environment: dict[str, str] | None = None
) -> str:
    """What a new interpreter with this program prints."""
    package = os.path.dirname(os.path.dirname(kilnfs.__file__))
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *flags, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": path} | (environment or {}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
