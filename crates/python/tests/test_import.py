"""`import kilnfs` brings nothing with it that is not needed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import run_python

import kilnfs

HEAVY = (
    "torch",
    "numpy",
    "fsspec",
    "pathlib",
    "typing",
    "re",
    "dataclasses",
    "tempfile",
    "shutil",
    "zipfile",
    "asyncio",
    "threading",
)


def modules_after(code: str) -> set[str]:
    """What a program imports that `site` has not imported before."""
    program = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    return set(run_python(program, flags=("-S",)).split())


def test_import_is_light() -> None:
    assert not modules_after("import kilnfs") & set(HEAVY)
    assert "kilnfs._native" not in modules_after("import kilnfs")


def test_opening_is_light(image_path) -> None:
    code = f"import kilnfs; kilnfs.open({str(image_path)!r}).read('hello.txt')"
    assert not modules_after(code) & set(HEAVY)


def test_names() -> None:
    assert set(kilnfs.__all__) <= set(dir(kilnfs))
    assert sorted(kilnfs.__all__) == kilnfs.__all__ and set(kilnfs._MODULES) == set(kilnfs.__all__)
    for name in kilnfs.__all__:
        assert getattr(kilnfs, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        kilnfs.nonsense  # noqa: B018
    assert run_python("import kilnfs; print(kilnfs.shards.open.__name__)") == "open\n"
    assert not hasattr(kilnfs, "torch_") and kilnfs.__version__.count(".") >= 1


def test_star_import() -> None:
    assert run_python("from kilnfs import *; print(open.__module__)") == "kilnfs._open\n"


def test_errors_are_os_errors() -> None:
    assert issubclass(kilnfs.CorruptImageError, kilnfs.ImageError) and issubclass(kilnfs.ImageError, OSError)
    assert issubclass(kilnfs.UnsupportedImageError, kilnfs.ImageError)


def test_types(tmp_path) -> None:
    pytest.importorskip("mypy")
    # pyproject.toml says what is checked, and how.
    project = Path(__file__).resolve().parents[1]
    run = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path)]
    done = subprocess.run(run, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def package_path() -> dict[str, str]:
    """Where mypy finds the package, if that is not where packages are installed: there it must not be told."""
    path = os.path.dirname(os.path.dirname(kilnfs.__file__))
    return {} if path == sysconfig.get_path("platlib") else {"MYPYPATH": path, "PYTHONPATH": path}


def test_stub_of_the_native_module(tmp_path) -> None:
    pytest.importorskip("mypy")
    # PyO3 makes `__all__` of everything that is added to the module; nobody imports `*` from it.
    (tmp_path / "allowed").write_text("kilnfs._native.__all__\n")
    run = [sys.executable, "-m", "mypy.stubtest", "--concise", "--allowlist", "allowed", "kilnfs._native"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=os.environ | package_path())
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """
from __future__ import annotations
import io, os
from array import array
from collections.abc import Iterator
from typing import Any, assert_type
import kilnfs
from kilnfs.shards import ShardedImage

image = kilnfs.open("train.erofs")
assert_type(image.listdir("a"), list[str])
assert_type(image.listdir(b"a"), list[bytes])
assert_type(image.listdir(), list[str])
assert_type(image.readlink(b"a"), bytes)
assert_type(image.stat("a"), os.stat_result)
assert_type(image / "a", kilnfs.Path)
assert_type((image / "a").open(), io.TextIOWrapper)
assert_type((image / "a").read_bytes(), bytes)
assert_type(image.open("a").read(), bytes)
assert_type(image.open("a", "r"), io.TextIOWrapper)
assert_type([entry.name for entry in image.scandir(b"a")], list[bytes])
for directory, dirs, files in image.walk():
    assert_type(directory, str)
    assert_type(dirs, list[str])
assert_type(image.index(), kilnfs.Index)
assert_type(image.read_many(["a"]), kilnfs.Batch)
assert_type(kilnfs.open("manifest.json"), ShardedImage)
assert_type(kilnfs.open(os.environ["SET"], window=4), ShardedImage)
assert_type(kilnfs.open("manifest.json").iter_many(["a"]), Iterator[tuple[int, memoryview]])
assert_type(kilnfs.open("manifest.json").views(["a"]), list[memoryview])
assert_type(image.read(nid=5), bytes)
assert_type(image.open(nid=5).read(), bytes)
assert_type(image.open("a", mode="r"), io.TextIOWrapper)
pairs = kilnfs.Samples[tuple[bytes, int]]("train.erofs")
assert_type(pairs[0], tuple[bytes, int])
assert_type(pairs[:5], list[tuple[bytes, int]])
for contents, label in pairs:
    assert_type(label, int)


class Array:
    # As numpy's arrays by its stubs in Python 3.11: no buffers, but iterables of anything.
    def __iter__(self) -> Any: ...


index = image.index()
image.read_many(index, rows=Array())
image.read_many(index, rows=array("Q", [1]))
image.read_many(name for name in ["a"])
image.read_many(nids=Array())
index.subset(Array())
index.subset([1])
image.read(image / "a")
"""

REFUSED = """
from __future__ import annotations
import kilnfs

image = kilnfs.open("train.erofs")
image.read(None, nid="a")
image.read(1.5)
image.read(5)
image.stat(5)
image.open(5)
image.read_many("oops", rows="x")
image.read_many([1.5])
image.views([5])
image.positions(5)
kilnfs.Samples[int]("train.erofs")[0].nothing
"""


def test_callers_see_types(tmp_path) -> None:
    pytest.importorskip("mypy")
    for name, program in (("program.py", PROGRAM), ("refused.py", REFUSED)):
        (tmp_path / name).write_text(program)
    run = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "--cache-dir", str(tmp_path / "cache")]
    run += ["--follow-imports=silent", "program.py", "refused.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=os.environ | package_path())
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert not [error for error in errors if not error.startswith("refused.py:")], done.stdout + done.stderr
    # Each call of the other program is an error.
    first = REFUSED.splitlines().index('image = kilnfs.open("train.erofs")') + 2
    lines = {int(error.split(":")[1]) for error in errors}
    assert lines == set(range(first, len(REFUSED.splitlines()) + 1)), done.stdout
