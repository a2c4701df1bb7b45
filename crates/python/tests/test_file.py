"""File objects of an image do what those of `builtins.open` do."""

from __future__ import annotations

import errno
import io
import itertools
import os
import pickle
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kilnfs
from kilnfs._file import BufferedFile, File


@pytest.mark.parametrize("name", ["big.bin", "hole.bin", "hello.txt", "empty", "all-hole"])
@pytest.mark.parametrize("buffering", [-1, 0, 1000])
def test_reads_and_seeks_at_random(each_image: kilnfs.Image, tree: Path, name: str, buffering: int) -> None:
    rng = random.Random(name)
    size = (tree / name).stat().st_size
    with each_image.open(name, buffering=buffering) as ours, open(tree / name, "rb", buffering=buffering) as real:
        assert ours.readable() and ours.seekable() and not ours.writable()
        for _ in range(200):
            match rng.randrange(6):
                case 0:
                    target = rng.randint(0, size + 10)
                    assert ours.seek(target) == real.seek(target)
                case 1:
                    assert ours.seek(-min(3, size), os.SEEK_END) == real.seek(-min(3, size), os.SEEK_END)
                case 2:
                    assert ours.seek(2, os.SEEK_CUR) == real.seek(2, os.SEEK_CUR)
                case 3:
                    count = rng.choice([0, 1, 10, 5000, 200_000])
                    assert ours.read(count) == real.read(count)
                case 4:
                    a, b = bytearray(777), bytearray(777)
                    assert ours.readinto(a) == real.readinto(b) and a == b
                case 5:
                    assert ours.readline(100) == real.readline(100)
            assert ours.tell() == real.tell()
        ours.seek(0), real.seek(0)
        assert ours.read() == real.read()
        assert ours.read() == b""


def test_lines_and_text(image: kilnfs.Image, tree: Path) -> None:
    for newline in (None, "", "\n", "\r\n"):
        with image.open("crlf.txt", "r", newline=newline) as a, open(tree / "crlf.txt", newline=newline) as b:
            assert list(a) == list(b)
    with image.open("latin.txt", "rt", encoding="latin-1") as file:
        assert (file.read(), file.encoding, file.mode) == ("grün\n", "latin-1", "rt")
    with image.open("latin.txt", "r", encoding="ascii", errors="backslashreplace") as file:
        assert file.read() == "gr\\xfcn\n"
    with image.open("hello.txt") as file:
        assert list(file) == [b"hello\n", b"world\n"]


MODES = ["r", "rb", "rt", "br", "w", "a", "x", "r+", "rb+", "wb", "", "b", "rr", "rw", "rtb", "q", "U", "+", "ra"]


