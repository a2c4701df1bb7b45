"""Extraction: the same files again, never outside of the target, and what PEP 706's filters mean."""

from __future__ import annotations

import errno
import filecmp
import os
import stat
import tarfile
from pathlib import Path

import pytest
from conftest import RAW_NAME, pack

import kilnfs


def differences(a: Path, b: Path) -> list[str]:
    """Names that one has and the other has not, and files with other contents or targets."""
    found = []
    names = {os.path.relpath(os.path.join(directory, name), base)
             for base in (a, b) for directory, dirs, files in os.walk(base) for name in dirs + files}  # fmt: skip
    for name in sorted(names):
        one, other = a / name, b / name
        if not (os.path.lexists(one) and os.path.lexists(other)):
            found.append(f"{name}: only in one")
        elif stat.S_IFMT(one.lstat().st_mode) != stat.S_IFMT(other.lstat().st_mode):
            found.append(f"{name}: another type")
        elif one.is_symlink() and os.readlink(one) != os.readlink(other):
            found.append(f"{name}: another target")
        elif one.is_file() and not one.is_symlink() and not filecmp.cmp(one, other, shallow=False):
            found.append(f"{name}: other contents")
    return found


def test_fully_trusted_keeps_everything(each_image: kilnfs.Image, tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    each_image.extractall(target, filter="fully_trusted")
    assert differences(tree, target) == []
    for path in ("hello.txt", "many/001.txt", "empty-dir", "fifo"):
        assert (target / path).lstat().st_mode == (tree / path).lstat().st_mode
    assert (target / "hello.txt").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert (target / "hello.txt").samefile(target / "many/hard-2")


def test_tar_clears_bits(image: kilnfs.Image, tree: Path, tmp_path: Path) -> None:
    image.extractall(tmp_path / "out", filter="tar")
    assert differences(tree, tmp_path / "out") == []
    for directory, dirs, files in os.walk(tmp_path / "out"):
        for name in dirs + files:
            found = Path(directory, name).lstat()
            if not stat.S_ISLNK(found.st_mode):
                assert not found.st_mode & 0o7022, name


def test_data_refuses_what_is_no_data(image: kilnfs.Image, tmp_path: Path) -> None:
    with pytest.raises(PermissionError) as raised:
        image.extractall(tmp_path / "out")
    assert raised.value.errno == errno.EPERM and raised.value.filename in ("disk", "fifo", "null", "socket")
    assert not (tmp_path / "out").exists(), "nothing is written before everything was looked at"


def test_data_is_the_default_for_parts(image: kilnfs.Image, tree: Path, tmp_path: Path) -> None:
    image.extractall(tmp_path, ["train", b"hello.txt", image / "many"])
    assert sorted(os.listdir(tmp_path)) == ["hello.txt", "many", "train"]
    assert differences(tree / "train", tmp_path / "train") == differences(tree / "many", tmp_path / "many") == []
    assert (tmp_path / "many/001.txt").stat().st_mode & 0o7000 == 0
    assert (tmp_path / "hello.txt").stat().st_uid == os.getuid()
    image.extractall(tmp_path / "nothing", [])
    assert not (tmp_path / "nothing").exists()


def test_one_member(image: kilnfs.Image, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = image.extract("train/cat/1.jpg", tmp_path)
    assert path == str(tmp_path / "train/cat/1.jpg")
    assert Path(path).read_bytes() == (tree / "train/cat/1.jpg").read_bytes()
    assert image.extract("/train/dog", str(tmp_path)) == str(tmp_path / "train/dog")
    assert differences(tree / "train/dog", tmp_path / "train/dog") == []
    monkeypatch.chdir(tmp_path)
    assert Path(image.extract(image.getinfo("hello.txt"))).read_text() == "hello\nworld\n"
    with pytest.raises(FileNotFoundError):
        image.extract("missing", tmp_path)
    with pytest.raises(OSError):
        image.extract("../hello.txt", tmp_path)
    with pytest.raises(NotADirectoryError):
        image.extract("links/dir/001.txt", tmp_path)
    with pytest.raises(ValueError):
        image.extractall(tmp_path, filter="none")


def test_extracting_over_what_is_there(image: kilnfs.Image, tmp_path: Path) -> None:
    image.extractall(tmp_path, ["train"])
    (tmp_path / "train/cat/1.jpg").write_text("mine")
    with pytest.raises(FileExistsError):
        image.extractall(tmp_path, ["train"])
    image.extractall(tmp_path, ["train"], overwrite=True)
    assert (tmp_path / "train/cat/1.jpg").read_bytes() == image.read("train/cat/1.jpg")
    # Never a directory by something else.
    (tmp_path / "hello.txt").mkdir()
    with pytest.raises(OSError):
        image.extract("hello.txt", tmp_path, overwrite=True)
    assert (tmp_path / "hello.txt").is_dir()


def test_what_is_there_already_stays(image: kilnfs.Image, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("mine")
    with pytest.raises(FileExistsError) as raised:
        image.extract("hello.txt", tmp_path)
    assert os.fspath(raised.value.filename).endswith("hello.txt")
    assert (tmp_path / "hello.txt").read_text() == "mine"
    assert str(raised.value).count("hello.txt") == 1 and "overwrite=True" in str(raised.value)
    image.extract("hello.txt", tmp_path, overwrite=True)
    assert (tmp_path / "hello.txt").read_text() == "hello\nworld\n"
    (tmp_path / "hello.txt").write_text("mine")
    # Directories are used.
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "train" / "mine").touch()
    image.extractall(tmp_path, ["train"])
    assert sorted(os.listdir(tmp_path / "train")) == ["cat", "dog", "mine"]


def test_members_are_names_and_no_patterns(image: kilnfs.Image, tmp_path: Path) -> None:
    for name in ("[brackets]", "star*", "new\nline", "with space", os.fsdecode(RAW_NAME)):
        image.extract(name, tmp_path)
        assert name in os.listdir(tmp_path)
    assert len(os.listdir(tmp_path)) == 5
    with pytest.raises(FileNotFoundError):
        image.extract("*.txt", tmp_path)


def test_progress_is_told(image: kilnfs.Image, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    image.extractall(tmp_path, ["big.bin", "many"], threads=2, progress=lambda done, total: calls.append((done, total)))
    assert all(0 <= done <= total for done, total in calls)


def test_an_exception_in_progress_ends_the_work(image: kilnfs.Image, tmp_path: Path) -> None:
    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError(f"{done} of {total}")

    for call in (
        lambda: image.extractall(tmp_path, ["big.bin"], progress=fail),
        lambda: image.check(progress=fail),
    ):
        with pytest.raises(ZeroDivisionError):
            call()


def test_nothing_goes_through_links_that_are_there(image: kilnfs.Image, tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "train").symlink_to(outside)
    (target / "hello.txt").symlink_to(outside / "victim")
    for name in ("train", "hello.txt"):
        for policy in ("fully_trusted", "tar", "data"):
            with pytest.raises(OSError):
                image.extractall(target, [name], filter=policy)
    assert os.listdir(outside) == []


LINKS = {
    "inside": "a/b", "up-inside": "a/../a/b", "a/up": "../a/b", "a/b/to-root": "../..", "broken": "a/none", "loop":
    "loop", "absolute": "/a/b", "above": "..", "above-2": "a/../../x", "above-broken": "none/../../x",
}  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_data_refuses_the_links_that_tarfile_refuses(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    (source / "a/b").mkdir(parents=True)
    (source / name).symlink_to(LINKS[name])
    pack(source, tmp_path / "x.erofs")
    with tarfile.open(tmp_path / "x.tar", "w") as made:
        made.add(source, ".")
    refused = False
    try:
        with tarfile.open(tmp_path / "x.tar") as archive:
            archive.extractall(tmp_path / "tar", filter="data")
    except tarfile.FilterError:
        refused = True
    with kilnfs.open(tmp_path / "x.erofs") as image:
        if refused:
            with pytest.raises(PermissionError):
                image.extractall(tmp_path / "out")
            assert not (tmp_path / "out").exists()
        else:
            image.extractall(tmp_path / "out")
            assert os.readlink(tmp_path / "out" / name) == LINKS[name]


def test_data_refuses_links_that_lead_out_by_others(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a/b").mkdir(parents=True)
    (source / "a/b/to-root").symlink_to("../..")
    # By its text alone, this stays in a/b; by way of the other link, it leads above the root.
    (source / "sly").symlink_to("a/b/to-root/..")
    pack(source, tmp_path / "x.erofs")
    with kilnfs.open(tmp_path / "x.erofs") as image, pytest.raises(PermissionError) as raised:
        image.extractall(tmp_path / "out")
    assert raised.value.filename == "sly"
