"""`kilnfs.torchvision.ImageFolder` beside torchvision's on the directory that the image was made from."""

from __future__ import annotations

import io
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: crates/python/tests/torch_root.sh test")
pytest.importorskip("torchvision", reason="torchvision is not installed")

import kilnfs.torchvision  # noqa: E402
import torch  # noqa: E402
import torchvision.datasets  # noqa: E402
from kilnfs.torch import Dataset, LocalityBatchSampler, collate  # noqa: E402
from PIL import Image  # noqa: E402
from samples_for_tests import pack  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torchvision.transforms import functional  # noqa: E402


def make_pictures(directory: Path, nested: bool = False) -> Path:
    numbers = random.Random(3)
    for label, name in enumerate(("cat", "dog", "zebra")):
        for number in range(14):
            inner = "inner/" if nested and number % 3 == 0 else ""
            path = directory / name / f"{inner}{number:03}.{('jpg', 'png', 'JPEG')[number % 3]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            size = numbers.randrange(8, 40), numbers.randrange(8, 40)
            picture = Image.effect_noise(size, 40 + label).convert("L" if number % 5 == 0 else "RGB")
            picture.save(path, format="PNG" if path.suffix == ".png" else "JPEG")
        (directory / name / "notes.txt").write_text("no picture")
    (directory / "README.txt").write_text("not in a class")
    return directory


