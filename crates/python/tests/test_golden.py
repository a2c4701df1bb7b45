"""Images of another builder, one for each feature of the format, show the trees that they were made of."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import kilnfs

GOLDEN = Path(__file__).resolve().parents[2] / "read" / "tests" / "golden"
TYPES = {"-": stat.S_IFREG, "d": stat.S_IFDIR, "l": stat.S_IFLNK, "p": stat.S_IFIFO,
         "s": stat.S_IFSOCK, "c": stat.S_IFCHR, "b": stat.S_IFBLK}  # fmt: skip


def manifest() -> list[tuple[str, str]]:
    """Names of images, and of their trees."""
    try:
        lines = (GOLDEN / "MANIFEST.tsv").read_text().splitlines()[1:]
    except FileNotFoundError:
        return []
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


@pytest.mark.parametrize(("name", "tree"), manifest())
@pytest.mark.parametrize("mmap", [False, True])
def test_golden(name: str, tree: str, mmap: bool) -> None:
    expected = [json.loads(line) for line in (GOLDEN / f"tree-{tree}.jsonl").read_text().splitlines()]
    blob = GOLDEN / f"{name}.blob"
    devices = [blob] if blob.exists() else []
    with kilnfs.open(GOLDEN / f"{name}.erofs", devices=devices, mmap=mmap) as image:
        found = {b"/", *(b"/" + os.fsencode(path) for path in image.namelist())}
        assert found == {entry["path"].encode("latin-1") for entry in expected}
        for entry in expected:
            compare(image, name, entry)
        assert image.check().ok


def compare(image: kilnfs.Image, name: str, entry: dict[str, Any]) -> None:
    """One file, and what is expected of it."""
    path = entry["path"].encode("latin-1")
    status = image.lstat(path)
    assert (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)) == (TYPES[entry["type"]], entry["mode"]), path
    assert status.st_nlink == entry["nlink"]
    if name != "compact":  # which has no owners and times of its own
        assert (status.st_uid, status.st_gid) == (entry["uid"], entry["gid"])
        seconds, nanoseconds = entry["mtime"]
        if not name.startswith(("48bit", "metabox", "xattr-metabox")):  # which have whole seconds
            assert status.st_mtime_ns == seconds * 1_000_000_000 + nanoseconds, path
    match entry["type"]:
        case "-":
            contents = image.read(path)
            assert len(contents) == status.st_size == entry["size"]
            assert hashlib.sha256(contents).hexdigest() == entry["sha256"], path
            with image.open(path) as file:
                assert file.read() == contents
            assert bytes(image.view(path)) == contents
        case "l":
            assert image.readlink(path) == entry["target"].encode("latin-1")
        case "c" | "b":
            assert [os.major(status.st_rdev), os.minor(status.st_rdev)] == entry["rdev"]
    if name != "xattr-none":
        attributes = {os.fsencode(attribute): value for attribute, value in entry.get("xattrs", {}).items()}
        found = {os.fsencode(attribute) for attribute in image.listxattr(path, follow_symlinks=False)}
        assert found == set(attributes), path
        for attribute, value in attributes.items():
            assert image.getxattr(path, attribute, follow_symlinks=False) == bytes.fromhex(value)


def test_devices_are_told_of(tmp_path: Path) -> None:
    if not GOLDEN.exists():
        pytest.skip("the golden images are not there")
    alone = tmp_path / "blobdev.erofs"
    alone.write_bytes((GOLDEN / "blobdev.erofs").read_bytes())
    with pytest.raises(OSError):
        kilnfs.open(alone, devices=[tmp_path / "missing"])
    with pytest.raises(OSError):
        kilnfs.open(alone, devices=[GOLDEN / "blobdev.blob"] * 2)


def test_devices_of_a_pickled_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    if not GOLDEN.exists():
        pytest.skip("the golden images are not there")
    monkeypatch.chdir(GOLDEN)
    with kilnfs.open("blobdev.erofs", devices=["blobdev.blob"]) as image:
        data, contents = pickle.dumps(image), image.read("big/text")
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(data).read("big/text") == contents
