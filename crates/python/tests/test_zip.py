"""The verbs of `zipfile`."""

from __future__ import annotations

import os
import pickle
import time
import zipfile
from pathlib import Path

import pytest
from test_os import all_paths

import kilnfs


def test_names_are_those_of_the_directory(each_image: kilnfs.Image, tree: Path) -> None:
    names = each_image.namelist()
    assert sorted(map(os.fsencode, names)) == all_paths(tree)
    # Each directory before what is in it, and the names of one directory sorted by their bytes.
    places = {name: i for i, name in enumerate(names)}
    assert all(places.get(os.path.dirname(name), -1) < i for name, i in places.items())
    assert names == sorted(names, key=lambda name: os.fsencode(name).split(b"/"))


def test_names_as_zipfile_has_them(image: kilnfs.Image, tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        for directory, _, files in os.walk(tree / "train"):
            for name in files:
                path = os.path.join(directory, name)
                made.write(path, os.path.relpath(path, tree))
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        for info in archive.infolist():
            entry = image.getinfo(info.filename)
            assert (entry.filename, entry.file_size, entry.is_dir()) == (info.filename, info.file_size, info.is_dir())
            assert image.read(info.filename) == archive.read(info.filename)
            with image.open(info.filename) as a, archive.open(info.filename) as b:
                assert a.read() == b.read()


def test_entries(image: kilnfs.Image, tree: Path) -> None:
    entries = image.infolist()
    assert [entry.path for entry in entries] == image.namelist()
    for entry in entries:
        real = os.lstat(tree / entry.path)
        assert (entry.mode, entry.mtime_ns, entry.uid, entry.gid) == (
            real.st_mode,
            real.st_mtime_ns,
            real.st_uid,
            real.st_gid,
        )
        assert entry == image.getinfo(entry.path) == image.getinfo("/" + entry.path) == image.getinfo(entry)
        assert entry.is_dir() == (tree / entry.path).is_dir() or (tree / entry.path).is_symlink()
    hello = image.getinfo("hello.txt")
    assert hello.date_time == time.gmtime(1_234_567_890)[:6]
    assert image.read(hello) == (tree / "hello.txt").read_bytes()
    with pytest.raises(FileNotFoundError):
        image.getinfo("missing")


def test_contents(each_image: kilnfs.Image, tree: Path) -> None:
    for path in all_paths(tree):
        real = os.path.join(os.fsencode(tree), path)
        if os.path.isfile(real) and not os.path.islink(real):
            with open(real, "rb") as file:
                contents = file.read()
            assert each_image.read(path) == contents
            assert each_image.read(nid=each_image.stat(path).st_ino) == contents
            assert each_image.read(path, 7, 4000) == contents[7:4000]
            assert bytes(each_image.view(path)) == contents


def test_text(image: kilnfs.Image, tree: Path) -> None:
    assert image.read_text("hello.txt") == "hello\nworld\n"
    assert image.read_text("latin.txt", "latin-1") == "grün\n"
    assert image.read_text("latin.txt", errors="replace") == "gr\ufffdn\n"
    with pytest.raises(UnicodeDecodeError):
        image.read_text("latin.txt")


def test_context_manager(image_path: Path) -> None:
    with kilnfs.open(image_path) as image:
        assert not image.closed
    assert image.closed


def test_a_sound_image_is_found_sound(each_image: kilnfs.Image) -> None:
    calls: list[tuple[int, int]] = []
    report = each_image.check(threads=2, progress=lambda done, total: calls.append((done, total)))
    assert report.ok and report.problems == [], report
    assert report.bytes >= sum(entry.size for entry in each_image.infolist() if entry.path in ("big.bin", "hole.bin"))
    assert calls and calls == sorted(calls)


def test_reports_say_what_they_declare(each_image: kilnfs.Image) -> None:
    reports = [each_image.info, each_image.check(), each_image.explain("big.bin", 5, 100)]
    reports += [each_image.extents(name)[0] for name in ("big.bin", "hole.bin", "hello.txt")]
    for report in reports:
        assert set(vars(report)) == set(type(report).__annotations__)
        assert repr(report).startswith(type(report).__name__ + "(")
    assert each_image.explain("big.bin", 5, 100).wanted == 95
    for name in ("big.bin", "hole.bin", "all-hole", "empty"):
        place = 0
        for extent in each_image.extents(name):
            assert extent.start == place
            place += extent.length
        assert place >= each_image.stat(name).st_size


def test_entries_pickle(image: kilnfs.Image) -> None:
    entry = image.getinfo("hello.txt")
    assert pickle.loads(pickle.dumps(entry)) == entry
    for found in (*image.scandir("links"), *image.scandir(b"train/cat")):
        again = pickle.loads(pickle.dumps(found))
        assert (again.name, again.path, again.inode()) == (found.name, found.path, found.inode())
        assert again.is_symlink() == found.is_symlink()
        assert again.stat(follow_symlinks=False) == found.stat(follow_symlinks=False)
        assert again.__kilnfs_path__() == found.__kilnfs_path__()
