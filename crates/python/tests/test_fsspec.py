"""`kilnfs.fs`: an image as a filesystem of fsspec."""

from __future__ import annotations

import errno
import io
import os
import pickle
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec_support import in_child, make_image  # noqa: E402
from fsspec_tree import FILES, MTIME, fs_image  # noqa: F401  # a fixture
from kilnfs.fs import ErofsFile, ErofsFileSystem  # noqa: E402


@pytest.fixture
def fs(fs_image: str) -> ErofsFileSystem:
    return ErofsFileSystem(fs_image)


NAMES = sorted([*FILES, "link", "dirlink", "broken", "fifo", "caf\udce9"])


def test_ls(fs: ErofsFileSystem) -> None:
    assert fs.ls("", detail=False) == sorted(
        ["a", "a-b", "big.bin", "broken", "caf\udce9", "dirlink", "fifo", "link", "void"]
    )
    assert [(info["name"], info["type"], info["size"]) for info in fs.ls("/a/")] == [
        ("a/b", "directory", 0),
        ("a/x.txt", "file", 10),
    ]
    infos = {info["name"]: info for info in fs.ls("erofs://")}
    assert infos["link"]["type"] == "link" and infos["link"]["islink"]
    assert infos["link"]["destination"] == "a/x.txt" and infos["link"]["size"] == 10
    assert infos["broken"]["type"] == "link" and infos["broken"]["size"] == 0
    assert infos["fifo"]["type"] == "other"
    assert fs.ls("a/x.txt") == [fs.info("a/x.txt")]
    assert fs.ls("void") == []
    assert fs.ls("dirlink", detail=False) == ["dirlink/b", "dirlink/x.txt"]
    with pytest.raises(FileNotFoundError) as caught:
        fs.ls("a/nope")
    assert caught.value.filename == "a/nope" and caught.value.filename2 == fs.image.name


def test_info(fs: ErofsFileSystem, fs_image: str) -> None:
    info = fs.info("a/x.txt")
    assert set(info) == {"name", "size", "type", "mode", "uid", "gid", "mtime", "nlink", "ino", "islink"}
    assert (info["name"], info["size"], info["type"], info["islink"]) == ("a/x.txt", 10, "file", False)
    assert stat.S_IMODE(info["mode"]) == 0o640 and stat.S_ISREG(info["mode"])
    assert info["mtime"] == MTIME and info["uid"] == os.getuid() and info["gid"] == os.getgid() and info["nlink"] == 1
    link = fs.info("link")
    assert (link["name"], link["type"], link["size"], link["islink"], link["destination"]) == (
        "link",
        "file",
        10,
        True,
        "a/x.txt",
    )
    root = fs.info("")
    assert (root["name"], root["type"], root["size"]) == ("", "directory", 0)
    assert fs.info("erofs://a/x.txt") == fs.info("/a/x.txt") == info
    for missing in ("nope", "a/x.txt/below", "broken"):
        with pytest.raises(OSError) as caught:
            fs.info(missing)
        assert caught.value.errno in (errno.ENOENT, errno.ENOTDIR)


def test_what_exists(fs: ErofsFileSystem) -> None:
    assert [fs.exists(path) for path in ("", "a", "a/x.txt", "link", "broken", "nope", "a/x.txt/q")] == [True] * 4 + [
        False
    ] * 3
    assert [fs.lexists(path) for path in ("broken", "nope")] == [True, False]
    assert [fs.isfile(path) for path in ("a", "a/x.txt", "link", "dirlink", "fifo", "nope")] == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert [fs.isdir(path) for path in ("", "a", "a/x.txt", "dirlink", "nope")] == [True, True, False, True, False]


def test_find(fs: ErofsFileSystem) -> None:
    assert fs.find("") == NAMES
    assert fs.find("", withdirs=True) == sorted([*NAMES, "a", "a/b", "void"])
    assert fs.find("a") == ["a/b/empty", "a/b/y.txt", "a/x.txt"]
    assert fs.find("a", maxdepth=1) == ["a/x.txt"]
    assert fs.find("a", withdirs=True, maxdepth=1) == ["a", "a/b", "a/x.txt"]
    assert fs.find("a/x.txt") == ["a/x.txt"]
    assert fs.find("nope") == [] and fs.find("nope", detail=True) == {}
    with pytest.raises(ValueError, match="maxdepth"):
        fs.find("", maxdepth=0)


