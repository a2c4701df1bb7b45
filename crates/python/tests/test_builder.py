"""kilnfs.Builder."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import packing
import pytest
from kilnfs._builder import Builder
from kilnfs._pack import pack


def test_the_image_is_that_of_the_same_tree_as_a_directory(tmp_path: Path) -> None:
    source = packing.tree(tmp_path / "source")
    with Builder() as tree:
        for name, data in packing.files(source).items():
            if name != "hardlink":
                tree.add_bytes(data, name)
        tree.mkdir("empty")
        tree.symlink("class-0/0000.txt", "symlink")
        tree.link("class-0/0000.txt", "/hardlink")
        built = tree.write(tmp_path / "built")
    assert built.uuid == pack(source, tmp_path / "packed").uuid
    assert (tmp_path / "built").read_bytes() == (tmp_path / "packed").read_bytes()


def test_the_order_of_calls_does_not_show(tmp_path: Path) -> None:
    source = packing.files(packing.tree(tmp_path / "source"))
    images: list[bytes] = []
    for names in (sorted(source), sorted(source, reverse=True)):
        with Builder() as tree:
            tree.add_many((name, source[name]) for name in names)
            tree.write(tmp_path / str(len(images)))
        images.append((tmp_path / str(len(images))).read_bytes())
    assert images[0] == images[1]


def test_metadata_are_as_given(tmp_path: Path) -> None:
    with Builder() as tree:
        tree.add_bytes(b"1", "file", mode=0o640, mtime=1.5, owner=(7, 8))
        tree.mkdir("dir", mode=0o700, mtime=-3, owner=(9, 10))
        tree.symlink("file", "link", mtime=5)
        tree.setxattr("file", "user.label", b"cat")
        tree.setxattr("file", "user.label", b"dog")
        tree.setxattr("dir/", "user.kind", bytearray(b"d"))
        tree.write(tmp_path / "image")
    listing = packing.kiln("stat", tmp_path / "image", "file")
    assert "640" in listing and "7" in listing and "dog" in listing and "cat" not in listing, listing
    assert "1970-01-01T00:00:01.5" in listing, listing
    listing = packing.kiln("stat", tmp_path / "image", "dir")
    assert "700" in listing and "user.kind" in listing, listing


def test_what_comes_later_lies_over_what_came_earlier(tmp_path: Path) -> None:
    with Builder() as tree:
        tree.add_bytes(b"first", "a/b")
        tree.add_bytes(b"second", "/a//./b/")
        tree.mkdir("a")
        tree.add_bytes(b"file", "c")
        tree.mkdir("c")
        tree.add_bytes(b"below", "c/d")
        tree.write(tmp_path / "image")
    assert packing.contents(tmp_path / "image", tmp_path) == {"a/b": b"second", "c/d": b"below"}


def test_files_and_trees_of_the_system(tmp_path: Path) -> None:
    source = packing.tree(tmp_path / "source")
    (tmp_path / "alias").symlink_to("source/class-1/0001.txt")
    with Builder() as tree:
        tree.add_tree(source)
        tree.add_bytes(b"new", "class-0/0000.txt")
        tree.add_file(tmp_path / "alias", "one")
        tree.add_tree(source / "class-2", "copies/two")
        tree.add_bytes(b"last", "copies/two/0002.txt")
        # Names that come before the first one in walk order: contents are read by the path that the directory knows.
        tree.link("class-3/0003.txt", "!first")
        tree.link("copies/two/0007.txt", "!second")
        tree.write(tmp_path / "image")
    expected = packing.files(source)
    expected |= {
        "one": expected["class-1/0001.txt"],
        "!first": expected["class-3/0003.txt"],
        "!second": expected["class-2/0007.txt"],
    }
    expected |= {f"copies/two/{path.name}": path.read_bytes() for path in (source / "class-2").iterdir()}
    expected |= {"class-0/0000.txt": b"new", "copies/two/0002.txt": b"last"}
    assert packing.contents(tmp_path / "image", tmp_path) == expected


def test_an_archive_is_what_pack_makes_of_it(tmp_path: Path) -> None:
    source = packing.tree(tmp_path / "source")
    for mode in ("w", "w:gz", "w:xz"):
        path = tmp_path / f"archive.{mode.replace(':', '.')}"
        with tarfile.open(path, mode) as tar:
            tar.add(source, ".")
        packing.kiln("pack", "--preset", "balanced", path, tmp_path / "command", "--force")
        with Builder() as tree, open(path, "rb") as file:
            tree.from_tar(file)
            tree.write(tmp_path / "built", preset="balanced", overwrite=True)
        if mode == "w":
            assert (tmp_path / "built").read_bytes() == (tmp_path / "command").read_bytes()
        else:  # pack stores it as it comes, in the order of the archive
            packing.kiln("diff", tmp_path / "built", tmp_path / "command")


def test_archives_come_from_anything_with_read(tmp_path: Path) -> None:
    source = packing.tree(tmp_path / "source")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(source, ".")

    class Trickle:
        """Gives a few bytes at a time, and cannot seek."""

        def __init__(self) -> None:
            self.rest = io.BytesIO(buffer.getvalue())

        def read(self, size: int) -> bytes:
            return self.rest.read(min(size, 4099))

    with Builder() as tree:
        tree.add_bytes(b"before", "below/kept")
        tree.from_tar(Trickle(), "below")  # type: ignore[arg-type]
        tree.write(tmp_path / "image")
    expected = {f"below/{name}": data for name, data in packing.files(source).items()} | {"below/kept": b"before"}
    assert packing.contents(tmp_path / "image", tmp_path) == expected


def test_damaged_archives_are_errors_with_their_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("file")
        info.size = 5000
        tar.addfile(info, io.BytesIO(b"x" * 5000))
    os.truncate(path, 2000)
    with Builder() as tree, open(path, "rb") as file:
        with pytest.raises(OSError, match="at byte") as error:
            tree.from_tar(file)
        assert error.value.filename == str(path) and error.value.errno == 117
        with pytest.raises(OSError, match="not a directory, archive or image"):
            tree.from_tar(io.BytesIO(b"no archive"))
        with pytest.raises(TypeError, match="binary and blocking mode"):
            tree.from_tar(io.StringIO("text"))  # type: ignore[arg-type]
        # The builder goes on.
        tree.add_bytes(b"1", "a")
        assert tree.write(tmp_path / "image").files >= 1


@pytest.mark.parametrize(
    "data", [b"bytes", bytearray(b"array"), memoryview(b"a view")[2:], memoryview(b"abcd").cast("H")]
)
def test_buffers_of_any_kind_are_contents(tmp_path: Path, data: object) -> None:
    with Builder() as tree:
        tree.add_bytes(data, "one")  # type: ignore[arg-type]
        assert tree.add_many([("many", data)]) == 1  # type: ignore[list-item]
        tree.write(tmp_path / "image")
    expected = memoryview(data).tobytes()  # type: ignore[arg-type]
    assert packing.contents(tmp_path / "image", tmp_path) == {"one": expected, "many": expected}


def test_large_and_empty_files_lie_in_the_spool_side_by_side(tmp_path: Path) -> None:
    lengths = [0, 1, 1 << 20, (1 << 20) + 1, 0, 3 << 20, 5]
    with Builder(spool_dir=tmp_path) as tree:
        tree.add_many((str(idx), bytes([idx]) * length) for idx, length in enumerate(lengths))
        # The spool has no name.
        assert list(tmp_path.iterdir()) == []
        tree.write(tmp_path / "image")
    assert packing.contents(tmp_path / "image", tmp_path) == {
        str(idx): bytes([idx]) * length for idx, length in enumerate(lengths)
    }


def test_paths_are_text_or_bytes(tmp_path: Path) -> None:
    with Builder() as tree:
        tree.add_bytes(b"1", b"\xff/\xfe")
        tree.add_bytes(b"2", "\udcff/ü")
        tree.write(tmp_path / "image")
    assert {os.fsencode(name): data for name, data in packing.contents(tmp_path / "image", tmp_path).items()} == {
        b"\xff/\xfe": b"1",
        b"\xff/" + "ü".encode(): b"2",
    }


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda tree: tree.add_bytes(b"", "file/below"), NotADirectoryError, "file/below"),
        (lambda tree: tree.add_bytes(b"", "a/../b"), OSError, "a/../b"),
        (lambda tree: tree.add_bytes(b"", "x" * 256), OSError, "x" * 256),
        (lambda tree: tree.add_bytes(b"", "/"), IsADirectoryError, "/"),
        (lambda tree: tree.link("nothing", "name"), FileNotFoundError, "name"),
        (lambda tree: tree.link("dir", "name"), PermissionError, "name"),
        (lambda tree: tree.setxattr("nothing", "user.a", b""), FileNotFoundError, "nothing"),
        (lambda tree: tree.add_file("/nothing", "name"), FileNotFoundError, "/nothing"),
        (lambda tree: tree.add_file("/", "name"), IsADirectoryError, "/"),
        (lambda tree: tree.add_tree("/nothing"), FileNotFoundError, "/nothing"),
        (lambda tree: tree.add_bytes("text", "name"), TypeError, None),
        (lambda tree: tree.add_bytes(b"", 5), TypeError, None),
        (lambda tree: tree.add_bytes(b"", "name", mode=0o10000), ValueError, None),
        (lambda tree: tree.add_bytes(b"", "name", owner=(0, -1)), ValueError, None),
        (lambda tree: tree.add_many([("name", 5)]), TypeError, None),
        (lambda tree: tree.add_many(5), TypeError, None),
    ],
)
def test_errors_name_the_path_and_change_nothing(
    tmp_path: Path, call: Callable[[Builder], object], error: type[Exception], name: str | None
) -> None:
    with Builder() as tree:
        tree.add_bytes(b"1", "file")
        tree.mkdir("dir")
        with pytest.raises(error) as raised:
            call(tree)
        if isinstance(raised.value, OSError):
            assert raised.value.filename == name
        tree.write(tmp_path / "image")
    assert packing.contents(tmp_path / "image", tmp_path) == {"file": b"1"}


def test_attributes_that_the_format_lacks_are_refused(tmp_path: Path) -> None:
    with Builder() as tree:
        tree.add_bytes(b"1", "a/file")
        with pytest.raises(OSError, match="nonsense") as error:
            tree.setxattr("a/file", "nonsense", b"")
        assert error.value.filename == "a/file"
        tree.write(tmp_path / "image")
    assert not tmp_path.joinpath("image").read_bytes().count(b"nonsense")


def test_a_tree_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    tree = Builder()
    tree.add_bytes(b"1", "file")
    # Nothing was read yet: the tree stays.
    with pytest.raises(FileExistsError):
        tree.write(tmp_path / "there")
    with pytest.raises(ValueError, match="preset=none"):
        tree.write(tmp_path / "image", preset="none")  # type: ignore[arg-type]
    tree.write(tmp_path / "image")
    with pytest.raises(ValueError, match="has written its image"):
        tree.write(tmp_path / "again")
    with pytest.raises(ValueError, match="has written its image"):
        tree.add_bytes(b"", "x")
    closed = Builder()
    closed.close()
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        closed.write(tmp_path / "again")
    assert sorted(os.listdir(tmp_path)) == ["image", "there"]


def test_nothing_is_left_behind_by_an_exception(tmp_path: Path) -> None:
    with pytest.raises(LookupError), Builder(spool_dir=tmp_path) as tree:
        tree.add_bytes(b"1" * (2 << 20), "file")
        raise LookupError
    with pytest.raises(ValueError, match="closed"):
        tree.mkdir("x")
    assert os.listdir(tmp_path) == []


def test_an_iterable_that_fails_keeps_what_came_before(tmp_path: Path) -> None:
    def files() -> Iterator[tuple[str, bytes]]:
        yield "a", b"1"
        raise LookupError("no more")

    with Builder() as tree:
        with pytest.raises(LookupError, match="no more"):
            tree.add_many(files())
        tree.write(tmp_path / "image")
    assert packing.contents(tmp_path / "image", tmp_path) == {"a": b"1"}


def test_an_iterable_may_use_the_builder(tmp_path: Path) -> None:
    with Builder() as tree:

        def files() -> Iterator[tuple[str, bytes]]:
            tree.mkdir("made/meanwhile")
            yield "a", b"1"

        tree.add_many(files())
        assert tree.write(tmp_path / "image").files == 1


def test_threads_share_a_builder(tmp_path: Path) -> None:
    with Builder() as tree:
        add = lambda worker: tree.add_many((f"{worker}/{idx}", b"%d" % idx) for idx in range(500))  # noqa: E731
        threads = [threading.Thread(target=add, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert tree.write(tmp_path / "image").files == 2000


def test_a_signal_ends_an_endless_iterable(tmp_path: Path) -> None:
    code = """
import itertools, os, signal, sys
from kilnfs._builder import Builder
print("working", flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.2)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    with Builder(spool_dir=sys.argv[1]) as tree:
        tree.add_many(zip(itertools.repeat("a"), itertools.repeat(b"1")))
except KeyboardInterrupt:
    print(os.listdir(sys.argv[1]))
"""
    assert packing.python(code, tmp_path).stdout == "working\n[]\n"


def test_memory_does_not_grow_with_the_bytes(tmp_path: Path) -> None:
    # 200,000 files of 4 KiB are 800 MB: the address space has room for a fraction of them.
    code = """
import resource, sys
from kilnfs._builder import Builder
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
with Builder(spool_dir=sys.argv[1]) as tree:
    tree.add_bytes(b"1", "warm/up")
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
    before = rss()
    count = tree.add_many((f"class-{idx % 1000}/{idx}.bin", b"%08d" % idx * 512) for idx in range(200_000))
    print(count, rss() - before < 96 << 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=packing.environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "200000 True\n", done.stderr
