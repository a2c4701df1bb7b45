"""kilnfs.pack and estimate."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import kilnfs
import packing
import pytest
from kilnfs._builder import Builder
from kilnfs._pack import estimate, pack
from kilnfs._pack_result import Estimate


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return packing.tree(tmp_path / "source")


def test_the_image_holds_the_tree(source: Path, tmp_path: Path) -> None:
    result = pack(source, tmp_path / "image.erofs")
    assert packing.contents(tmp_path / "image.erofs", tmp_path) == packing.files(source)
    # The hard link is a name of a file that counts once.
    assert result.files == 60
    assert result.bytes == sum(len(data) for name, data in packing.files(source).items() if name != "hardlink")
    assert result.image_bytes == os.path.getsize(tmp_path / "image.erofs")
    assert result.order == "shuffle" and result.warnings == () and result.peak_bytes > 1 << 20
    assert result.seconds > 0 and result.cpu_seconds > 0
    assert pickle.loads(pickle.dumps(result)) == result and "files=60" in repr(result)


@pytest.mark.parametrize(("threads", "readers"), [(1, None), (3, 1), (1, 16)])
def test_the_bytes_are_those_of_the_command(source: Path, tmp_path: Path, threads: int, readers: int | None) -> None:
    packing.kiln(
        "pack",
        "--preset",
        "balanced",
        "--kernel",
        "6.6",
        "--mtime",
        "7",
        "--exclude",
        "class-1/",
        source,
        tmp_path / "a",
    )
    options = kilnfs.PackOptions(preset="balanced", kernel="6.6", mtime=7, exclude=["class-1/"])
    pack(source, tmp_path / "b", options, threads=threads, readers=readers)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_as_many_threads_read_as_are_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    # More than is read ahead: the threads that read last as long as the others pack.
    for number in range(40):
        (source / f"{number}").write_bytes(os.urandom(1 << 19))
    packs, most, done = 0, 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.001):
            most = max(most, len(os.listdir("/proc/self/task")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        # Threads that are as short-lived as these may not be seen each time.
        while most < 20 and packs < 20:
            pack(source, tmp_path / "image", compress="zstd,9", threads=1, readers=40, overwrite=True)
            packs += 1
    finally:
        done.set()
        watcher.join()
    # With the default of 8 there are 12.
    assert most >= 20


def test_options_are_an_object_or_keywords_or_both(source: Path, tmp_path: Path) -> None:
    options = kilnfs.PackOptions(preset="balanced", exclude=iter(["class-1/"]), hints={"*.txt": None}, owner=[5, 6])
    assert options.exclude == ("class-1/",) and options.hints == (("*.txt", None),) and options.owner == (5, 6)
    assert pickle.loads(pickle.dumps(options)) == options and hash(options) == hash(options)
    pack(source, tmp_path / "object", options)
    keywords = {"exclude": ["class-1/"], "hints": {"*.txt": None}, "owner": (5, 6)}
    pack(source, tmp_path / "keywords", preset="balanced", **keywords)
    pack(source, tmp_path / "both", kilnfs.PackOptions(preset="fast", **keywords), preset="balanced")
    images = [(tmp_path / name).read_bytes() for name in ("object", "keywords", "both")]
    assert images[0] == images[1] == images[2]
    with pytest.raises(TypeError, match="unit"):
        pack(source, tmp_path / "image", unit=4096)
    with pytest.raises(TypeError, match="unit"):
        pack(source, tmp_path / "image", options, unit=4096)
    assert [each.preset for each in estimate(source, options, presets=["fast"])] == ["fast"]


def test_a_builder_takes_no_option_of_sources(tmp_path: Path) -> None:
    with Builder() as tree, pytest.raises(TypeError, match="concatenated: an option of add_tree"):
        tree.write(tmp_path / "image", concatenated=True)


def test_every_option_shows(source: Path, tmp_path: Path) -> None:
    def made(**options: object) -> bytes:
        pack(source, tmp_path / "image", overwrite=True, **options)  # type: ignore[arg-type]
        return (tmp_path / "image").read_bytes()

    plain = made(order="path")
    assert made(order="path") == plain
    changes: list[dict[str, object]] = [
        {"compress": "none"}, {"compress": "lzma,6"}, {"cluster_size": 4096}, {"exclude": ["*0.txt"]},
        {"hints": {"*.txt": "lz4"}},
        {"owner": (5, 6)}, {"mtime": 5}, {"preset": "fast"}, {"order": ["class-4/0059.txt", "class-3"]},
    ]  # fmt: skip
    for options in changes:
        assert made(**{"order": "path", **options}) != plain, options
    assert made(order=["class-4/0059.txt", b"nothing", "nor/this"])
    result = pack(source, tmp_path / "image", order=["nothing", "nor/this"], hints={"*.nothing": "lz4"}, overwrite=True)
    assert result.warnings == ("order: no file at 'nothing', and 1 more", "hints: no file matches '*.nothing'")


def tar_of(*members: tuple[str, bytes, dict[str, str]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data, headers in members:
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), headers
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_an_archive_ends_at_its_end_mark(tmp_path: Path) -> None:
    both = tar_of(("a", b"1", {})) + tar_of(("b", b"2", {}))
    (tmp_path / "both.tar").write_bytes(both)
    result = pack(tmp_path / "both.tar", tmp_path / "one")
    assert result.files == 1 and "10240 bytes after the end mark" in result.warnings[0]
    result = pack(tmp_path / "both.tar", tmp_path / "two", concatenated=True)
    assert result.files == 2 and result.warnings == ()
    for concatenated in (False, True):
        with Builder() as tree:
            tree.from_tar(io.BytesIO(both), concatenated=concatenated)
            tree.add_tree(tmp_path / "both.tar", "tree", concatenated=concatenated)
            result = tree.write(tmp_path / "built", overwrite=True)
        assert (result.files, len(result.warnings)) == ((4, 0) if concatenated else (2, 2))
    (tmp_path / "both.tar").write_bytes(both[:9000])
    assert pack(tmp_path / "both.tar", tmp_path / "one", overwrite=True).warnings == ()


def test_attributes_that_erofs_cannot_hold_are_counted(tmp_path: Path) -> None:
    acl = "user::rw-,user:tom:rw-,group::r--,mask::rw-,other::---"
    mac = {"SCHILY.xattr.com.apple.provenance": "v", "SCHILY.xattr.user.kept": "1"}
    archive = tar_of(("a", b"1", mac), ("b", b"2", mac), ("c", b"", {"SCHILY.acl.access": acl}))
    (tmp_path / "mac.tar").write_bytes(archive)
    result = pack(tmp_path / "mac.tar", tmp_path / "image")
    counts = {"com.apple.provenance": 2, "system.posix_acl_access user:tom": 1}
    assert result.left_out_xattrs == counts and len(result.warnings) == 1 and result.files == 3
    assert pickle.loads(pickle.dumps(result)) == result
    with pytest.raises(ValueError, match=r"a: extended attribute com\.apple\.provenance: .*to leave it out"):
        pack(tmp_path / "mac.tar", tmp_path / "strict", strict_xattrs=True)
    with Builder() as tree:
        tree.add_tree(tmp_path / "mac.tar", "sub")
        result = tree.write(tmp_path / "built")
    assert result.left_out_xattrs == counts


def test_duplicates_are_stored_once_unless_told(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    noise = random.Random(3).randbytes(100_000)
    for name in "ab":
        (tmp_path / "source" / name).write_bytes(noise)
    sizes = {way: pack(tmp_path / "source", tmp_path / way, dedupe=way).image_bytes for way in ("files", "off")}
    assert sizes["off"] - sizes["files"] > 90_000


def test_shuffle_is_another_order_of_the_same_files(source: Path, tmp_path: Path) -> None:
    images = {}
    for name, options in {
        "path": {"order": "path"},
        "one": {"seed": 1},
        "two": {"seed": 2},
        "again": {"seed": 1},
    }.items():
        pack(source, tmp_path / name, compress="none", **options)  # type: ignore[arg-type]
        images[name] = (tmp_path / name).read_bytes()
        assert packing.contents(tmp_path / name, tmp_path) == packing.files(source)
    assert images["one"] == images["again"]
    assert len(set(images.values())) == 3


def test_the_default_order_suits_the_preset(source: Path, tmp_path: Path) -> None:
    orders = {
        preset: pack(source, tmp_path / preset, preset=preset).order
        for preset in ("plain", "fast", "balanced", "archive", "dataset")
    }
    assert orders == {"plain": "shuffle", "fast": "path", "balanced": "path", "archive": "path", "dataset": "shuffle"}
    assert pack(source, tmp_path / "x", preset="fast", compress="none").order == "shuffle"


def archives(source: Path, tmp: Path) -> dict[str, Path]:
    """The tree as every kind of source that can be made here."""
    made = {"directory": source}
    for name, mode in {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz", "tar.bz2": "w:bz2"}.items():
        made[name] = tmp / f"source.{name}"
        with tarfile.open(made[name], mode) as tar:  # type: ignore[call-overload]
            tar.add(source, ".")
    made["zip"] = tmp / "source.zip"
    with zipfile.ZipFile(made["zip"], "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in packing.files(source).items():
            archive.writestr(name, data)
    made["erofs"] = tmp / "source.erofs"
    packing.kiln("pack", source, made["erofs"])
    made["cpio"] = tmp / "source.cpio"
    packing.kiln("export", made["erofs"], made["cpio"])
    made["tar.zst"] = tmp / "source.tar.zst"
    packing.kiln("export", made["erofs"], made["tar.zst"])
    for name, command in {
        "squashfs": ["mksquashfs", source, tmp / "source.squashfs", "-quiet", "-no-progress"],
        "ext4": ["mke2fs", "-q", "-t", "ext4", "-d", source, tmp / "source.ext4", "8M"],
    }.items():
        if shutil.which(str(command[0])):
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            made[name] = tmp / f"source.{name}"
    made["oci"] = tmp / "source.oci.tar"
    oci_archive(made["tar"], made["oci"])
    return made


def oci_archive(layer: Path, path: Path) -> None:
    """An archive as `docker save` writes it, of one layer."""
    data = layer.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    manifest = [{"Config": "config.json", "RepoTags": ["test:1"], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(path, "w") as tar:
        for name, member in {
            "manifest.json": json.dumps(manifest).encode(),
            "config.json": json.dumps(config).encode(),
            f"{digest}.tar": data,
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(member)
            tar.addfile(info, io.BytesIO(member))


def test_every_kind_of_source_is_taken(source: Path, tmp_path: Path) -> None:
    expected = packing.files(source)
    for kind, path in archives(source, tmp_path).items():
        image = tmp_path / f"from-{kind}.erofs"
        pack(path, image)
        found = packing.contents(image, tmp_path)
        # mke2fs makes a directory of its own.
        found = {name: data for name, data in found.items() if not name.startswith("lost+found")}
        assert found == expected, kind


def test_several_sources_lie_over_each_other(source: Path, tmp_path: Path) -> None:
    over = tmp_path / "over"
    (over / "class-0").mkdir(parents=True)
    (over / "class-0" / "0000.txt").write_text("over")
    pack([source, over, (os.fsencode(over), "/opt/tool")], tmp_path / "image")
    expected = packing.files(source) | {"class-0/0000.txt": b"over", "opt/tool/class-0/0000.txt": b"over"}
    assert packing.contents(tmp_path / "image", tmp_path) == expected
    pack([(over, "below")], tmp_path / "at")
    assert packing.contents(tmp_path / "at", tmp_path) == {"below/class-0/0000.txt": b"over"}
    with pytest.raises(ValueError, match="use at least one"):
        pack([], tmp_path / "none")


def test_a_dry_run_leaves_nothing(source: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    dry = pack(source, tmp_path / "image", dry_run=True)
    assert sorted(tmp_path.iterdir()) == before
    assert dry.uuid == pack(source, tmp_path / "image").uuid


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "small"}, "preset=small: use plain, fast"),
        ({"compress": "gzip"}, "compress=gzip"),
        ({"compress": "zstd,99"}, "compress=zstd,99"),
        ({"preset": "plain", "cluster_size": 4096}, "cluster_size: nothing is compressed"),
        ({"cluster_size": 5000}, "cluster_size 5000: use a multiple"),
        ({"kernel": "six"}, "kernel=six"),
        ({"kernel": "5.15", "compress": "zstd"}, "zstd came with Linux 6.10"),
        ({"dedupe": "all"}, "dedupe=all: use parts, files or off"),
        ({"dedupe": "parts", "compress": "none"}, "dedupe: nothing is compressed"),
        ({"order": "size"}, "order=size"),
        ({"order": "list"}, "use path, shuffle or a list of paths"),
        ({"order": ["a/../b"]}, "`..` is not allowed"),
        ({"hints": {"*.x": "rar"}}, "hints: rar"),
        ({"hints": {"[": "lz4"}}, "unclosed"),
        ({"exclude": ["["]}, "exclude: glob"),
        ({"owner": (1, 0xFFFFFFFF)}, "owner=(1, 4294967295)"),
        ({"mtime": "now"}, "mtime: time `now`"),
        ({"threads": 0}, "threads=0"),
        ({"readers": 0}, "readers=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_options_that_cannot_be_had_are_value_errors(
    source: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        pack(source, tmp_path / "image", **options)  # type: ignore[arg-type]
    assert message in str(error.value)
    assert not (tmp_path / "image").exists()


def test_one_glob_is_no_list_of_globs(source: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a list of globs"):
        pack(source, tmp_path / "image", exclude="*.txt")


def test_errors_of_the_system_have_errno_and_name(source: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        pack(tmp_path / "nothing", tmp_path / "image")
    assert error.value.filename == str(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError) as error:
        pack(source, tmp_path / "nothing" / "image")
    assert error.value.filename.startswith(str(tmp_path / "nothing"))
    (tmp_path / "image").write_text("precious")
    with pytest.raises(FileExistsError) as exists:
        pack(source, tmp_path / "image")
    assert exists.value.filename == str(tmp_path / "image") and (tmp_path / "image").read_text() == "precious"
    (tmp_path / "noise").write_bytes(b"neither archive nor image")
    with pytest.raises(OSError, match="not a directory, archive or image"):
        pack(tmp_path / "noise", tmp_path / "new")
    (tmp_path / "cut.tar").write_bytes(archive_of(b"x" * 5000)[:2000])
    with pytest.raises(OSError) as cut:
        pack(tmp_path / "cut.tar", tmp_path / "new")
    assert cut.value.errno == 117 and cut.value.filename == str(tmp_path / "cut.tar") and "at byte" in str(cut.value)
    assert not (tmp_path / "new").exists()


def test_a_damaged_image_as_a_source_is_an_image_error(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "good", compress="none")
    data = bytearray((tmp_path / "good").read_bytes())
    # The block size in the superblock.
    data[1024 + 12] = 200
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(kilnfs.ImageError) as error:
        pack(tmp_path / "bad", tmp_path / "image")
    assert error.value.filename2 == str(tmp_path / "bad") and error.value.field
    assert not (tmp_path / "image").exists()


def archive_of(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("file")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_progress_is_told_on_the_calling_thread(source: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    threads = set()

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        threads.add(threading.get_ident())

    result = pack(source, tmp_path / "image", progress=progress)
    assert threads == {threading.get_ident()}
    assert told == sorted(told) and told[-1][0] == told[-1][1] == result.bytes


def test_an_exception_in_progress_ends_the_work(source: Path, tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        pack(source, tmp_path / "image", progress=progress, compress="lzma,9")


def test_no_thread_outlives_the_call(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "image")
    names = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
    assert not [name for name in names if name.startswith(("kiln", "kilnfs"))]


@pytest.mark.parametrize("by", ["signal", "progress"])
def test_an_interrupted_pack_leaves_nothing(tmp_path: Path, by: str) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    # Seconds of work for one thread.
    for number in range(24):
        (source / str(number)).write_bytes(packing.text(1 << 20, seed=number))
    code = """
