"""Patterns match what those of `glob` and of `pathlib` match."""

from __future__ import annotations

import glob
import os
import sys
from pathlib import Path, PurePosixPath

import pytest
from conftest import RAW_NAME

import kilnfs

PATTERNS = [
    "*", "*.txt", "many/*.JPG", "many/0[0-4]?.txt", "many/[!0]*", "train/*/*.jpg", "train/**/*.png", "**/*.png",
    "**/d39/*", "**", "train/**", "train/*/sub", "hello.txt", "missing", "missing/*", "hello.txt/*", "links/*",
    "links/dir/*.JPG", "links/up/h*", "links/broken", "./many/../hell*", "*/", "**/", "train/*/", "hello.txt/",
    "[[]brackets]", "star[*]", "raw-*", "**/sub/**/*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_on_the_host(image: kilnfs.Image, tree: Path, pattern: str) -> None:
    if pattern.endswith("**"):  # before 3.13, pathlib found only directories, and glob follows links
        base = tree / pattern.removesuffix("**")
        real = [base, *(Path(directory, name) for directory, dirs, files in os.walk(base) for name in dirs + files)]
    elif "**" in pattern:
        real = list(tree.glob(pattern))
    else:
        real = [tree / path for path in glob.glob(pattern, root_dir=tree, include_hidden=True)]
    expected = sorted({str(path.relative_to(tree)) for path in real} - {"."})
    found = list(image.glob(pattern))
    assert sorted(found) == sorted(set(found)) == expected
    assert sorted(image.glob(os.fsencode(pattern))) == sorted(map(os.fsencode, found))
    assert sorted(path for path in image.glob("/" + pattern) if path != "/") == sorted("/" + path for path in found)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="before 3.13, ** at the end of a pattern meant directories")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_pathlib(image: kilnfs.Image, tree: Path, pattern: str) -> None:
    real = sorted(str(path.relative_to(tree)) for path in tree.glob(pattern))
    assert sorted(str(path.relative_to("/")) for path in image.root.glob(pattern)) == real


def test_root(image: kilnfs.Image, tree: Path) -> None:
    assert list(image.glob("*/*.jpg", root="train")) == [f"{cls}/{i}.jpg" for cls in ("cat", "dog") for i in range(5)]
    assert list(image.glob("*.jpg", root=image / "train/cat")) == [f"{i}.jpg" for i in range(5)]
    assert list(image.glob("*.jpg", root=b"train/dog")) == [f"{i}.jpg" for i in range(5)]
    assert list(image.glob("*", root="missing")) == []
    with pytest.raises(ValueError):
        image.glob("")


def test_any_name(image: kilnfs.Image) -> None:
    assert list(image.glob(b"raw-*")) == [RAW_NAME]
    assert list(image.glob(b"raw-\xff*")) == [RAW_NAME]
    assert list(image.glob("raw-???")) == [os.fsdecode(RAW_NAME)]
    assert list(image.glob("new\nline")) == ["new\nline"]


def test_paths(image: kilnfs.Image) -> None:
    cats = image / "train" / "cat"
    assert list(cats.glob("*.jpg")) == [cats / f"{i}.jpg" for i in range(5)]
    assert list(cats.rglob("*.png")) == [cats / "sub/0.png"]
    assert list(cats.glob("**"))[0] == cats
    with pytest.raises(NotImplementedError):
        cats.glob("/absolute")
    with pytest.raises(ValueError):
        cats.glob("")


@pytest.mark.parametrize(
    ("path", "pattern", "full"),
    [
        ("/a/b/c.txt", "/a/**/c.txt", True), ("/a/c.txt", "/a/**/c.txt", True), ("/a/b/c.txt", "**/*.txt", True),
        ("a/b", "a/*", True), ("a/b", "*", False), ("a/b/c/d", "a/**/d", True), ("a/b/c/d", "**/b/**", True),
        ("a", "**", True), ("/a", "**", True), ("/", "**", True), ("a/b", "**/b/**/c", False), ("/a", "/*", True),
        ("/a", "*", False), ("a", "/*", False), ("a.py", "[!b].py", True), ("a/b/c", "b/c", False),
        ("/a/b", "a/b", False), ("a/b/c", "a/*/*", True), ("a/b/c/b/d", "**/b/*", True), ("a/b", "a/b/**", False), ("/", "/**", True),
    ],
)  # fmt: skip
def test_match(image: kilnfs.Image, path: str, pattern: str, full: bool) -> None:
    ours, real = kilnfs.Path(image, path), PurePosixPath(path)
    assert ours.full_match(pattern) is full
    if sys.version_info >= (3, 13):
        assert real.full_match(pattern) is full
    if "**" not in pattern:
        assert ours.match(pattern) == real.match(pattern)
