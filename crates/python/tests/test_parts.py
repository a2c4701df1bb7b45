"""`Samples(parts=…)`: samples of several files, of one image and of shards."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import kilnfs
import pytest
from kilnfs import shards
from kilnfs._locality import LocalityBatches
from kilnfs._samples import Samples

PARTS = {"image": ".jpg", "mask": ".seg.png", "label": ".json"}


def from_json(contents: memoryview) -> Any:
    return json.loads(bytes(contents))


def files(count: int = 40) -> dict[str, bytes]:
    """Files of each sample; the stems sort in another order than the files."""
    found = {}
    for number in range(count):
        stem = f"class {number % 3}/{number:03}" + ("-b" if number % 4 == 0 else "")
        found[stem + (".JPG" if number == 7 else ".jpg")] = b"picture %d" % number * (number + 1)
        found[stem + ".seg.png"] = b"mask %d" % number
        found[stem + ".json"] = json.dumps({"number": number}).encode()
    return found


def packed(path: Path, contents: dict[str, bytes]) -> Path:
    with kilnfs.Builder() as tree:
        tree.add_many(contents.items())
        tree.write(path)
    return path


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("parts") / "parts.erofs", files())


def check(samples: Any, label_of: Any = None) -> None:
    """That each sample has the files of one stem, and the class of its directory."""
    expected = files()
    stems = {path.removesuffix(".json") for path in expected if path.endswith(".json")}
    assert len(samples) == len(stems)
    seen = set()
    for row in range(len(samples)):
        data, label = samples[row]
        path = samples.samples[row][0]
        stem = path[: -len(".jpg")]
        seen.add(stem)
        assert data == {
            "image": expected[path],
            "mask": expected[stem + ".seg.png"],
            "label": json.loads(expected[stem + ".json"]),
        }
        assert samples.classes[label] == path.split("/")[0]
    assert seen == stems
    rows = [5, 3, 3, len(samples) - 1]
    assert samples.__getitems__(rows) == [samples[row] for row in rows]
    assert list(samples) == [samples[row] for row in range(len(samples))]


def test_files_of_a_stem_are_a_sample(image: Path) -> None:
    samples: Samples[tuple[dict[str, Any], int]] = Samples(image, parts=PARTS, decode={"label": from_json})
    check(samples)
    again = pickle.loads(pickle.dumps(samples))
    assert list(again) == list(samples)
    buffers = Samples(image, parts=PARTS, decode="buffer", group=None)
    assert isinstance(buffers[0]["mask"], memoryview) and bytes(buffers[0]["mask"]) == samples[0][0]["mask"]
    lengths = Samples(image, parts=PARTS, decode=len, transform=lambda data: sum(data.values()), group=None)
    assert lengths[2] == sum(map(len, Samples(image, parts=PARTS, group=None)[2].values()))


def test_all_parts_are_one_read(image: Path) -> None:
    samples = Samples(image, parts=PARTS)
    calls = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(samples_image, name)

        def read_many(self, *arguments: Any, **more: Any) -> Any:
            calls.append(len(more["rows"]))
            return samples_image.read_many(*arguments, **more)

    samples_image = samples.image
    samples._image = Counting()  # type: ignore[assignment]
    samples.__getitems__([3, 1, 2]), samples[4]
    assert calls == [9, 3]


def test_an_index_and_samplers(image: Path, tmp_path: Path) -> None:
    opened = kilnfs.open(image)
    index = opened.index(extensions=list(PARTS.values()), group=1)
    index.save(str(tmp_path / "parts.idx"))
    for given in (index, tmp_path / "parts.idx"):
        samples = Samples(image, index=given, parts=PARTS, decode={"label": from_json})
        check(samples)
        check(pickle.loads(pickle.dumps(samples)))
    sampler = LocalityBatches(samples, 7, block_bytes=4096, window_blocks=2, drop_last=False)
    visited = [row for batch in sampler for row in batch]
    assert sorted(visited) == list(range(len(samples)))


def test_on_shards(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for path, data in files().items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    plan = shards.plan(source, tmp_path / "shards", shard_bytes=3000)
    manifest = shards.finish(plan, [shards.pack(entry) for entry in plan])
    samples: Samples[Any] = Samples(manifest, parts=PARTS, decode={"label": from_json})
    assert len(plan) > 2
    check(samples)
    check(pickle.loads(pickle.dumps(samples)))
    assert [bytes(part) for part in samples.contents([3])[0]] == [samples[3][0]["image"]]
    with pytest.raises(TypeError, match="are in shards"):
        LocalityBatches(samples, 4)
    data = kilnfs.open(manifest)
    assert isinstance(data, shards.ShardedImage)
    index = data.index(extensions=list(PARTS.values()), group=1)
    count = 0
    for number in range(len(plan)):
        part = Samples(data.shard(number), index=index.shard(number), parts=PARTS)
        count += len(part)
        assert all(set(sample[0]) == set(PARTS) for sample in part)
        assert part.classes == samples.classes
    assert count == len(samples)


def test_parts_that_are_missing(tmp_path: Path) -> None:
    contents = files()
    del contents["class 1/001.json"], contents["class 2/002.seg.png"]
    image = packed(tmp_path / "missing.erofs", contents)
    with pytest.raises(FileNotFoundError, match=r"no part 'label' \(\.json\) .* and 1 more samples") as raised:
        Samples(image, parts=PARTS)
    assert (raised.value.filename, raised.value.filename2) == ("class 1/001", str(image))
    samples = Samples(image, parts=PARTS, missing="skip")
    assert len(samples) == 38
    assert not {"class 1/001.jpg", "class 2/002.jpg"} & set(samples.files)
    contents = files()
    contents["class 1/001.JSON"] = b"{}"
    with pytest.raises(FileExistsError, match="a second part 'label' of 'class 1/001', besides 'class 1/001.JSON'"):
        Samples(packed(tmp_path / "twice.erofs", contents), parts=PARTS)


def test_what_does_not_fit(image: Path) -> None:
    for arguments, reason in [
        ({"parts": {}}, "use at least one"),
        ({"parts": PARTS, "missing": "none"}, "missing is 'none'"),
        ({"parts": PARTS, "decode": {"text": "bytes"}}, r"decode\['text'\]: not a name in parts"),
        ({"parts": PARTS, "decode": {"mask": "tensors"}}, r"decode\['mask'\] is 'tensors'"),
        ({"decode": {"mask": "bytes"}}, "not a name in parts"),
    ]:
        with pytest.raises(ValueError, match=reason):
            Samples(image, **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="extensions cannot be given"):
        Samples(image, parts=PARTS, extensions=".jpg")
