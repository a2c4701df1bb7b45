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
    assert not hasattr(kilnfs, "torch_") and kilnfs.__version__.count(".") >= 1


def test_star_import() -> None:
    assert run_python("from kilnfs import *; print(open.__module__)") == "kilnfs._image\n"


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
from typing import assert_type
import kilnfs

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
"""


def test_callers_see_types(tmp_path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    run = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    run += ["--follow-imports=silent", "program.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=os.environ | package_path())
    assert done.returncode == 0, done.stdout + done.stderr
