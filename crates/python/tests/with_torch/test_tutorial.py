"""Runs the code of docs/python-training.md: files as a reader would write them, and what is typed at the prompt."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: crates/python/tests/torch_root.sh test")
pytest.importorskip("torchvision", reason="torchvision is not installed")

from PIL import Image, ImageDraw  # noqa: E402

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "python-training.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def make_pictures(directory: Path) -> None:
    for part, count in (("train", 40), ("valid", 10)):
        for shape, name in enumerate(("cat", "dog", "fox")):
            (directory / part / name).mkdir(parents=True)
            for number in range(count):
                picture = Image.effect_noise((24, 24), 60).convert("RGB")
                drawing = ImageDraw.Draw(picture)
                box = (4 + number % 5, 4, 16 + number % 5, 18)
                [drawing.ellipse, drawing.rectangle, drawing.line][shape](box, fill=(220, 60 * shape, 40))
                picture.save(directory / part / name / f"{number:03}.jpg")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_pictures(tmp_path / "pictures")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(name: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, name, *arguments], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tutorial(workplace: Path) -> None:
    blocks = BLOCK.findall(DOCUMENT.read_text())
    typed = []
    for block in blocks:
        if block.startswith(">>> "):
            typed.append(block)
            continue
        named = re.match(r"# (\w+\.py)\n", block)
        assert named, f"a block is neither a file nor typed: {block[:60]!r}"
        Path(named[1]).write_text(block)
    assert "train.erofs: 120 files" in run("pack.py")

    # The loop, stopped twice in the middle of an epoch: 7 batches an epoch, 3 epochs.
    assert run("train.py", "5") == ""
    second = run("train.py", "4")
    assert second.count("epoch") == 1 and second.startswith("epoch 0:") and "2 steps" in second
    third = run("train.py")
    assert [line.split(":")[0] for line in third.splitlines()] == ["epoch 1", "epoch 2"] and third.rstrip().endswith(
        "12 steps in this run"
    )
    assert run("train.py") == "", "it has ended"
    os.remove("checkpoint.pt")
    assert run("train.py").rstrip().endswith("21 steps in this run")

    assert len(typed) >= 5
    examples = doctest.DocTestParser().get_doctest(
        "\n".join(typed), {"__name__": "__main__"}, DOCUMENT.name, str(DOCUMENT), 0
    )
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    failed = runner.run(examples, out=said.append).failed
    assert not failed, "".join(said)