@pytest.fixture(scope="module", params=[False, True], ids=["flat", "nested"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pictures(tmp_path_factory.mktemp("pictures") / "set", request.param)


@pytest.fixture(scope="module")
def image(source: Path) -> Path:
    return pack(source, source.parent / "set.erofs")


def same(ours: Any, theirs: Any, source: Path) -> None:
    assert len(ours) == len(theirs)
    assert ours.classes == theirs.classes and ours.class_to_idx == theirs.class_to_idx
    assert list(ours.targets) == list(theirs.targets)
    assert (
        list(ours.samples)
        == list(ours.imgs)
        == [(str(Path(path).relative_to(source)), label) for path, label in theirs.samples]
    )
    for row in range(len(theirs)):
        (our_picture, our_label), (their_picture, their_label) = ours[row], theirs[row]
        assert our_label == their_label and torch.equal(our_picture, their_picture)
    rows = [len(theirs) - 1, 0, 7, 7]
    for (our_picture, our_label), row in zip(ours.__getitems__(rows), rows, strict=True):
        assert our_label == theirs[row][1] and torch.equal(our_picture, theirs[row][0])


def test_the_same_samples_as_of_the_directory(source: Path, image: Path) -> None:
    ours = kilnfs.torchvision.ImageFolder(image, functional.to_tensor)
    assert isinstance(ours, torchvision.datasets.ImageFolder)
    same(ours, torchvision.datasets.ImageFolder(str(source), functional.to_tensor), source)
    assert str(image) in repr(ours)


def test_a_directory_of_an_image(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    make_pictures(outer / "data" / "valid")
    make_pictures(outer / "data" / "train" / "more")
    image = pack(outer, tmp_path / "outer.erofs")
    ours = kilnfs.torchvision.ImageFolder(image, functional.to_tensor, directory="data/valid")
    same(ours, torchvision.datasets.ImageFolder(str(outer / "data" / "valid"), functional.to_tensor), outer)


def test_files_that_are_chosen_by_a_function(source: Path, image: Path) -> None:
    def even(path: str) -> bool:
        return path.endswith(("png", "jpg", "JPEG")) and int(Path(path).stem) % 2 == 0

    ours = kilnfs.torchvision.ImageFolder(image, functional.to_tensor, is_valid_file=even)
    same(ours, torchvision.datasets.ImageFolder(str(source), functional.to_tensor, is_valid_file=even), source)


class _OursOfTwo(kilnfs.torchvision.ImageFolder):
    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        return ["cat", "zebra"], {"cat": 1, "zebra": 0}


class _TheirsOfTwo(torchvision.datasets.ImageFolder):
    find_classes = _OursOfTwo.find_classes


def test_the_documented_hook_of_classes(source: Path, image: Path) -> None:
    ours, theirs = _OursOfTwo(image, functional.to_tensor), _TheirsOfTwo(str(source), functional.to_tensor)
    assert sorted(ours.samples) == sorted(
        (str(Path(path).relative_to(source)), label) for path, label in theirs.samples
    )
    assert ours[0][1] == ours.targets[0] and set(ours.targets) == {0, 1}
    assert torch.equal(
        ours[0][0], dict(zip(theirs.samples, theirs, strict=True))[str(source / ours.samples[0][0]), ours.targets[0]][0]
    )


class _WithPath(kilnfs.torchvision.ImageFolder):
    def __getitem__(self, index: Any) -> Any:
        return (*super().__getitem__(index), self.imgs[index][0])


def test_a_subclass_with_another_notion_of_a_sample(image: Path) -> None:
    samples = _WithPath(image, functional.to_tensor).__getitems__([3, 5])
    assert [len(sample) for sample in samples] == [3, 3]


def test_empty_classes(tmp_path: Path) -> None:
    source = make_pictures(tmp_path / "set")
    (source / "empty").mkdir()
    image = pack(source, tmp_path / "set.erofs")
    with pytest.raises(FileNotFoundError, match="Found no valid file for the classes empty"):
        kilnfs.torchvision.ImageFolder(image)
    ours = kilnfs.torchvision.ImageFolder(image, functional.to_tensor, allow_empty=True)
    same(ours, torchvision.datasets.ImageFolder(str(source), functional.to_tensor, allow_empty=True), source)
    with pytest.raises(FileNotFoundError, match="class folder"):
        kilnfs.torchvision.ImageFolder(image, directory="empty")


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_in_a_loader_with_workers(source: Path, image: Path, method: str) -> None:
    theirs = torchvision.datasets.ImageFolder(str(source), _small)
    ours = kilnfs.torchvision.ImageFolder(image, _small)
    sampler = LocalityBatchSampler(ours, 6, drop_last=False, window_blocks=2, block_bytes=4096)
    loader = DataLoader(ours, batch_sampler=sampler, num_workers=2, multiprocessing_context=method)
    order = sampler.order(0).tolist()
    place = 0
    for pictures, labels in loader:
        for picture, label in zip(pictures, labels, strict=True):
            their_picture, their_label = theirs[order[place]]
            assert torch.equal(picture, their_picture) and int(label) == their_label
            place += 1
    assert place == len(order) >= len(theirs)


def _small(picture: Any) -> torch.Tensor:
    return functional.to_tensor(picture.resize((8, 8)))


def test_pickles_and_replaced_samples(image: Path) -> None:
    ours = kilnfs.torchvision.ImageFolder(image, functional.to_tensor)
    again = pickle.loads(pickle.dumps(ours))
    assert list(again.samples) == list(ours.samples) and torch.equal(again[4][0], ours[4][0])
    chosen = [ours.samples[20], ours.samples[3]]
    again.samples = chosen
    assert (
        len(again) == 2
        and list(again.targets) == [label for _, label in chosen]
        and torch.equal(again[1][0], ours[3][0])
    )


def test_loaders_are_given_a_file(image: Path) -> None:
    def size(file: io.BytesIO) -> tuple[int, int]:
        return Image.open(file).size

    ours = kilnfs.torchvision.ImageFolder(image, loader=size)
    pictures = kilnfs.torchvision.ImageFolder(image)
    assert ours[2][0] == pictures[2][0].size


def test_errors_of_loaders_name_the_picture(tmp_path: Path) -> None:
    source = make_pictures(tmp_path / "set")
    (source / "dog" / "007.png").write_bytes(b"no picture")
    path = pack(source, tmp_path / "set.erofs")
    ours = kilnfs.torchvision.ImageFolder(path)
    row = [name for name, _ in ours.samples].index("dog/007.png")
    note = f"sample {row}, 'dog/007.png' of '{path}'"
    for read in (lambda: ours[row], lambda: ours.__getitems__([0, row])):
        with pytest.raises(OSError, match="name='dog/007.png'") as caught:
            read()
        assert caught.value.__notes__ == [note]
    # A worker sends the text.
    loader = DataLoader(ours, batch_size=2, sampler=[row], num_workers=1, collate_fn=list)
    with pytest.raises(OSError, match="dog/007.png") as sent:
        next(iter(loader))
    assert note in str(sent.value)


def test_jpeg_decoding_of_batches(source: Path, image: Path) -> None:
    dataset = Dataset(image, extensions=".jpg")
    samples = dataset.__getitems__(range(len(dataset)))
    expected = [torchvision.io.decode_image(str(source / path)) for path, _ in dataset.samples]
    batch = collate(samples)
    for given in (samples, batch, samples.batch, [bytes(data) for data, _ in samples]):
        decoded = kilnfs.torchvision.decode_jpeg(given)
        assert len(decoded) == len(expected) > 10
        assert all(torch.equal(one, other) for one, other in zip(decoded, expected, strict=True))
    assert kilnfs.torchvision.decode_jpeg([]) == []
