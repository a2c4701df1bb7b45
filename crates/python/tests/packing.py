"""What the tests of packing share: trees to pack, and what is in images."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import kilnfs

PYTHON_DIR = Path(kilnfs.__file__).parent.parent
"""Where the package is that is tested."""


def tree(root: Path, files: int = 60, seed: int = 0) -> Path:
    """A directory of small files of all kinds, a link of each kind, and an empty directory."""
    rng = random.Random(seed)
    for number in range(files):
        path = root / f"class-{number % 5}" / f"{number:04}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.choice([rng.randbytes(rng.randrange(9000)), b"text %d " % number * rng.randrange(900)]))
    (root / "empty").mkdir()
    (root / "symlink").symlink_to("class-0/0000.txt")
    os.link(root / "class-0" / "0000.txt", root / "hardlink")
    settle(root)
    return root


def text(length: int, seed: int = 0) -> bytes:
    """Bytes that compress, and that a strong method takes its time for."""
    rng = random.Random(seed)
    words = [b"%x" % rng.getrandbits(rng.randrange(8, 60)) for _ in range(2000)]
    return b" ".join(rng.choices(words, k=length // 5))[:length]


def settle(root: Path) -> None:
    """Owners, modes and times that a Builder gives, too."""
    for directory, names, files in os.walk(root, topdown=False):
        for name in files + names + [""]:
            path = os.path.join(directory, name) if name else directory
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.path.isdir(path) else 0o644)
            os.utime(path, (0, 0), follow_symlinks=False)


def kiln(*args: object, status: int = 0) -> str:
    """Run the command, and return what it prints."""
    code = """
import os, sys
from kilnfs import _native
sys.exit(_native.main([b"kiln", *map(os.fsencode, sys.argv[1:])], []))
"""
    done = python(code, *args)
    assert done.returncode == status, done.stderr
    return done.stdout


def python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a program that has kilnfs."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], env=environment(), capture_output=True, text=True, check=False
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PYTHON_DIR)}


def contents(image: Path, tmp: Path) -> dict[str, bytes]:
    """Regular files of an image, by path."""
    out = tmp / f"{image.name}.extracted"
    kiln("extract", image, out)
    return files(out)


def files(root: Path) -> dict[str, bytes]:
    """Regular files below a directory, by path."""
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}