import os, signal, sys, time
from kilnfs._pack import pack
source, out, by = sys.argv[1:]
def progress(done, total):
    # The pack is in the middle of its work now.
    print("working", flush=True)
    if by == "progress":
        signal.raise_signal(signal.SIGINT)
try:
    pack(source, os.path.join(out, "image"), compress="lzma,9", threads=1, progress=progress)
except KeyboardInterrupt:
    # A thread that has been joined is listed until the kernel has taken it away.
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    print("interrupted", len(os.listdir("/proc/self/task")), flush=True)
    sys.exit(17)
"""
    command = [sys.executable, "-c", code, str(source), str(out), by]
    with subprocess.Popen(command, env=packing.environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        if by == "signal":
            child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
    assert child.returncode == 17
    assert rest.endswith("interrupted 1\n")
    assert os.listdir(out) == []


def test_packs_run_side_by_side_in_threads(source: Path, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: pack(source, tmp_path / str(number)), range(8)))
    assert len({(tmp_path / str(number)).read_bytes() for number in range(8)}) == 1


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    # More than is read ahead.
    for number in range(60):
        (source / f"{number:02}").write_bytes(packing.text(1 << 20, seed=number))

    def progress(done: int, total: int) -> None:
        if done < total:
            (source / "59").write_bytes(b"another")

    with pytest.raises(OSError) as error:
        pack(source, tmp_path / "image", compress="lzma,9", order="path", threads=1, progress=progress)
    assert error.value.filename == "59" and error.value.errno == 116
    assert not (tmp_path / "image").exists()


def test_estimates_of_small_trees_are_exact(source: Path, tmp_path: Path) -> None:
    estimates = {one.preset: one for one in estimate(source)}
    assert list(estimates) == ["plain", "fast", "balanced", "archive", "dataset"]
    for preset in ("plain", "balanced"):
        result = pack(source, tmp_path / preset, preset=preset, order="path")
        one = estimates[preset]
        assert isinstance(one, Estimate) and one.refused is None
        assert (one.bytes, one.image_bytes, one.image_bytes_error) == (result.bytes, result.image_bytes, 0)
        assert one.min_kernel == result.min_kernel
    refused = estimate(source, presets=["plain", "dataset"], cluster_size=65536)
    assert refused[0].refused == "cluster_size: nothing is compressed" and refused[1].refused is None


def test_names_of_any_bytes_are_packed(tmp_path: Path) -> None:
    source = os.fsencode(tmp_path / "source")
    os.mkdir(source)
    name = b"\xff\xfe \n\\x"
    with open(os.path.join(source, name), "wb") as file:
        file.write(b"1")
    assert pack(source, tmp_path / "image", order=[name, name.decode("utf-8", "surrogateescape")]).warnings == ()


def test_ctrl_c_ends_the_wait_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "out").mkdir()
    for call in ("kilnfs.pack('fifo', 'out/image')", "kilnfs.estimate('fifo')", "kilnfs.Builder().add_tree('fifo')"):
        code = f"import kilnfs, kilnfs._native; print(1, flush=True); {call}"
        with subprocess.Popen(
            [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == b"1\n"
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=120)
        assert child.returncode == -signal.SIGINT and b"KeyboardInterrupt" in said, said
        assert os.listdir(tmp_path / "out") == []


def test_metadata_is_compressed_if_asked_for_or_by_default(source: Path, tmp_path: Path) -> None:
    for number, (options, kernel) in enumerate(
        (
            ({"preset": "balanced", "kernel": "6.17"}, "6.17"),
            ({"preset": "balanced", "kernel": "6.17", "compress_metadata": False}, "6.15"),
            ({"compress_metadata": True}, "6.17"),
        )
    ):
        result = pack(source, tmp_path / f"{number}.erofs", **options)  # type: ignore[arg-type]
        assert result.min_kernel == kernel
    with pytest.raises(ValueError, match="compress_metadata"):
        pack(source, tmp_path / "old.erofs", kernel="6.16", compress_metadata=True)
