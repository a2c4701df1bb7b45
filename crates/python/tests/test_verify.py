"""Digests of contents: stored by `pack`, compared by `check` and by `open(verify=True)`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import kilnfs
import pytest

NAME = "class/3.bin"


def contents(number: int) -> bytes:
    return b"%04d" % number * 2500


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images with digests and without, whole, and with another byte in a file that is stored as it is."""
    base = tmp_path_factory.mktemp("verify")
    found = {}
    kinds: dict[str, Any] = {"digests": True, "fsverity": "fsverity-sha256", "none": False}
    for kind, digests in kinds.items():
        with kilnfs.Builder() as tree:
            tree.add_many((f"class/{number}.bin", contents(number)) for number in range(8))
            tree.write(base / f"{kind}.erofs", preset="plain", content_digests=digests)
        found[kind] = base / f"{kind}.erofs"
        data = bytearray(found[kind].read_bytes())
        data[data.index(contents(3)[:4000]) + 100] ^= 1
        found["damaged " + kind] = base / f"damaged-{kind}.erofs"
        found["damaged " + kind].write_bytes(data)
    return found


def ways(image: kilnfs.Image) -> dict[str, Any]:
    """Every way to read a file whole."""
    index = image.index()
    row = index.find(NAME)
    return {
        "read": lambda: image.read(NAME),
        "nid": lambda: image.read(nid=index.nids[row]),
        "read_into": lambda: image.read_into(NAME, bytearray(20_000)),
        "view": lambda: image.view(NAME),
        "views": lambda: image.views(index),
        "read_many": lambda: image.read_many(index, rows=[1, row]),
        "iter_many": lambda: list(image.iter_many([NAME])),
        "file": lambda: image.open(NAME).read(),
        "raw file": lambda: image.open(NAME, buffering=0).read(),
        "path": lambda: (image / NAME).read_bytes(),
        "samples": lambda: kilnfs.Samples(image)[row],
    }


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", ["digests", "fsverity"])
def test_damage_is_found_by_each_way_to_read_a_file_whole(images: dict[str, Path], kind: str, mmap: bool) -> None:
    place = images[f"damaged {kind}"]
    with kilnfs.open(place, verify=True, mmap=mmap) as image:
        for name, way in ways(image).items():
            with pytest.raises(kilnfs.CorruptImageError, match="stored digest") as raised:
                way()
            assert str(place) in (*raised.value.args, raised.value.filename, raised.value.filename2), name
        with pytest.raises(kilnfs.CorruptImageError) as raised:
            image.read(NAME)
        assert raised.value.filename == NAME
        errors = image.read_many(["class/1.bin", NAME], on_error="return").errors
        assert list(errors) == [1] and isinstance(errors[1], kilnfs.CorruptImageError)
        assert image.read("class/4.bin") == contents(4)
        # Parts of a file cannot be compared.
        assert image.read(NAME, 0, 50) == contents(3)[:50]
        again = pickle.loads(pickle.dumps(image))
        with pytest.raises(kilnfs.CorruptImageError, match="stored digest"):
            again.read(NAME)


def test_whole_images_and_images_without_digests_are_read(images: dict[str, Path]) -> None:
    for kind in ("digests", "fsverity", "none"):
        with kilnfs.open(images[kind], verify=True) as image:
            for way in ways(image).values():
                way()
            assert image.read(NAME) == contents(3)
    # Without verify, and without digests, other bytes come: nothing shows it.
    for place, verify in ((images["damaged digests"], False), (images["damaged none"], True)):
        with kilnfs.open(place, verify=verify) as image:
            assert image.read(NAME) != contents(3)


def test_a_check_says_what_it_could_not_verify(images: dict[str, Path]) -> None:
    reports = {kind: kilnfs.open(path).check() for kind, path in images.items()}
    assert {kind: (report.ok, report.contents) for kind, report in reports.items()} == {
        "digests": (True, "verified"),
        "damaged digests": (False, "verified in part"),
        "fsverity": (True, "verified"),
        "damaged fsverity": (False, "verified in part"),
        "none": (True, "not verifiable"),
        "damaged none": (True, "not verifiable"),
    }
    assert str(reports["none"]) == "ok; contents: not verifiable"
    assert str(reports["digests"]) == "ok; contents: verified"
    assert "another digest" in str(reports["damaged digests"])
    assert str(reports["damaged digests"]).endswith("; contents: verified in part, 70000 of 80000 bytes")
    assert reports["digests"].file_bytes == 80_000 == reports["digests"].digested_bytes


def test_an_unknown_function_is_refused(tmp_path: Path) -> None:
    with kilnfs.Builder() as tree:
        tree.add_bytes(b"contents", "a")
        with pytest.raises(ValueError, match="content_digests=sha1: none of sha256"):
            tree.write(tmp_path / "a.erofs", content_digests="sha1")  # type: ignore[arg-type]