def outcome(call):
    """What kind of file a call opens, or what it raises, and where its warnings point to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with call() as file:
                opened = [isinstance(file, kind) for kind in (io.RawIOBase, io.BufferedIOBase, io.TextIOBase)]
                opened += [getattr(file, "line_buffering", None), file.writable()]
        except (TypeError, ValueError) as error:
            opened = [type(error)]
        except OSError as error:
            opened = [error.errno]
    return opened, [(warning.category, Path(warning.filename).name) for warning in caught]


@pytest.mark.parametrize("mode", MODES)
def test_arguments_are_those_of_builtins_open(image: kilnfs.Image, tree: Path, tmp_path: Path, mode: str) -> None:
    copy = tmp_path / "hello.txt"
    texts = [{}, {"encoding": "utf-8"}, {"errors": "strict"}, {"newline": ""}]
    for buffering, text in itertools.product([-1, 0, 1, 4096], texts):
        copy.unlink(missing_ok=True)
        if "x" not in mode:
            copy.write_bytes((tree / "hello.txt").read_bytes())
        real = outcome(lambda: open(copy, mode, buffering, **text))  # noqa: B023, SIM115
        ours = outcome(lambda: image.open("hello.txt", mode, buffering=buffering, **text))  # noqa: B023
        if ours[0] == [errno.EROFS]:
            # Of two things that are wrong, the wish to write is named.
            assert real[0][-1] is True or (real[0] == [ValueError] and set(mode) & set("wax+")), (mode, buffering, text)
        else:
            assert ours == real, (mode, buffering, text)


def test_warns_where_the_caller_stands(image: kilnfs.Image) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        image.open("hello.txt", "rb", buffering=1)
        (image / "hello.txt").open("rb", 1)
    assert [Path(warning.filename).name for warning in caught] == ["test_file.py"] * 2


def test_names_sizes_classes(image: kilnfs.Image) -> None:
    raw, buffered = image.open("hello.txt", buffering=0), image.open("hello.txt")
    assert type(raw) is File and type(buffered) is BufferedFile
    assert isinstance(raw, io.RawIOBase) and isinstance(buffered, io.BufferedReader)
    assert (raw.name, raw.size, raw.mode) == ("hello.txt", 12, "rb") == (buffered.name, buffered.size, buffered.mode)
    assert image.open(b"hello.txt").name == b"hello.txt"
    assert (image / "hello.txt").open().name == "/hello.txt"
    assert image.open(nid=raw.nid).read() == b"hello\nworld\n"
    assert image.open(nid=raw.nid).name == raw.nid
    assert "hello.txt" in repr(raw) and "closed" not in repr(raw)
    for call in (raw.fileno, buffered.fileno, raw.truncate, lambda: buffered.write(b"")):
        with pytest.raises(io.UnsupportedOperation):
            call()
    assert image.read(raw) == image.read(buffered) == b"hello\nworld\n"


def test_buffer_holds_small_files_and_is_bounded(image: kilnfs.Image) -> None:
    assert [image.open(name)._buffer_size for name in ("empty", "many/003.JPG", "big.bin")] == [
        4096,
        min(max(image.stat("many/003.JPG").st_size, 4096), 131072),
        131072,
    ]
    assert image.open("empty", buffering=1 << 20)._buffer_size == 1 << 20


def test_errors(image: kilnfs.Image) -> None:
    for name, number in (
        ("missing", errno.ENOENT),
        ("many", errno.EISDIR),
        ("fifo", errno.EINVAL),
        ("links/self", errno.ELOOP),
    ):
        with pytest.raises(OSError) as raised:
            image.open(name)
        assert (raised.value.errno, raised.value.filename, raised.value.filename2) == (number, name, image.name)
    file = image.open("hello.txt", buffering=0)
    with pytest.raises(OSError) as raised:
        file.seek(-1)
    assert raised.value.errno == errno.EINVAL
    with pytest.raises(ValueError):
        file.seek(0, 9)
    with pytest.raises(TypeError):
        file.seek("1")
    with pytest.raises(TypeError):
        image.open("hello.txt", 3)
    file.close()
    assert "closed" in repr(file)
    for call in (
        file.read,
        file.tell,
        file.readable,
        file.seekable,
        lambda: file.seek(0),
        lambda: file.readinto(bytearray(1)),
    ):
        with pytest.raises(ValueError):
            call()


def test_readinto_any_buffer(image: kilnfs.Image) -> None:
    from array import array

    with image.open("big.bin", buffering=0) as file:
        numbers = array("Q", bytes(800))
        assert file.readinto(numbers) == 800
        assert numbers.tobytes() == image.read("big.bin", 0, 800)
        assert file.readinto(bytearray()) == 0
        with pytest.raises(TypeError):
            file.readinto(b"read-only")
        assert file.tell() == 800, "a read that failed does not move the position"


def test_a_file_that_is_shared_gives_each_byte_once(image: kilnfs.Image, tree: Path) -> None:
    contents = (tree / "big.bin").read_bytes()
    with image.open("big.bin", buffering=0) as file, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: file.read(9973), range(len(contents) // 9973 + 1)))
    places = sorted(range(0, len(contents), 9973))
    assert sorted(parts) == sorted(contents[place : place + 9973] for place in places)


@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_with_its_position(image: kilnfs.Image, buffering: int, protocol: int) -> None:
    with image.open("hello.txt", buffering=buffering) as file:
        file.seek(3)
        again = pickle.loads(pickle.dumps(file, protocol))
        assert type(again) is type(file) and again.name == "hello.txt" and again.tell() == 3
        assert again.read() == b"lo\nworld\n" == file.read()
    with pytest.raises(ValueError):
        pickle.dumps(file)


def test_files_outlive_names_of_the_image(image_path: Path) -> None:
    file = kilnfs.open(image_path).open("hello.txt")
    assert file.read() == b"hello\nworld\n"


def test_others_read_them(image: kilnfs.Image, tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    pil = pytest.importorskip("PIL.Image")
    from conftest import pack

    source = tmp_path / "source"
    source.mkdir()
    array = np.arange(100_000, dtype=np.int32).reshape(100, 1000)
    np.save(source / "a.npy", array)
    np.savez_compressed(source / "a.npz", array=array)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 30, 3), dtype=np.uint8)
    pil.fromarray(pixels).save(source / "a.png")
    pil.fromarray(pixels).save(source / "a.jpg")
    import zipfile

    with zipfile.ZipFile(source / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", b"contents" * 1000)
    pack(source, tmp_path / "x.erofs")
    with kilnfs.open(tmp_path / "x.erofs") as packed:
        with packed.open("a.npy") as file:
            assert np.array_equal(np.load(file), array)
        with packed.open("a.npz") as file:
            assert np.array_equal(np.load(file)["array"], array)
        for name in ("a.png", "a.jpg"):
            with packed.open(name) as file, pil.open(source / name) as real:
                assert np.array_equal(np.asarray(pil.open(file)), np.asarray(real))
        with packed.open("a.zip") as file, zipfile.ZipFile(file) as archive:
            assert archive.read("member") == b"contents" * 1000
        pa = pytest.importorskip("pyarrow")
        with packed.open("a.npy") as file:
            assert pa.PythonFile(file, mode="r").read() == (source / "a.npy").read_bytes()


def test_hdf5_reads_them(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    from conftest import pack

    (tmp_path / "source").mkdir()
    with h5py.File(tmp_path / "source" / "a.h5", "w") as made:
        made["numbers"] = list(range(1000))
    pack(tmp_path / "source", tmp_path / "x.erofs")
    with kilnfs.open(tmp_path / "x.erofs") as image, image.open("a.h5") as file, h5py.File(file, "r") as found:
        assert list(found["numbers"][990:]) == list(range(990, 1000))


def test_threads_with_files_of_their_own(image: kilnfs.Image, tree: Path) -> None:
    names = [f"many/{name}" for name in os.listdir(tree / "many") if name != "hard-2"]
    expected = {name: (tree / name).read_bytes() for name in names}
    wrong: list[str] = []

    def read(seed: int) -> None:
        for name in itertools.islice(itertools.cycle(random.Random(seed).sample(names, len(names))), 600):
            with image.open(name) as file:
                if file.read() != expected[name]:
                    wrong.append(name)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("verb", ["seek", "read", "tell"])
@pytest.mark.parametrize("same", [False, True])
def test_a_signal_handler_may_read_a_file(image_path: Path, verb: str, same: bool) -> None:
    """The handler runs wherever the interrupted thread is in `seek` or `read`, with its lock or without."""
    from conftest import run_python

    told = run_python(
        """
