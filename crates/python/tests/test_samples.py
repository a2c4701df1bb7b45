"""`kilnfs.Samples`: what frameworks call, processes, pickles."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kilnfs
import pytest
from kilnfs._samples import SampleList, Samples
from samples_for_tests import contents, make_set, pack


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_set(tmp_path_factory.mktemp("samples") / "set")


@pytest.fixture(scope="module")
def image(source: Path) -> Path:
    return pack(source, source.parent / "set.erofs")


def _length(data: memoryview) -> int:
    return len(data)


def _negative(label: int) -> int:
    return -label


def test_samples_are_the_files_in_path_order(source: Path, image: Path) -> None:
    expected = contents(source)
    samples = Samples(image)
    assert len(samples) == len(expected)
    assert samples.classes == [f"class {label}" for label in range(7)]
    assert samples.class_to_idx["class 3"] == 3
    for row, (path, data) in enumerate(expected):
        label = int(path[6])
        assert samples[row] == (data, label)
        assert samples.samples[row] == (path, label)
    assert samples.targets is not None
    assert samples.targets.tolist() == [int(path[6]) for path, _ in expected]
    assert list(samples) == [samples[row] for row in range(len(samples))]
    assert samples[-1] == samples[len(samples) - 1]
    assert samples[3:9:2] == [samples[3], samples[5], samples[7]]
    assert samples.samples[-2:] == [samples.samples[len(samples) - 2], samples.samples[len(samples) - 1]]
    for row in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError, match=f"sample {row} of {len(samples)}"):
            samples[row]
        with pytest.raises(IndexError):
            samples.__getitems__([0, row])


def test_a_batch_is_one_read_answered_in_the_order_of_the_question(source: Path, image: Path) -> None:
    expected = contents(source)
    samples = Samples(image)
    asked = [200, 3, 3, 150, 0, len(samples) - 1]
    batch = samples.__getitems__(asked)
    assert isinstance(batch, SampleList) and batch.batch is not None and batch.labels is not None
    assert [data for data, _ in batch] == [expected[row][1] for row in asked]
    assert bytes(batch.batch.data) == b"".join(expected[row][1] for row in asked)
    assert batch.labels.tolist() == [int(expected[row][0][6]) for row in asked]
    assert samples.__getitems__([]) == []


def test_decode_and_transforms(source: Path, image: Path) -> None:
    expected = contents(source)
    lengths = Samples(image, decode=_length, target_transform=_negative)
    assert lengths[60] == (len(expected[60][1]), -int(expected[60][0][6]))
    assert lengths.__getitems__([60, 2]) == [lengths[60], lengths[2]]
    buffers = Samples(image, decode="buffer")
    view, _ = buffers[60]
    assert isinstance(view, memoryview) and not view.readonly and bytes(view) == expected[60][1]
    assert Samples(image, transform=len)[60][0] == len(expected[60][1])
    with pytest.raises(ValueError, match="decode is 'jpeg', but must be 'bytes', 'buffer' or a function"):
        Samples(image, decode="jpeg")
    with pytest.raises(ValueError, match="threads is 0"):
        Samples(image, threads=0)


class _WithPath(Samples):
    """As many users write: a sample that has its path, too."""

    def __getitem__(self, index: Any) -> Any:
        return (*super().__getitem__(index), self.samples[index][0])


def test_a_subclass_with_another_notion_of_a_sample_is_asked_for_it(image: Path) -> None:
    samples = _WithPath(image)
    assert samples.__getitems__([1, 5]) == [samples[1], samples[5]]
    assert samples[5][2] == "class 0/0005.bin"


def test_part_of_an_image(source: Path, image: Path) -> None:
    expected = [data for path, data in contents(source) if path.startswith("class 2/")]
    samples = Samples(image, "/class 2")
    assert samples.classes == [] and samples.targets is None
    assert list(samples) == expected
    assert samples.samples[1] == ("class 2/0001.bin", -1)
    assert len(Samples(image, extensions=".jpg")) == 0
    assert len(Samples(image, extensions=[".jpg", ".bin"])) == len(contents(source))


def test_what_a_class_is(source: Path, image: Path) -> None:
    parents = Samples(image, group="parent")
    assert parents.classes == [f"class {label}" for label in range(7)] and list(parents) == list(Samples(image))
    plain = Samples(image, group=None)
    assert plain.targets is None and plain[5] == contents(source)[5][1]
    odd = Samples(image, group=_parity)
    assert odd.classes == ["even", "odd"] and [odd[row][1] for row in (3, 4)] == [1, 0]


def _parity(path: str) -> str:
    return "odd" if int(Path(path).stem) % 2 else "even"


def test_an_image_that_is_open_already(image: Path) -> None:
    with kilnfs.open(image) as opened:
        samples = Samples(opened)
        assert samples.image is opened
        copy = pickle.loads(pickle.dumps(samples))
        assert copy[9] == samples[9] and copy.image is not opened
        with pytest.raises(TypeError, match="image is already open: cache_bytes cannot be given"):
            Samples(opened, cache_bytes=1 << 20)
    in_memory = Samples(kilnfs.open(image.read_bytes()))
    assert in_memory[9] == Samples(image, cache_bytes=0)[9]
    with pytest.raises(TypeError, match="opened from memory"):
        pickle.dumps(in_memory)


def _answer(samples: Samples, rows: list[int], answers: Any) -> None:
    answers.put((os.getpid(), [bytes(data) for data, _ in samples.__getitems__(rows)], bytes(samples[0][0])))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("used_before", [False, True])
def test_other_processes_read_the_same(source: Path, image: Path, method: str, used_before: bool) -> None:
    expected = contents(source)
    samples = Samples(image)
    if used_before:
        samples.__getitems__(range(100))
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    rows = [250, 1, 77]
    processes = [context.Process(target=_answer, args=(samples, rows, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    answered = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert len({pid for pid, _, _ in answered} - {os.getpid()}) == 3
    for _, batch, first in answered:
        assert batch == [expected[row][1] for row in rows] and first == expected[0][1]


def test_pickles_open_the_image_when_they_read(image: Path, tmp_path: Path) -> None:
    directory = os.getcwd()
    os.chdir(image.parent)
    try:
        samples = Samples(image.name, decode=_length)
    finally:
        os.chdir(directory)
    copy = pickle.loads(pickle.dumps(samples))
    assert copy._image is None, "nothing is open yet"
    assert len(copy) == len(samples) and copy[11] == samples[11] and copy.classes == samples.classes
    # 16 bytes a sample and little else: no paths.
    assert len(pickle.dumps(samples)) < 16 * len(samples) + 1600


def test_a_saved_index_is_shared_by_its_path(source: Path, image: Path, tmp_path: Path) -> None:
    samples = Samples(image)
    saved = tmp_path / "set.idx"
    samples.files.save(str(saved))
    shared = Samples(image, index=saved)
    assert list(shared) == list(samples)
    pickled = pickle.dumps(shared)
    assert len(pickled) < 1500
    assert pickle.loads(pickled)[5] == samples[5]
    assert list(Samples(image, index=samples.files)) == list(samples)
    with pytest.raises(TypeError, match="index selects the files"):
        Samples(image, "/class 1", index=saved)
    # Another index at the same path.
    samples.files.subset([1, 2, 3]).save(str(saved))
    with pytest.raises(OSError) as caught:
        pickle.loads(pickled)[0]
    assert caught.value.filename == str(saved)


def test_an_image_that_was_replaced_is_not_read(source: Path, tmp_path: Path) -> None:
    image = pack(source, tmp_path / "set.erofs")
    pickled = pickle.dumps(Samples(image))
    image.unlink()
    pack(make_set(tmp_path / "other", classes=2, seed=9), image)
    with pytest.raises(OSError):
        pickle.loads(pickled)[0]


def _in_child(answers: Any, look: Callable[[], bool]) -> None:
    answers.put(look())


def test_child_processes_read_with_one_thread() -> None:
    from kilnfs._samples import _in_child as look

    assert not look()
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    answers = context.Queue()
    process = context.Process(target=_in_child, args=(answers, look))
    process.start()
    assert answers.get(timeout=60) is True
    process.join()
