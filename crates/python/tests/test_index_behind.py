"""An index behind its image: `kilnfs.pack(index=…)`."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kilnfs
import packing
import pytest
from kilnfs import shards


class Counting(io.BytesIO):
    """An image far away: requests and bytes are counted."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.requests = self.fetched = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.requests += 1
        self.fetched += len(data)
        return data


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that do not compress: their ends lie beside inodes."""
    root = tmp_path_factory.mktemp("behind") / "source"
    for number in range(3000):
        path = root / f"class {number % 20}" / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(3000 + number % 1000))
    return root


@pytest.fixture(scope="module")
def image(source: Path) -> Path:
    path = source.parent / "image.erofs"
    made = kilnfs.pack(source, path, index=True)
    assert made.image_bytes == path.stat().st_size
    return path


def plain(source: Path, directory: Path) -> Path:
    path = directory / "plain.erofs"
    kilnfs.pack(source, path)
    return path


def cost_of_index(data: bytes, **question: Any) -> tuple[kilnfs.Index, int, int]:
    """The index, the requests that it takes, and the bytes."""
    far = Counting(data)
    image = kilnfs.open(far)
    requests, fetched = far.requests, far.fetched
    return image.index(**question), far.requests - requests, far.fetched - fetched


def test_an_index_behind_the_image_is_one_request(source: Path, image: Path, tmp_path: Path) -> None:
    index, requests, fetched = cost_of_index(image.read_bytes(), group=1)
    other, others_requests, others_fetched = cost_of_index(plain(source, tmp_path).read_bytes(), group=1)
    assert index.digest == other.digest and list(index) == list(other)
    assert requests == 1 and fetched <= 1 << 20
    assert others_requests > 2 and others_fetched > 4 << 20, "tails lie among the inodes"


def test_it_answers_its_own_question_only(source: Path, image: Path, tmp_path: Path) -> None:
    without = kilnfs.open(plain(source, tmp_path))
    opened = kilnfs.open(image)
    questions: list[dict[str, Any]] = [
        {"group": 1}, {}, {"group": 0}, {"root": "class 3"}, {"extensions": ".jpg", "group": 1}, {"glob": "*/1*"},
        {"group": "parent"}, {"group": len},
    ]  # fmt: skip
    for question in questions:
        if question.get("group") is len:
            question = {"group": lambda path: path[-5]}
        ours, theirs = opened.index(**question), without.index(**question)
        assert ours.digest == theirs.digest and list(ours) == list(theirs), question
    samples = kilnfs.Samples(image)
    assert len(samples) == 3000 and samples[5] == kilnfs.Samples(tmp_path / "plain.erofs")[5]


def test_the_image_is_what_it_was(source: Path, image: Path, tmp_path: Path) -> None:
    data = image.read_bytes()
    whole = plain(source, tmp_path).read_bytes()
    assert data.startswith(whole) and len(data) > len(whole)
    with kilnfs.open(image) as opened:
        assert opened.check().ok
    packing.kiln("check", image)
    for path in sorted(source.rglob("*.jpg"))[::500]:
        name = str(path.relative_to(source))
        assert kilnfs.open(image).read(name) == path.read_bytes()


def test_the_kernel_mounts_it(source: Path, image: Path, tmp_path: Path) -> None:
    mount = ["mount", "-t", "erofs", "-o", "loop,ro", image, tmp_path]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount images")
    try:
        names = sorted(str(path.relative_to(source)) for path in source.rglob("*.jpg"))
        assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jpg")) == names
        assert (tmp_path / names[7]).read_bytes() == (source / names[7]).read_bytes()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_what_is_damaged_or_of_another_image_is_not_taken(source: Path, image: Path, tmp_path: Path) -> None:
    data = image.read_bytes()
    end = len(plain(source, tmp_path).read_bytes())
    expected = kilnfs.open(image).index(group=1).digest
    behind = data[end:]
    for change in (0, 9, 20, 33, 70, 200, len(behind) // 2):
        damaged = bytearray(data)
        damaged[end + change] ^= 255
        assert kilnfs.open(bytes(damaged)).index(group=1).digest == expected
        index, requests, _ = cost_of_index(bytes(damaged), group=1)
        assert index.digest == expected and requests > 1, change
    for cut in (end, end + 1, end + 64, len(data) - 1):
        assert cost_of_index(data[:cut], group=1)[0].digest == expected
    with kilnfs.Builder() as tree:
        tree.add_bytes(b"another", "class 1/file.jpg")
        tree.write(tmp_path / "another.erofs")
    mixed = (tmp_path / "another.erofs").read_bytes() + behind
    assert list(cost_of_index(mixed, group=1)[0]) == ["class 1/file.jpg"]


def test_choices(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "image.erofs"
    with kilnfs.Builder() as tree:
        tree.add_tree(source)
        made = tree.write(path, index={"extensions": [".JPG", ".png"], "group": 1, "root": "/class 3"})
    assert made.image_bytes == path.stat().st_size
    data = path.read_bytes()
    question = {"extensions": [".png", ".jpg"], "group": 1, "root": "class 3/"}
    assert cost_of_index(data, **question)[1] == 1
    for wrong, error in (({"ending": ".jpg"}, TypeError), ({"group": "parent"}, ValueError)):
        with pytest.raises(error, match="index: "):
            kilnfs.pack(source, tmp_path / "never.erofs", index=wrong)
        assert not (tmp_path / "never.erofs").exists()
    assert kilnfs.pack(source, tmp_path / "dry.erofs", index=True, dry_run=True).files == 3000
    assert not (tmp_path / "dry.erofs").exists()
    # Without directories there are no classes.
    with kilnfs.Builder() as tree:
        tree.add_many((f"{number}.txt", b"x" * 100) for number in range(20))
        tree.write(tmp_path / "flat.erofs", index=True)
    assert cost_of_index((tmp_path / "flat.erofs").read_bytes())[1] <= 1


def test_shards_have_one_each(source: Path, tmp_path: Path) -> None:
    plan = shards.plan(source, tmp_path / "shards", shard_bytes=4 << 20, index=True, inline=False)
    manifest = shards.finish(plan, [shards.pack(entry) for entry in plan])
    assert len(plan) > 1
    for entry in plan:
        assert cost_of_index((tmp_path / "shards" / entry.name).read_bytes(), group=1)[1] <= 1
    assert len(kilnfs.Samples(manifest)) == 3000


def test_without_inline_tails(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "image.erofs"
    with_tails = kilnfs.pack(source, tmp_path / "tails.erofs")
    without = kilnfs.pack(source, path, inline=False)
    assert without.image_bytes > with_tails.image_bytes
    _, _, fetched = cost_of_index(path.read_bytes(), group=1)
    assert fetched < 2 << 20 < cost_of_index((tmp_path / "tails.erofs").read_bytes(), group=1)[2]
    with kilnfs.open(path, mmap=True) as image:
        assert all(len(image.extents(name)) == 1 for name in list(image.index())[:50])
        assert image.check().ok
