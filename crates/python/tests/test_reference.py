"""Each public name has a docstring, whose examples do what they say; docs/python-reference.md is made of them."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import kilnfs
import pytest

pytest.importorskip("fsspec")

import reference



def test_each_public_name_has_a_docstring() -> None:
    found = [(f"{module}.{name.path}", name.doc) for module, names in reference.names() for name in names]
    assert len(found) > 250
    assert not [path for path, doc in found if len(doc) < 5]


def test_signatures_say_what_stands_for_what_is_left_out() -> None:
    for module, names in reference.names():
        for name in names:
            assert "Ellipsis" not in (name.signature or ""), (module, name.path)


NATIVE = ("Image", "Batch", "Index")


def test_examples(example_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the native module, which `--doctest-modules` does not see."""
    from kilnfs import _native

    monkeypatch.chdir(tmp_path)
    shutil.copytree(example_dir, tmp_path, dirs_exist_ok=True)
    runner = doctest.DocTestRunner()
    parser = doctest.DocTestParser()
    for cls in NATIVE:
        without = []
        for name in vars(getattr(_native, cls)):
            if name.startswith("_"):
                continue
            with kilnfs.open("train.erofs") as image:
                names = {"kilnfs": kilnfs, "image": image}
                example = parser.get_doctest(getattr(getattr(_native, cls), name).__doc__ or "", names, f"{cls}.{name}", None, None)
                if not example.examples:
                    without.append(name)
                runner.run(example)
        assert not without, f"{cls}: names without an example"
    assert runner.summarize().failed == 0


def test_the_page_is_that_of_the_docstrings() -> None:
    if not reference.PAGE.parent.is_dir():
        pytest.skip("the documents are not there")
    assert reference.PAGE.read_text() == reference.page(), "python crates/python/tests/reference.py writes it again"