@pytest.mark.parametrize("maxdepth", [None, 9])
def test_found_infos_are_whole(fs: ErofsFileSystem, maxdepth: int | None) -> None:
    found = fs.find("", withdirs=True, detail=True, maxdepth=maxdepth)
    listed = {info["name"]: info for path in ("", "a", "a/b") for info in fs.ls(path)}
    assert found.keys() == listed.keys()
    assert {name: info["size"] for name, info in found.items()} == {name: info["size"] for name, info in listed.items()}
    for way in (
        dict,
        lambda info: {**info},
        lambda info: dict(info.items()),
        pickle.dumps,
        lambda info: info | {},
        lambda info: {} | info,
    ):
        for name, info in fs.find("", withdirs=True, detail=True).items():
            plain = way(info)
            assert (pickle.loads(plain) if isinstance(plain, bytes) else plain) == listed[name]
    assert found == listed
    info = fs.find("a", detail=True)["a/x.txt"]
    assert (
        info.get("mtime") == MTIME
        and info.get("nope", 3) == 3
        and "uid" in info
        and "nope" not in info
        and len(info) == 10
    )
    with pytest.raises(KeyError):
        info["nope"]


class CallsOf:
    """An image that counts calls of its methods."""

    def __init__(self, image: Any) -> None:
        self._image = image
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._image, name)
        if callable(value):
            self.calls[name] = self.calls.get(name, 0) + 1
        return value


def test_no_call_for_each_file(tmp_path: Path) -> None:
    files = {f"d{i % 3}/f{i:04}": b"%d" % i for i in range(600)}
    fs = ErofsFileSystem(make_image(tmp_path, files))
    calls: Any = CallsOf(fs.image)
    fs.image = calls
    found = fs.find("", detail=True)
    assert [info["type"] for info in found.values()] == ["file"] * 600
    assert sum(info["size"] for info in found.values()) == sum(map(len, files.values()))
    assert len(fs.glob("d1/*")) == 200 and len(fs.glob("**")) == 603
    assert fs.du("") == sum(map(len, files.values()))
    assert calls.calls["_listdir"] == 4 * 3 + 1
    assert sum(calls.calls.values()) < 40
    calls.calls.clear()
    assert fs.cat_ranges(list(files), 0, None) == list(files.values())
    assert calls.calls == {"read_many": 1}


def test_glob(fs: ErofsFileSystem) -> None:
    assert fs.glob("a/*") == ["a/b", "a/x.txt"]
    assert fs.glob("**/*.txt") == ["a/b/y.txt", "a/x.txt"]
    assert fs.glob("a/b/?.txt") == ["a/b/y.txt"]
    assert fs.glob("nope/*") == [] and fs.glob("nope") == [] and fs.glob("a-b") == ["a-b"]
    assert fs.glob("**/*.txt", detail=True)["a/x.txt"]["size"] == 10
    assert fs.glob("*/") == ["a", "void"]
    assert fs.glob("**/*.txt", maxdepth=2) == ["a/x.txt"]


def test_walk(fs: ErofsFileSystem) -> None:
    top = list(fs.walk(""))
    assert [path for path, _, _ in top] == ["", "a", "a/b", "void"]
    assert top[1] == ("a", ["b"], ["x.txt"])
    assert [path for path, _, _ in fs.walk("", topdown=False)] == ["a/b", "a", "void", ""]
    assert [path for path, _, _ in fs.walk("", maxdepth=1)] == [""]
    pruned = []
    for path, dirs, _ in fs.walk(""):
        pruned.append(path)
        if "a" in dirs:
            dirs.remove("a")
    assert pruned == ["", "void"]
    _, dirs, files = next(fs.walk("a", detail=True))
    assert dirs["b"]["type"] == "directory" and files["x.txt"]["size"] == 10
    assert list(fs.walk("nope")) == []
    seen: list[OSError] = []
    assert list(fs.walk("nope", on_error=seen.append)) == [] and seen[0].errno == errno.ENOENT
    with pytest.raises(FileNotFoundError):
        list(fs.walk("nope", on_error="raise"))


def test_cat_file(fs: ErofsFileSystem) -> None:
    data = FILES["a/x.txt"]
    places = (None, 0, 3, -3, 10, 12, -12)
    for start in places:
        for end in places:
            # A slice is not shorter for a start that lies before the file.
            assert fs.cat_file("a/x.txt", start, end) == data[slice(start, end)], (start, end)
    assert fs.cat_file("link", 1, 3) == b"12"
    with pytest.raises(IsADirectoryError):
        fs.cat_file("a")
    with pytest.raises(FileNotFoundError):
        fs.cat_file("nope", -3)