import faulthandler, signal, sys
import kilnfs
from kilnfs import _file

faulthandler.dump_traceback_later(60, exit=True)
image = kilnfs.open(sys.argv[1])
verb, same = sys.argv[2], sys.argv[3] == "True"
file = image.open("hello.txt", buffering=0)
other = file if same else image.open("hello.txt", buffering=0)
handled = []

def handle(number, frame):
    handled.append(frame.f_back.f_code.co_name)  # below `trace`
    sys.settrace(None)
    other.seek(6)
    assert other.read(5) == b"world"

signal.signal(signal.SIGUSR1, handle)
for line in range(40):
    steps = 0

    def trace(frame, event, argument):
        global steps
        if frame.f_code.co_filename == _file.__file__:
            steps += event == "line"
            if steps == line + 1 and event == "line":
                sys.settrace(None)
                frame.f_trace = None
                signal.raise_signal(signal.SIGUSR1)
                return None
            return trace

    sys.settrace(trace)
    if verb == "seek":
        file.seek(0)
    elif verb == "read":
        assert file.read(5) in (b"hello", b"world", b"", b"\\n")
    else:
        file.tell()
    sys.settrace(None)
    file.seek(0)
print(len(handled) > 1, sorted(set(handled)))
""",
        str(image_path),
        verb,
        str(same),
    )
    assert told.startswith("True"), told
    if verb != "tell":
        assert {"seek": "seek", "read": "_claim"}[verb] in told


def test_a_lock_that_a_thread_holds_does_not_stop_a_child_nor_other_files(image: kilnfs.Image) -> None:
    with image.open("hello.txt", buffering=0) as file, image.open("hello.txt", buffering=0) as other:
        held, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with file._moving():
                held.set()
                leave.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(60)
        try:
            assert other.read(5) == b"hello"
            pid = os.fork()
            if pid == 0:
                os._exit(0 if file.seek(6) == 6 and file.read() == b"world\n" else 1)
            assert os.waitpid(pid, 0)[1] == 0
        finally:
            leave.set()
            thread.join()
