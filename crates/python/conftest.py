"""What examples in docstrings and in the README find: an image `train.erofs` in the working directory, opened as `image`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = {"about.txt": "cats and dogs\n", "cat/1.txt": "meow\n", "cat/2.txt": "purr\n", "dog/1.txt": "woof\n"}
"""The files of `train.erofs`, and of the directory `train` beside it."""


@pytest.fixture(scope="session")
def example_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `train.erofs`, and the directory that it was made of."""
    from kilnfs import _native

    base = tmp_path_factory.mktemp("example")
    for path, text in EXAMPLE.items():
        file = base / "train" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [b"kiln", b"pack", b"--quiet", bytes(base / "train"), bytes(base / "train.erofs")]
    assert _native.main(command, []) == 0
    return base


@pytest.fixture(autouse=True)
def _example(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    import kilnfs

    monkeypatch.chdir(request.getfixturevalue("example_dir"))
    with kilnfs.open("train.erofs") as image:
        doctest_namespace.update(kilnfs=kilnfs, image=image)
        yield
