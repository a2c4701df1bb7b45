"""The examples of docs/python-packing.md run, and its figures are what they are said to be."""

from __future__ import annotations

import doctest
import io
import tarfile
from pathlib import Path

import kilnfs._pack
import kilnfs.shards._group
import pytest
import shard_costs

DOCUMENT = Path(__file__).parents[3] / "docs" / "python-packing.md"


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the document speaks of."""
    for name in ("cat", "dog", "owl"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(100):
            text = f"{name} {number}".encode()
            (tmp_path / "photos" / name / f"{number}.jpg").write_bytes(text if number == 1 else text.ljust(43, b"."))
    (tmp_path / "photos" / "cat" / "0.jpg").write_bytes(b"x" * (12800 - 296 * 43 - 15 + 0))
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "cat.json").write_text("{}")
    with tarfile.open(tmp_path / "corrections.tar", "w") as tar:
        for member in ("cat/1.jpg", "dog/new.jpg"):
            info = tarfile.TarInfo(member)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"right"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("photos")
def test_the_examples_run() -> None:
    failed, tried = doctest.testfile(str(DOCUMENT), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (failed, tried > 10) == (0, True)


@pytest.mark.parametrize("module", [kilnfs._pack, kilnfs.shards._group])
def test_docstrings_run(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, tried > 0) == (0, True)


def test_the_table_is_what_the_arithmetic_gives() -> None:
    text = DOCUMENT.read_text()
    rows = shard_costs.tables()
    assert len(rows) == 15
    assert "\n".join(rows) in text


def test_the_arithmetic_gives_what_is_known() -> None:
    rows = dict(row.strip("| ").split(" | ", 1) for row in shard_costs.tables())
    # 10^9 files of 100 KB are 10^14 bytes; 10^14 / 2^32 = 23,283; 10^9 / 5,500 s = 50.5 h; 10^14 / 2^22 = 23.8 million.
    assert rows["contents"].endswith("100 TB")
    assert rows["shards of 4 GiB"] == "23 | 2,328 | 23,283"
    assert rows["… at the rate of one prefix"].endswith("51 h")
    assert rows["epoch, blocks of 4 MiB"].endswith("24 M, $9.5")
    assert rows["epoch, a GET a file"].endswith("1 G, $400")
