"""The verbs of `os` give for an image what `os` gives for the directory that it was made of."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from conftest import RAW_NAME, run_python

import kilnfs


def all_paths(tree: Path) -> list[bytes]:
    """Paths of all files below a directory, from there."""
    base = os.fsencode(tree)
    found = []
    for directory, dirs, files in os.walk(base):
        found += [os.path.relpath(os.path.join(directory, name), base) for name in dirs + files]
    return sorted(found)


def answer(call, *args, **kwargs):
    """What a call returns, or the number of its error."""
    try:
        return call(*args, **kwargs)
    except OSError as error:
        return type(error), error.errno


def test_stat_is_that_of_the_file(each_image: kilnfs.Image, tree: Path) -> None:
    for path in all_paths(tree):
        real, found = os.lstat(os.path.join(os.fsencode(tree), path)), each_image.lstat(path)
        assert type(found) is os.stat_result
        names = ["st_mode", "st_uid", "st_gid", "st_rdev", "st_mtime_ns"]
        names += [] if stat.S_ISDIR(real.st_mode) else ["st_size", "st_nlink"]
        assert [getattr(found, name) for name in names] == [getattr(real, name) for name in names], path
        assert found.st_mtime == pytest.approx(real.st_mtime, abs=1e-6) and found[8] == real[8]
    linked = {each_image.stat(path).st_ino for path in ("hello.txt", "hard-1", "many/hard-2", "links/file")}
    assert len(linked) == 1


def test_links_are_followed_or_not(image: kilnfs.Image, tree: Path) -> None:
    for link in os.listdir(tree / "links"):
        real, path = tree / "links" / link, f"links/{link}"
        follows = answer(os.stat, real)
        found = answer(image.stat, path)
        assert getattr(found, "st_mode", found) == getattr(follows, "st_mode", follows), link
        assert image.readlink(path) == os.readlink(real)
        assert image.readlink(os.fsencode(path)) == os.readlink(os.fsencode(real))
        for name in ("exists", "lexists", "isfile", "isdir", "islink"):
            assert getattr(image, name)(path) is getattr(os.path, name)(real), (name, link)
    with pytest.raises(OSError) as raised:
        image.readlink("hello.txt")
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("path", ["missing", "hello.txt/below", "many/missing", "", "/", ".", "links/up/many/.."])
def test_questions_about_any_path(image: kilnfs.Image, tree: Path, path: str) -> None:
    real = os.path.join(tree, path.lstrip("/"))
    for name in ("exists", "lexists", "isfile", "isdir", "islink"):
        assert getattr(image, name)(path) is getattr(os.path, name)(real), name


def test_listdir(each_image: kilnfs.Image, tree: Path) -> None:
    for directory, _, _ in os.walk(tree):
        path = os.path.relpath(directory, tree)
        assert each_image.listdir(path) == sorted(os.listdir(directory), key=os.fsencode)
        assert each_image.listdir(os.fsencode(path)) == sorted(os.listdir(os.fsencode(directory)))
    assert os.fsdecode(RAW_NAME) in each_image.listdir()
    assert each_image.listdir(each_image.root / "many") == each_image.listdir("many")
    assert each_image.listdir(nid=each_image.stat("many").st_ino) == each_image.listdir("/many")


def test_scandir(image: kilnfs.Image, tree: Path) -> None:
    for directory in (".", "links", "many"):
        with os.scandir(tree / directory) as entries:
            real = {entry.name: entry for entry in entries}
        with image.scandir(directory) as found:
            entries = list(found)
        assert [entry.name for entry in entries] == sorted(real, key=os.fsencode)
        for entry in entries:
            twin = real[entry.name]
            assert entry.path == os.path.join(directory, entry.name)
            assert os.fspath(tree / entry.path) == os.path.normpath(twin.path)
            for follow in (True, False):
                for name in ("is_dir", "is_file", "stat"):
                    expected = answer(getattr(twin, name), follow_symlinks=follow)
                    got = answer(getattr(entry, name), follow_symlinks=follow)
                    assert getattr(got, "st_mode", got) == getattr(expected, "st_mode", expected), (entry, name)
            assert entry.is_symlink() == twin.is_symlink()
            assert entry.inode() == image.lstat(entry.path).st_ino == entry.stat(follow_symlinks=False).st_ino
            assert repr(entry) == repr(twin)
    assert [entry.path for entry in image.scandir(b"train")] == [b"train/cat", b"train/dog"]
    assert [entry.path for entry in image.scandir()][-1].startswith("/")


def test_scandir_ends_when_it_is_closed(image: kilnfs.Image) -> None:
    entries = image.scandir("many")
    next(entries)
    entries.close()
    assert list(entries) == []


@pytest.mark.parametrize("topdown", [True, False])
@pytest.mark.parametrize("top", ["/", "many", "links", "missing", "hello.txt", b"/", b"links"])
def test_walk(each_image: kilnfs.Image, tree: Path, top: str | bytes, topdown: bool) -> None:
    base = tree if isinstance(top, str) else os.fsencode(tree)
    slash = "/" if isinstance(top, str) else b"/"
    real = {
        os.path.relpath(directory, base): (sorted(dirs), sorted(files))
        for directory, dirs, files in os.walk(os.path.join(base, top.lstrip(slash)), topdown)
    }
    found = list(each_image.walk(top, topdown))
    assert all(directory.startswith(top) for directory, _, _ in found)
    dot = "." if isinstance(top, str) else b"."
    assert {directory.strip(slash) or dot: (sorted(dirs), sorted(files)) for directory, dirs, files in found} == real
    # Each directory before what is in it, or after.
    places = {directory: i for i, (directory, _, _) in enumerate(found)}
    for directory, dirs, _ in found:
        for name in dirs:
            below = places.get(os.path.join(directory, name))
            assert below is None or (places[directory] < below) is topdown


def test_walk_goes_where_the_caller_says(image: kilnfs.Image) -> None:
    seen = []
    for directory, dirs, _ in image.walk("/"):
        seen.append(directory)
        dirs[:] = [name for name in reversed(dirs) if name in ("many", "train", "dog")]
    assert seen == ["/", "/train", "/train/dog", "/many"]
    raw = []
    for directory, dirs, _ in image.walk(b"train"):
        raw.append(directory)
        dirs[:] = dirs[1:]
    assert raw == [b"train", b"train/dog"]


def test_walk_follows_links_if_asked(image: kilnfs.Image, tree: Path) -> None:
    (loops,) = [files for directory, dirs, files in image.walk("links") if directory == "links"]
    assert {"loop-a", "self", "broken"} <= set(loops)
    found = {}
    for directory, dirs, files in image.walk("links", followlinks=True):
        found[directory] = set(files)
        dirs[:] = [name for name in dirs if name != "up"]  # which leads in a circle, as os.walk says
    assert set(found) == {"links", "links/dir", "links/chain"}
    assert found["links/dir"] == set(os.listdir(tree / "many"))


def test_walk_tells_of_errors(image: kilnfs.Image) -> None:
    errors: list[OSError] = []
    assert list(image.walk("missing", onerror=errors.append)) == []
    assert [(type(error), error.filename) for error in errors] == [(FileNotFoundError, "missing")]


def test_extended_attributes(each_image: kilnfs.Image, tree: Path) -> None:
    for path in ("hello.txt", "many", "empty", "links/file"):
        names = [name for name in os.listxattr(tree / path) if name.startswith("user.")]
        found = [name for name in each_image.listxattr(path) if name.startswith("user.")]
        assert sorted(found) == sorted(names)
        for name in names:
            assert each_image.getxattr(path, name) == os.getxattr(tree / path, name)
            assert each_image.getxattr(path, name.encode()) == os.getxattr(tree / path, name)
    assert each_image.listxattr("links/file", follow_symlinks=False) == []
    with pytest.raises(OSError) as raised:
        each_image.getxattr("hello.txt", "user.missing")
    assert raised.value.errno == errno.ENODATA


def test_errors_have_number_path_and_image(image: kilnfs.Image, image_path: Path) -> None:
    cases = [
        (FileNotFoundError, errno.ENOENT, lambda: image.stat("no/such")),
        (FileNotFoundError, errno.ENOENT, lambda: image.read("no/such")),
        (NotADirectoryError, errno.ENOTDIR, lambda: image.listdir("hello.txt")),
        (IsADirectoryError, errno.EISDIR, lambda: image.read("many")),
        (OSError, errno.ELOOP, lambda: image.stat("links/self")),
        (OSError, errno.EINVAL, lambda: image.read("fifo")),
    ]
    for kind, number, call in cases:
        with pytest.raises(kind) as raised:
            call()
        assert raised.value.errno == number
        assert raised.value.filename in ("no/such", "hello.txt", "many", "links/self", "fifo")
        assert raised.value.filename2 == str(image_path)


def test_names_do_not_depend_on_the_locale(image: kilnfs.Image, image_path: Path) -> None:
    program = (
        "import kilnfs, sys; image = kilnfs.open(sys.argv[1]); print(ascii((image.listdir(), image.read('ünïcode'))))"
    )
    expected = ascii((image.listdir(), image.read("ünïcode"))) + "\n"
    for locale in ("C", "C.UTF-8", "POSIX"):
        # Neither does the program, which is given in ASCII.
        code = program.encode("unicode-escape").decode()
        given = run_python(
            f"exec({code!r}.encode().decode('unicode-escape'))",
            str(image_path),
            environment={"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )
        assert given == expected


def test_errors_of_bytes_name_bytes_or_text(image: kilnfs.Image) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        image.stat(b"no-\xff")
    assert os.fsencode(raised.value.filename) == b"no-\xff"


@pytest.mark.parametrize("wrong", [None, 1.5, ["hello.txt"], object()])
def test_what_is_no_path_is_a_type_error(image: kilnfs.Image, wrong: object) -> None:
    for name in ("stat", "lstat", "listdir", "scandir", "readlink", "listxattr", "read", "exists", "open", "path"):
        with pytest.raises(TypeError):
            getattr(image, name)(wrong)


def test_a_closed_image_is_a_value_error(image_path: Path) -> None:
    image = kilnfs.open(image_path)
    path, file, view = image / "hello.txt", image.open("hello.txt"), image.view("hello.txt")
    image.close()
    image.close()
    assert image.closed
    for call in (
        lambda: image.stat("hello.txt"),
        lambda: image.exists("hello.txt"),
        lambda: image.listdir(),
        lambda: list(image.walk()),
        lambda: image.namelist(),
        lambda: list(image.glob("*")),
        lambda: image.read("hello.txt"),
        lambda: image.index(),
        lambda: image.read_many(["hello.txt"]),
        lambda: image.info,
        lambda: image.__enter__(),
        path.read_bytes,
        path.exists,
        file.read,
    ):
        with pytest.raises(ValueError):
            call()
    assert bytes(view) == b"hello\nworld\n"
    assert "closed" in repr(image)
