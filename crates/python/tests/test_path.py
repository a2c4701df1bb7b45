"""`kilnfs.Path` is to an image what `pathlib.Path` is to a directory."""

from __future__ import annotations

import errno
import importlib.resources
import os
import pickle
import stat
import sys
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import pytest
from conftest import RAW_NAME, pack

import kilnfs

TEXTS = [
    "/", "/a", "a", "a/b.tar.gz", "/a/b/../c", "a/./b//c", ".", "", "..", "a/..", "/a/.hidden", "a.", ".a.b", "/x/y.z/",
    "a b/c\n",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_taken_apart_as_pathlib_does(image: kilnfs.Image, text: str) -> None:
    ours, real = kilnfs.Path(image, text), PurePosixPath(text)
    for name in ("name", "parts", "anchor", "root", "drive"):
        assert getattr(ours, name) == getattr(real, name), name
    if not real.name.endswith("."):  # since 3.14 the suffix of "a." is "."
        for name in ("stem", "suffix", "suffixes"):
            assert getattr(ours, name) == getattr(real, name), name
    assert str(ours) == ours.as_posix() == str(real)
    assert bytes(ours) == bytes(real)
    assert str(ours.parent) == str(real.parent)
    assert list(map(str, ours.parents)) == list(map(str, real.parents))
    assert ours.is_absolute() == real.is_absolute()
    for other in ("b", "/b", "..", "b/c/"):
        assert str(ours / other) == str(real / other) == str(ours.joinpath(other))
        assert str(other / ours) == str(other / real)
    for method, argument in (("with_name", "n"), ("with_suffix", ".s"), ("with_suffix", ""), ("with_stem", "t")):
        try:
            expected = str(getattr(real, method)(argument))
        except ValueError:
            with pytest.raises(ValueError):
                getattr(ours, method)(argument)
        else:
            if not real.name.endswith("."):
                assert str(getattr(ours, method)(argument)) == expected
    for other in ("/", "/a", "a", "", "/a/b", "x"):
        assert ours.is_relative_to(other) == real.is_relative_to(other), other
        try:
            relative = str(real.relative_to(other))
        except ValueError:
            with pytest.raises(ValueError):
                ours.relative_to(other)
        else:
            assert str(ours.relative_to(other)) == relative


def test_relative_upwards(image: kilnfs.Image) -> None:
    assert str((image / "a/b").relative_to("/a/c/d", walk_up=True)) == "../../b"
    with pytest.raises(ValueError):
        (image / "a").relative_to("b", walk_up=True)


@pytest.mark.parametrize("wrong", ["", ".", "a/b"])
def test_names_that_are_none(image: kilnfs.Image, wrong: str) -> None:
    with pytest.raises(ValueError):
        (image / "x").with_name(wrong)
    with pytest.raises(ValueError):
        (image / "x").with_suffix("s" + wrong)


def test_wrong_segments(image: kilnfs.Image) -> None:
    for wrong in (b"bytes", 1, None):
        with pytest.raises(TypeError):
            image.root / wrong
        with pytest.raises(TypeError):
            kilnfs.Path(image, wrong)
    with pytest.raises(TypeError):
        image / 1


def test_made_by_the_image(image: kilnfs.Image) -> None:
    assert image / "a" == image.path("a") == image.path("/a") == image.root / "a" == image / b"a"
    assert image / PurePosixPath("a").name == image.root / PurePosixPath("a")
    assert image.root == image.path() == kilnfs.Path(image, "/")
    assert image.root != kilnfs.Path(image)
    assert image.path("a").image is image
    assert image.path(image.root / "x") == image / "x"


def test_equal_ordered_hashable(image: kilnfs.Image, image_paths: dict[str, Path], image_path: Path) -> None:
    names = ["/b", "/a/z", "/a", "/a.b", "/a b"]
    assert [str(path) for path in sorted(kilnfs.Path(image, name) for name in names)] == [
        str(path) for path in sorted(map(PurePosixPath, names))
    ]
    assert len({image / "a", image / "a", image / "b"}) == 2
    a, b = image / "a", image / "b"
    assert a < b and a <= b and b > a and b >= a and not a == b
    assert a != "/a"
    with kilnfs.open(image_path) as again, kilnfs.open(image_paths["plain"]) as other:
        assert a == again / "a" and hash(a) == hash(again / "a")
        assert a != other / "a"
        with pytest.raises(TypeError):
            a < other / "b"  # noqa: B015
    image.close()
    assert a == a and hash(a) == hash(image.root / "a")


def test_files(image: kilnfs.Image, tree: Path) -> None:
    root = image.root
    for ours, dirs, files in root.walk():
        real = tree / ours.relative_to("/").as_posix()
        assert [path.name for path in ours.iterdir()] == sorted(os.listdir(real), key=os.fsencode)
        for child in ours.iterdir():
            twin = real / child.name
            for name in (
                "is_dir",
                "is_file",
                "is_symlink",
                "is_fifo",
                "is_socket",
                "is_block_device",
                "is_char_device",
            ):
                assert getattr(child, name)() == getattr(twin, name)(), (child, name)
            assert not child.is_mount()
            assert child.exists() == os.path.exists(twin) and child.exists(follow_symlinks=False)
            assert child.lstat().st_mode == twin.lstat().st_mode == child.stat(follow_symlinks=False).st_mode
            mode = twin.lstat().st_mode
            assert child.info.is_dir() == twin.is_dir() and child.info.is_file() == twin.is_file()
            assert child.info.exists() == child.exists() and child.info.exists(follow_symlinks=False)
            assert child.info.is_symlink() == twin.is_symlink()
            assert child.info.is_dir(follow_symlinks=False) == stat.S_ISDIR(mode)
            assert child.info.is_file(follow_symlinks=False) == stat.S_ISREG(mode)
            if child.is_symlink():
                assert str(child.readlink()) == os.readlink(twin)
            elif child.is_file():
                assert child.read_bytes() == twin.read_bytes()
                assert child.stat().st_size == twin.stat().st_size
        assert {path.name for path in ours.iterdir()} == {*dirs, *files}
    missing = root / "missing"
    assert not missing.exists() and not missing.info.exists() and not missing.is_dir()
    with pytest.raises(FileNotFoundError):
        missing.iterdir()
    with pytest.raises(NotADirectoryError):
        (root / "hello.txt").iterdir()


def test_any_name(image: kilnfs.Image) -> None:
    (found,) = image.root.glob("raw-*")
    assert bytes(found) == b"/" + RAW_NAME
    assert found.read_bytes() == RAW_NAME
    assert (image / os.fsdecode(RAW_NAME)) == found


@pytest.mark.parametrize("top_down", [True, False])
@pytest.mark.parametrize("follow", [True, False])
def test_walk_as_pathlib_does(image: kilnfs.Image, tree: Path, top_down: bool, follow: bool) -> None:
    if not hasattr(Path, "walk"):  # before 3.12: links stand among the files, which os.walk does otherwise
        expected = {}
        for directory, dirs, files in os.walk(tree / "links", followlinks=follow):
            moved = [] if follow else [name for name in dirs if os.path.islink(os.path.join(directory, name))]
            dirs[:] = [name for name in dirs if name not in moved and name != "up"]
            expected[os.path.relpath(directory, tree)] = (sorted(dirs), sorted(files + moved))
    else:
        expected = {}
        for path, dirs, files in (tree / "links").walk(follow_symlinks=follow):
            dirs[:] = [name for name in dirs if name != "up"]
            expected[str(path.relative_to(tree))] = (sorted(dirs), sorted(files))
    if follow and not top_down:
        pytest.skip("links/up leads in a circle, which only a walk from the top can leave out")
    found = {}
    for path, dirs, files in (image / "links").walk(top_down=top_down, follow_symlinks=follow):
        dirs[:] = [name for name in dirs if name != "up"]
        found[str(path.relative_to("/"))] = (sorted(dirs), sorted(files))
    assert found == expected


def test_resolve(image: kilnfs.Image, tree: Path) -> None:
    for text in (
        "links/through", "links/dir/../hello.txt", "links/up/links/chain", "links/broken", "links/broken/x", ".",
        "many/..", "missing/x/..", "links/file",
    ):  # fmt: skip
        real = "/" + os.path.relpath(os.path.realpath(tree / text), os.path.realpath(tree))
        assert str((image / text).resolve()) == os.path.normpath(real), text
        assert kilnfs.Path(image, text).resolve() == (image / text).resolve()
    for text, number in (("links/broken", errno.ENOENT), ("links/self", errno.ELOOP), ("hello.txt/x", errno.ENOTDIR)):
        with pytest.raises(OSError) as raised:
            (image / text).resolve(strict=True)
        assert raised.value.errno == number
    assert (image / "links/self").resolve() == image / "links/self"
    assert (image / "../../hello.txt").resolve() == image / "hello.txt"


def test_same_file(image: kilnfs.Image, image_paths: dict[str, Path]) -> None:
    hello = image / "hello.txt"
    assert hello.samefile(image / "hard-1") and hello.samefile("links/file")
    assert not hello.samefile("crlf.txt")
    with kilnfs.open(image_paths["plain"]) as other:
        assert not hello.samefile(other / "hello.txt")


def test_contents(image: kilnfs.Image, tree: Path) -> None:
    for name in ("hello.txt", "crlf.txt", "ünïcode", "empty"):
        ours, real = image / name, tree / name
        assert ours.read_bytes() == real.read_bytes()
        assert ours.read_text() == real.read_text()
        assert ours.read_text("utf-8", "strict", "") == real.read_bytes().decode()
        with ours.open() as a, real.open() as b:
            assert a.readlines() == b.readlines()
        with ours.open("rb") as c, ours.__open_rb__() as d, ours.__open_reader__() as e:
            assert c.read() == d.read() == e.read() == real.read_bytes()
    with pytest.raises(OSError) as raised:
        (image / "hello.txt").open("w")
    assert raised.value.errno == errno.EROFS


def test_is_a_traversable(image: kilnfs.Image, tree: Path) -> None:
    resource = image / "train"
    assert isinstance(resource, Traversable)
    assert resource.joinpath("cat", "1.jpg").read_bytes() == (tree / "train/cat/1.jpg").read_bytes()
    with importlib.resources.as_file(image / "hello.txt") as path:
        assert path.read_text() == "hello\nworld\n"
    if sys.version_info >= (3, 12):
        with importlib.resources.as_file(resource) as path:
            assert (path / "dog/sub/0.png").read_bytes() == b"dog"


def test_is_a_readable_path(image: kilnfs.Image) -> None:
    if sys.version_info >= (3, 14):
        from pathlib.types import PathInfo, _JoinablePath, _ReadablePath
    else:
        abc = pytest.importorskip("pathlib_abc")
        PathInfo, _JoinablePath, _ReadablePath = abc.PathInfo, abc.JoinablePath, abc.ReadablePath
    path = image / "train"
    assert isinstance(path, _ReadablePath) and isinstance(path, _JoinablePath)
    assert isinstance(path.info, PathInfo)
    # Registration promises what nobody checks: that all of it is there.
    for name in dir(_ReadablePath):
        if not name.startswith("_") or name in ("__open_rb__", "__open_reader__", "__vfspath__"):
            assert hasattr(path, name), name


def test_mixin_of_pathlib_abc_reads_it(image: kilnfs.Image, tree: Path) -> None:
    abc = pytest.importorskip("pathlib_abc")
    with abc.vfsopen(image / "hello.txt", "rb") as file:
        assert file.read() == b"hello\nworld\n"
    assert abc.vfspath(image / "hello.txt") == "/hello.txt"
    found = [str(path) for path in abc.ReadablePath.glob(image / "train", "*/*.jpg")]
    assert sorted(found) == [f"/train/{cls}/{i}.jpg" for cls in ("cat", "dog") for i in range(5)]


def test_has_no_path_on_the_host(image: kilnfs.Image) -> None:
    assert not isinstance(image.root, os.PathLike)
    with pytest.raises(TypeError):
        open(image / "hello.txt")


def test_subclasses_make_their_own(image: kilnfs.Image) -> None:
    class Mine(kilnfs.Path):
        pass

    mine = Mine(image, "/train")
    assert type(mine / "cat") is type(mine.parent) is type(next(mine.iterdir())) is type(mine.resolve()) is Mine


def test_pickles(image: kilnfs.Image) -> None:
    path = image / "train" / "cat" / "1.jpg"
    again = pickle.loads(pickle.dumps(path))
    assert again == path and hash(again) == hash(path) and again.read_bytes() == path.read_bytes()


def test_copy_of_a_file(image: kilnfs.Image, tree: Path, tmp_path: Path) -> None:
    for name in ("big.bin", "hello.txt", "empty", "hole.bin"):
        copied = (image / name).copy(tmp_path / name)
        assert copied == tmp_path / name and isinstance(copied, Path)
        assert copied.read_bytes() == (tree / name).read_bytes()
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "hello.txt").stat().st_mode == plain.stat().st_mode
    (image / "hello.txt").copy(str(plain), preserve_metadata=True)
    assert (plain.stat().st_mode, plain.stat().st_mtime_ns) == (0o100640, 1_234_567_890_123_456_789)
    assert (image / "many/001.txt").copy(tmp_path / "suid", preserve_metadata=True).stat().st_mode & 0o7777 == 0o755
    assert (image / "hello.txt").copy_into(tmp_path / "..").name == "hello.txt"
    assert sorted(os.listdir(tmp_path)) == ["big.bin", "empty", "hello.txt", "hole.bin", "plain", "suid"]