def test_cat_ranges(fs: ErofsFileSystem) -> None:
    paths = ["big.bin", "a/x.txt", "nope", "a", "link", "erofs://a/b/y.txt", "a/b/empty", "big.bin"]
    starts = [5, -3, 0, 0, 2, None, 0, 699_990]
    ends = [100_000, None, 5, 5, -2, 4, 10, 10**9]
    answers = fs.cat_ranges(paths, starts, ends)
    big = FILES["big.bin"]
    assert isinstance(answers[2], FileNotFoundError) and isinstance(answers[3], IsADirectoryError)
    assert [answers[i] for i in (0, 1, 4, 5, 6, 7)] == [big[5:100_000], b"789", b"234567", b"whyw", b"", big[699_990:]]
    assert fs.cat_ranges(["a/x.txt", "link"], 1, 3, max_gap=100) == [b"12", b"12"]
    assert fs.cat_ranges([], [], []) == []
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["a/x.txt", "nope"], 0, 3, on_error="raise")
    with pytest.raises(ValueError, match="2 paths, 1 starts"):
        fs.cat_ranges(["a/x.txt", "link"], [0], 3)
    with pytest.raises(TypeError):
        fs.cat_ranges("a/x.txt", 0, 3)  # type: ignore[arg-type]


def test_cat(fs: ErofsFileSystem) -> None:
    assert fs.cat("a/x.txt") == FILES["a/x.txt"]
    assert fs.cat(["a/x.txt", "a-b"]) == {name: FILES[name] for name in ("a/x.txt", "a-b")}
    assert fs.cat("a", recursive=True) == {name: data for name, data in FILES.items() if name.startswith("a/")}
    assert fs.cat("a/*.txt") == {"a/x.txt": FILES["a/x.txt"]}
    assert fs.cat(["a/x.txt", "nope"], on_error="omit") == {"a/x.txt": FILES["a/x.txt"]}
    returned = fs.cat(["a/x.txt", "nope"], on_error="return")
    assert isinstance(returned, dict) and isinstance(returned["nope"], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat(["a/x.txt", "nope"])
    assert fs.cat(["a/x.txt"], start=2, end=4) == {"a/x.txt": b"23"}


def test_open(fs: ErofsFileSystem) -> None:
    with fs.open("big.bin") as file:
        assert isinstance(file, ErofsFile) and issubclass(ErofsFile, io.BufferedReader)
        assert (file.size, file.path, file.fs, file.mode) == (700_000, "big.bin", fs, "rb")
        file.seek(-10, 2)
        assert file.read() == FILES["big.bin"][-10:]
        file.seek(3)
        assert file.read(4) == FILES["big.bin"][3:7] and file.tell() == 7
        again = pickle.loads(pickle.dumps(file))
        assert again.tell() == 7 and again.read() == FILES["big.bin"][7:]
        assert again.fs == fs
    assert file.closed
    with fs.open("a/b/y.txt", "r", encoding="ascii") as text:
        assert text.read(4) == "whyw"
    assert fs.open("caf\udce9").read() == b"not UTF-8"
    assert (
        fs.read_text("a/x.txt") == "0123456789" and fs.head("a/x.txt", 3) == b"012" and fs.tail("a/x.txt", 3) == b"789"
    )
    assert fs.open("a/x.txt", block_size=4).read(6) == b"012345"
    with pytest.raises(IsADirectoryError):
        fs.open("a")
    with pytest.raises(OSError):
        fs.open("fifo")
    with pytest.raises(FileNotFoundError):
        fs.open("nope")


def test_compressed_member(tmp_path: Path) -> None:
    import gzip

    fs = ErofsFileSystem(make_image(tmp_path, {"t.txt.gz": gzip.compress(b"hello")}))
    with fs.open("t.txt.gz", compression="infer") as file:
        assert file.read() == b"hello"


def test_get_file(fs: ErofsFileSystem, tmp_path: Path) -> None:
    target = tmp_path / "new" / "big"
    fs.get_file("big.bin", str(target))
    assert target.read_bytes() == FILES["big.bin"]
    assert os.listdir(target.parent) == ["big"]
    kept = io.BytesIO()
    fs.get_file("a/x.txt", kept)
    assert kept.getvalue() == b"0123456789"
    fs.get("a", str(tmp_path / "tree"), recursive=True)
    assert (tmp_path / "tree" / "b" / "y.txt").read_bytes() == FILES["a/b/y.txt"]
    fs.get_file("a/x.txt", os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_get_from_the_root_directory(tmp_path: Path) -> None:
    """fsspec's tests have no files in the root directory: the same copies from there and from one level below."""
    files = {"f.txt": b"1", "d/x": b"2", "d/e/y": b"3", "g1": b"4"}
    fs = ErofsFileSystem(make_image(tmp_path, {**files, **{f"below/{path}": data for path, data in files.items()}}))
    cases: list[tuple[str, str, bool]] = [
        (source, target, recursive)
        for source in ("f.txt", "d", "d/", "g*", "d*", "f.txt/")
        for target in ("old", "old/", "new", "new/", "old/under")
        for recursive in (False, True)
    ]
    for nth, (source, target, recursive) in enumerate(cases):
        results = []
        for above in ("", "below/"):
            place = tmp_path / f"{nth}{above}"
            (place / "old").mkdir(parents=True)
            try:
                fs.get(above + source, f"{place}/{target}", recursive=recursive)
            except OSError as error:
                results.append(type(error).__name__)
            else:
                results.append(
                    repr(sorted((str(p.relative_to(place)), p.is_file() and p.read_bytes()) for p in place.rglob("*")))
                )
        assert results[0] == results[1], (source, target, recursive)


def test_a_copy_that_fails_leaves_nothing(fs: ErofsFileSystem, tmp_path: Path) -> None:
    target = tmp_path / "big"
    target.write_bytes(b"old")

    class Stop:
        def set_size(self, size: int) -> None:
            assert size == 700_000

        def relative_update(self, by: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fs.get_file("big.bin", str(target), callback=Stop())
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["big"]


def test_times_sums_and_sizes(fs: ErofsFileSystem, fs_image: str) -> None:
    assert fs.modified("a/x.txt") == fs.created("a/x.txt") == datetime.fromtimestamp(MTIME, UTC)
    assert fs.size("a/b/y.txt") == 3000 and fs.sizes(["a/x.txt", "a/b/empty"]) == [10, 0]
    assert fs.du("a") == 3010 and fs.du("a", total=False) == {"a/x.txt": 10, "a/b/y.txt": 3000, "a/b/empty": 0}
    assert fs.checksum("a/x.txt") != fs.checksum("a-b") and fs.ukey("a/x.txt") == ErofsFileSystem(fs_image).ukey(
        "a/x.txt"
    )
    assert in_child(lambda: fs.checksum("a/x.txt")) == repr(fs.checksum("a/x.txt")).encode()
    assert fs.fsid == f"erofs-{fs.image.uuid.hex()}"


@pytest.mark.parametrize(
    "write",
    [
        lambda fs: fs.open("a/x.txt", "wb"),
        lambda fs: fs.open("new", "xb"),
        lambda fs: fs.open("a/x.txt", "ab"),
        lambda fs: fs.open("a/x.txt", "r+b"),
        lambda fs: fs.open("a/x.txt", "w"),
        lambda fs: fs.mkdir("new"),
        lambda fs: fs.makedirs("new", exist_ok=True),
        lambda fs: fs.rmdir("void"),
        lambda fs: fs.rm("a", recursive=True),
        lambda fs: fs.rm_file("a/x.txt"),
        lambda fs: fs.delete("a/x.txt"),
        lambda fs: fs.touch("new"),
        lambda fs: fs.pipe("new", b""),
        lambda fs: fs.pipe({"new": b""}),
        lambda fs: fs.pipe_file("new", b""),
        lambda fs: fs.write_text("new", ""),
        lambda fs: fs.write_bytes("new", b""),
        lambda fs: fs.put("/etc/hostname", "new"),
        lambda fs: fs.put_file("/etc/hostname", "new"),
        lambda fs: fs.cp_file("a-b", "new"),
        lambda fs: fs.copy("a-b", "new"),
        lambda fs: fs.mv("a-b", "new"),
        lambda fs: fs.rename("a-b", "new"),
        lambda fs: fs.upload("/etc/hostname", "new"),
    ],
)
def test_nothing_writes(fs: ErofsFileSystem, write: Any) -> None:
    with pytest.raises(OSError) as caught:
        write(fs)
    assert caught.value.errno == errno.EROFS and caught.value.filename2 == fs.image.name
