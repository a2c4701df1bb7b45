"""Images that are read verified: `open(root_hash=...)`."""

from __future__ import annotations

import errno
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import kilnfs
import pytest


def contents(number: int) -> bytes:
    return b"%04d" % number * 2500


class Sealed:
    """Image with its hash tree behind it."""

    def __init__(self, base: Path) -> None:
        self.path, self.file = base / "image.erofs", base / "image.roothash"
        with kilnfs.Builder() as tree:
            tree.add_many((f"class/{number}.bin", contents(number)) for number in range(200))
            tree.write(self.path, preset="plain")
        self.plain = self.path.read_bytes()
        format_tree(self.path, "--root-hash-file", str(self.file))
        self.hex = self.file.read_text()


def format_tree(*words: object) -> None:
    command = [sys.executable, "-m", "kilnfs", "verity", "format", "--quiet", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def sealed(tmp_path: Path) -> Sealed:
    return Sealed(tmp_path)


def test_root_hashes_have_several_forms(sealed: Sealed) -> None:
    forms: list[Any] = [sealed.hex, bytes.fromhex(sealed.hex), sealed.file, str(sealed.file), [sealed.hex]]
    for form in forms:
        for options in ({}, {"mmap": True}):
            with kilnfs.open(sealed.path, root_hash=form, **options) as image:
                assert image.read("class/7.bin") == contents(7)
                assert bytes(image.view("class/8.bin")) == contents(8)
                assert image.source_length == len(sealed.plain)
    for wrong in (b"short", "5a" * 31, sealed.hex + "00"):
        with pytest.raises((ValueError, FileNotFoundError)):
            kilnfs.open(sealed.path, root_hash=wrong)
    sealed.file.write_text("no digits")
    with pytest.raises(ValueError, match="has no root hash"):
        kilnfs.open(sealed.path, root_hash=sealed.file)
    with pytest.raises(ValueError, match="2 root hashes"):
        kilnfs.open(sealed.path, root_hash=[sealed.hex, sealed.hex])
    with pytest.raises(ValueError, match="hash_tree is for images with a root_hash"):
        kilnfs.open(sealed.path, hash_tree=sealed.path)


def test_another_root_hash_is_refused(sealed: Sealed) -> None:
    with pytest.raises(OSError, match="wrong digest: expected 5a5a") as raised:
        kilnfs.open(sealed.path, root_hash="5a" * 32)
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, str(sealed.path))


@pytest.mark.parametrize("way", ["path", "mmap", "memory", "file object"])
def test_a_wrong_byte_is_an_error(sealed: Sealed, way: str) -> None:
    data = bytearray(sealed.path.read_bytes())
    data[data.index(contents(3)[:4000]) + 100] ^= 1
    sealed.path.write_bytes(data)
    source: Any = {"memory": bytes(data), "file object": io.BytesIO(data)}.get(way, sealed.path)
    with kilnfs.open(source, root_hash=sealed.hex, mmap=way == "mmap") as image:
        for read in (image.read, image.view, lambda name: image.read_many([name])):
            with pytest.raises(OSError, match="data block at byte [0-9]+: wrong digest") as raised:
                read("class/3.bin")
            assert raised.value.errno == errno.EIO
        assert image.read("class/100.bin") == contents(100)


def test_a_tree_may_be_anywhere(sealed: Sealed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, tree = tmp_path / "plain.erofs", tmp_path / "tree"
    plain.write_bytes(sealed.plain)
    format_tree(plain, tree)
    with pytest.raises(OSError, match="no hash tree"):
        kilnfs.open(plain, root_hash=sealed.hex)
    monkeypatch.chdir(tmp_path)
    trees: list[Any] = [tree, "tree", tree.read_bytes(), io.BytesIO(tree.read_bytes()), [tree]]
    for place in trees:
        with kilnfs.open(plain, root_hash=sealed.hex, hash_tree=place) as image:
            assert image.read("class/1.bin") == contents(1)
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(5000) + sealed.path.read_bytes())
    with kilnfs.open(disk, offset=5000, root_hash=sealed.hex) as image:
        assert image.read("class/1.bin") == contents(1)
    (tmp_path / "plain.erofs.verity").write_bytes(tree.read_bytes())
    with kilnfs.open(plain, root_hash=sealed.hex) as image:
        assert image.read("class/1.bin") == contents(1)


def test_a_verified_image_stays_verified_in_another_process(sealed: Sealed, tmp_path: Path) -> None:
    with kilnfs.open(sealed.path, root_hash=sealed.file) as image:
        pickled = pickle.dumps(image)
    sealed.file.unlink()
    with pickle.loads(pickled) as again:
        assert again.read("class/1.bin") == contents(1)
    data = bytearray(sealed.path.read_bytes())
    data[data.index(contents(3)[:4000])] ^= 1
    sealed.path.write_bytes(data)
    with pickle.loads(pickled) as again, pytest.raises(OSError, match="wrong digest"):
        again.read("class/3.bin")
    with kilnfs.open(sealed.path, root_hash=sealed.hex, hash_tree=io.BytesIO(tree_of(sealed))) as image:
        with pytest.raises(TypeError):
            pickle.dumps(image)


def tree_of(sealed: Sealed) -> bytes:
    return sealed.path.read_bytes()[len(sealed.plain) :]


def test_datasets_and_fsspec_pass_it_on(sealed: Sealed) -> None:
    samples = kilnfs.Samples(sealed.path, root_hash=sealed.hex)
    assert samples[0][0] == contents(0)
    with pytest.raises(OSError, match="wrong digest"):
        kilnfs.Samples(sealed.path, root_hash="5a" * 32)[0]
    fs = pytest.importorskip("kilnfs.fs").ErofsFileSystem(str(sealed.path), root_hash=sealed.hex)
    assert fs.cat_file("class/9.bin") == contents(9)
    with pytest.raises(OSError, match="wrong digest"):
        type(fs)(str(sealed.path), root_hash="5a" * 32)


def test_an_index_behind_the_image_is_verified(sealed: Sealed, tmp_path: Path) -> None:
    """An index that is wrong is not used."""
    image, source = tmp_path / "indexed.erofs", tmp_path / "source"
    source.mkdir()
    for number in range(50):
        (source / f"{number:02}.bin").write_bytes(contents(number))
    kilnfs.pack(source, image, index=True)
    format_tree(image, "--root-hash-file", tmp_path / "hash")
    with kilnfs.open(image, root_hash=tmp_path / "hash") as opened:
        assert len(opened.index()) == 50
    data = bytearray(image.read_bytes())
    data[data.index(b"kilnbhd") + 200] ^= 1
    image.write_bytes(data)
    with kilnfs.open(image, root_hash=tmp_path / "hash") as opened:
        assert list(opened.index()) == [f"{number:02}.bin" for number in range(50)]


def test_a_manifest_has_no_root_hash(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a root hash is that of one image"):
        kilnfs.open(tmp_path / "manifest.json", root_hash="00" * 32)