def test_copy_goes_through_no_link(image: kilnfs.Image, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "link").symlink_to("victim")
    (image / "hello.txt").copy(tmp_path / "link")
    assert (tmp_path / "victim").read_text() == "untouched"
    assert not (tmp_path / "link").is_symlink()


def test_copy_that_fails_leaves_nothing(image: kilnfs.Image, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    path = image / "big.bin"
    image.close()
    with pytest.raises(ValueError):
        path.copy(tmp_path / "kept")
    assert os.listdir(tmp_path) == ["kept"] and (tmp_path / "kept").read_text() == "kept"


def test_copy_of_a_tree(image: kilnfs.Image, tree: Path, tmp_path: Path) -> None:
    target = (image / "train").copy_into(tmp_path)
    real = sorted(str(path.relative_to(tree / "train")) for path in (tree / "train").rglob("*"))
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == real
    with pytest.raises(FileExistsError):
        (image / "train").copy(target)
    links = (image / "links").copy(tmp_path / "links", follow_symlinks=False)
    assert {name: os.readlink(links / name) for name in os.listdir(links)} == {
        name: os.readlink(tree / "links" / name) for name in os.listdir(tree / "links")
    }
    with pytest.raises(OSError):  # broken, and a loop
        (image / "links").copy(tmp_path / "followed")
    with pytest.raises(OSError) as raised:
        (image / "fifo").copy(tmp_path / "fifo")
    assert raised.value.errno == errno.EINVAL
    with pytest.raises(TypeError):
        image.root.copy(3)
    with pytest.raises(ValueError):
        image.root.copy_into(tmp_path)


def test_copy_of_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "source/dir").mkdir(parents=True)
    (tmp_path / "source/dir/up").symlink_to("..")
    pack(tmp_path / "source", tmp_path / "x.erofs")
    with kilnfs.open(tmp_path / "x.erofs") as image, pytest.raises(OSError) as raised:
        image.root.copy(tmp_path / "out")
    assert raised.value.errno == errno.ELOOP


def test_copy_to_a_writable_path_that_is_none_of_the_host(image: kilnfs.Image) -> None:
    taken = []

    class Target:
        def _copy_from(self, source: object, **options: object) -> None:
            taken.append((source, options))

        def joinpath(self) -> Target:
            return self

    target = Target()
    assert (image / "train").copy(target) is target
    assert taken == [(image / "train", {"follow_symlinks": True})]
