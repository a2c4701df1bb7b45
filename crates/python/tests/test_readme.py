"""The README's examples do what it says."""

from __future__ import annotations

import doctest
import re
import shutil
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"(?:<!-- needs (?P<module>\S+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def test_readme(example_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(example_dir, tmp_path, dirs_exist_ok=True)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    text = README.read_text()
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python") >= 5
    for block in blocks:
        module = block["module"]
        if module is not None:
            try:
                __import__(module)
            except ImportError:
                continue
            if module == "fsspec":  # which finds it by the entry point of a package that is installed
                import fsspec

                fsspec.register_implementation("erofs", "kilnfs.fs.ErofsFileSystem", clobber=True)
        line = text[: block.start("code")].count("\n")
        example = doctest.DocTestParser().get_doctest(block["code"], names, "README", str(README), line)
        assert example.examples
        runner.run(example, clear_globs=False)
        names = example.globs
    assert runner.summarize().failed == 0
