"""The examples of docs/python-fsspec.md give what the document says."""

from __future__ import annotations

import doctest
import importlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec_support import RangeServer, make_image, pack, range_server  # noqa: E402

DOCUMENT = Path(__file__).parents[3] / "docs" / "python-fsspec.md"
SITE = "https://example.org"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def optional(module: str) -> Any:
    """A module, or `None` where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with set.erofs. Files that need a package which is missing are left out, as the examples about them
    are skipped."""
    directory = tmp_path_factory.mktemp("docs")
    files = {
        "text/notes.txt": b"first line\nsecond line\n",
        "tables/a.csv": b"number,square\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(10)),
        "train/cat/0.png": b"",
        "train/dog/0.png": b"",
        "arrays.zarr/none": b"",
    }
    pyarrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    if parquet:
        for year in (2024, 2025):
            buffer = io.BytesIO()
            parquet.write_table(pyarrow.table({"n": list(range(10))}), buffer)
            files[f"tables/year={year}/p.parquet"] = buffer.getvalue()
    pillow = optional("PIL.Image")
    if pillow:
        for label in ("cat", "dog"):
            buffer = io.BytesIO()
            pillow.new("RGB", (8, 8)).save(buffer, "PNG")
            files[f"train/{label}/0.png"] = buffer.getvalue()
    image = make_image(directory, files, "set.erofs")
    numpy, zarr = optional("numpy"), optional("zarr")
    if not zarr:
        return directory
    tree = directory / "set.erofs.tree"
    (tree / "arrays.zarr" / "none").unlink()
    group = zarr.open_group(str(tree / "arrays.zarr"), mode="w")
    group.create_array("values", data=numpy.arange(100).reshape(10, 10))
    Path(image).unlink()
    pack(tree, image)
    return directory


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[RangeServer]:
    with range_server() as running:
        running.put(str(place / "set.erofs"), "/set.erofs")
        yield running


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize("nth", range(len(BLOCKS)))
def test_example(nth: int, place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    block = BLOCKS[nth]
    for module in re.findall(r"^>>> (?:import|from) (\w+)", block, re.MULTILINE):
        pytest.importorskip(module)
    if "parquet" in block:
        pytest.importorskip("pyarrow")
    if "imagefolder" in block:
        pytest.importorskip("PIL")
        monkeypatch.setenv("HF_HOME", str(place / "hf"))
    if SITE in block:
        running: RangeServer = request.getfixturevalue("server")
        block = block.replace(SITE, f"http://127.0.0.1:{running.server_port}")
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    example = doctest.DocTestParser().get_doctest(block, names, f"example {nth}", str(DOCUMENT), 0)
    assert example.examples
    told = io.StringIO()
    assert doctest.DocTestRunner().run(example, out=told.write).failed == 0, told.getvalue()
