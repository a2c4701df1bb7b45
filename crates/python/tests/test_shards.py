"""kilnfs.shards."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kilnfs
import packing
import pytest
from kilnfs import shards
from kilnfs._locality import LocalityBatches
from kilnfs.shards._group import group_key, hash_shard, path_key
from kilnfs.shards._manifest import Manifest
from kilnfs.shards._pack import _fetched

BY = ["hash", "path"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = packing.tree(tmp_path / "source", files=200)
    # Files of one group, a name that is no UTF-8, and links from one shard to another.
    for number in range(30):
        for suffix in ("jpg", "json", "mask.png"):
            path = root / "groups" / f"{number}.{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"%d %s" % (number, suffix.encode()))
    with open(os.fsencode(root) + b"/\xff.bin", "wb") as file:
        file.write(b"raw")
    (root / "to-dir").symlink_to("class-1")
    (root / "class-1" / "absolute").symlink_to("/groups/1.json")
    (root / "groups" / "chain").symlink_to("../to-dir/absolute")
    (root / "broken").symlink_to("nothing/here")
    (root / "loop").symlink_to("loop")
    packing.settle(root)
    return root


def made(source: Path | str, into: Path | str, **options: Any) -> str:
    plan = shards.plan(str(source), str(into), **{"shard_bytes": 100_000, **options})
    return shards.finish(plan, [shards.pack(entry) for entry in plan])


@pytest.mark.parametrize("by", BY)
def test_the_shards_are_the_tree(source: Path, tmp_path: Path, by: str) -> None:
    manifest = made(source, tmp_path / "shards", by=by)
    with kilnfs.open(manifest) as image:
        assert isinstance(image, shards.ShardedImage) and len(image.manifest) > 5
        expected = packing.files(source)
        assert {path: image.read(path) for path in expected} == expected
        ours = {path.removeprefix("/"): (sorted(dirs), sorted(files)) for path, dirs, files in image.walk("/")}
        theirs = {os.path.relpath(path, source): (sorted(dirs), sorted(files)) for path, dirs, files in os.walk(source)}
        theirs[""] = theirs.pop(".")
        assert ours == theirs
        assert sorted(image.namelist()) == sorted(str(path.relative_to(source)) for path in source.rglob("*"))
        for name in ("class-1/absolute", "groups/chain", "to-dir/absolute"):
            assert image.read(name) == b"1 json", name
        for path in ["", "class-2", "empty", "to-dir", "broken", "symlink", "class-0/0000.txt", "hardlink"]:
            ours_, theirs_ = image.lstat(path), os.lstat(source / path)
            fields = ("st_mode", "st_uid", "st_gid", "st_mtime_ns") + (() if (source / path).is_dir() else ("st_size",))
            assert [getattr(ours_, field) for field in fields] == [getattr(theirs_, field) for field in fields], path
        assert image.listdir("groups") == sorted(os.listdir(source / "groups"))
        assert image.listdir(b"/") == sorted(os.listdir(os.fsencode(source)))
        assert image.isdir("empty") and image.listdir("empty") == []
        assert image.isdir("to-dir") and image.islink("to-dir") and image.listdir("to-dir") == image.listdir("class-1")
        assert image.readlink("groups/chain") == "../to-dir/absolute"
        assert not image.exists("broken") and image.lexists("broken") and not image.exists("class-1/nothing")
        assert sorted(image.glob("groups/1.*")) == ["groups/1.jpg", "groups/1.json", "groups/1.mask.png"]
        assert sorted(str(path) for path in image.root.glob("*/2.json")) == ["/groups/2.json"]
        assert (image / "groups" / "3.jpg").read_bytes() == b"3 jpg"
        with image.open("groups/4.json", "r") as file:
            assert file.read() == "4 json"
        with image.scandir("groups") as entries:
            assert {entry.name for entry in entries if entry.is_file(follow_symlinks=False)} == set(
                os.listdir(source / "groups")
            ) - {"chain"}
        assert image.getinfo("groups/5.jpg").size == 5
        assert [bytes(view) for view in image.read_many(["groups/9.jpg", "\udcff.bin", "groups/1.json"])] == [
            b"9 jpg",
            b"raw",
            b"1 json",
        ]
        assert bytes(image.view("groups/6.jpg", 1)) == b" jpg"


@pytest.mark.parametrize("by", BY)
def test_errors_are_those_of_an_image(source: Path, tmp_path: Path, by: str) -> None:
    manifest = made(source, tmp_path / "shards", by=by)
    image = kilnfs.open(manifest)
    calls: list[tuple[Callable[[], object], type[OSError]]] = [
        (lambda: image.read("nothing"), FileNotFoundError),
        (lambda: image.read("nothing/below"), FileNotFoundError),
        (lambda: image.read("groups/1.jpg/below"), NotADirectoryError),
        (lambda: image.read("groups"), IsADirectoryError),
        (lambda: image.listdir("groups/1.jpg"), NotADirectoryError),
        (lambda: image.read("broken"), FileNotFoundError),
        (lambda: image.stat("loop"), OSError),
        (lambda: image.readlink("groups/1.jpg"), OSError),
        (lambda: image.readlink("groups"), OSError),
        (lambda: image.open("groups/1.jpg", "w"), OSError),
    ]
    for call, error in calls:
        with pytest.raises(error) as raised:
            call()
        assert raised.value.filename, raised.value
    image.close()
    with pytest.raises(ValueError, match="closed"):
        image.read("groups/1.jpg")


@pytest.mark.parametrize("by", BY)
def test_samples_have_numbers(source: Path, tmp_path: Path, by: str) -> None:
    image = shards.open(made(source, tmp_path / "shards", by=by), window=2)
    paths = [image.sample_path(number) for number in range(len(image))]
    assert len(set(paths)) == len(paths) >= len(packing.files(source))
    for number in (0, 1, len(image) // 2, len(image) - 1):
        assert image.read_sample(number) == image.read(paths[number])
        assert image.find(paths[number]) == number
    numbers = random.Random(5).choices(range(len(image)), k=100)
    assert [bytes(view) for view in image.read_samples(numbers)] == [image.read(paths[number]) for number in numbers]
    for outside in (-1, len(image)):
        with pytest.raises(IndexError):
            image.read_sample(outside)
    with pytest.raises(FileNotFoundError):
        image.find("groups/nothing")


def last_letter(path: str) -> str:
    return path[-1]


@pytest.mark.parametrize("by", BY)
def test_an_index_has_a_table_for_each_open_shard(source: Path, tmp_path: Path, by: str) -> None:
    for link in ["class-1/absolute", "groups/chain", "symlink"]:
        # A file by another name has a row where both lie in one shard.
        (source / link).unlink()
    image = shards.open(made(source, tmp_path / "shards", by=by), window=2)
    kilnfs.pack(source, tmp_path / "whole.erofs")
    whole = kilnfs.open(tmp_path / "whole.erofs")
    for options in [
        {},
        {"extensions": ".txt", "group": "parent"},
        {"root": "groups", "glob": "1*"},
        {"root": "/to-dir/", "group": 1},
        {"group": last_letter},
        {"extensions": [".none"], "group": 1},
    ]:
        index, expected = image.index(**options), whole.index(**options)  # type: ignore[arg-type]
        paths = list(index)
        assert sorted(paths) == sorted(expected) and len(paths) == len(index)
        assert index.classes == expected.classes
        assert (index.labels is None) == (expected.labels is None), options
        for row, path in enumerate(paths):
            other = expected.find(path)
            assert index.find(path) == row and path in index and index.sizes[row] == expected.sizes[other]
            if index.labels is not None and expected.labels is not None:
                assert index.labels[row] == expected.labels[other]
            assert image.read(nid=index.nids[row]) == whole.read(path)
        rows = random.Random(3).choices(range(len(index)), k=50) if paths else []
        batch = image.read_many(index, rows=rows)
        assert [bytes(part) for part in batch] == [whole.read(paths[row]) for row in rows]
        assert bytes(batch.data) == b"".join(whole.read(paths[row]) for row in rows)
        assert list(batch.offsets)[-1] == sum(batch.sizes) == len(batch.data)
        again = pickle.loads(pickle.dumps((index, batch)))
        assert list(again[0]) == paths and bytes(again[1].data) == bytes(batch.data)
        # Tables go with their shards.
        assert sum(len(shard.indexes) for shard in image._window._opened.shards.values()) <= 2 * 6
        assert len(image._window) <= 2
        for shard in range(len(image.manifest)):
            table = index.shard(shard)
            assert [table.path(row) for row in range(len(table))] == [paths[row] for row in index.rows(shard)]
    with pytest.raises(FileNotFoundError):
        image.index("nothing")
    with pytest.raises(NotADirectoryError):
        image.index("groups/1.jpg")
    with pytest.raises(OSError, match="belongs to an image with UUID"):
        made(source, tmp_path / "other", by=by, seed=2, shard_bytes=50_000)
        image.index().bind(shards.open(str(tmp_path / "other" / "manifest.json")))


@pytest.mark.parametrize("by", BY)
def test_samples_of_shards_are_those_of_an_image(source: Path, tmp_path: Path, by: str) -> None:
    manifest = made(source, tmp_path / "shards", by=by)
    kilnfs.pack(source, tmp_path / "whole.erofs")
    ours, whole = (kilnfs.Samples(place, extensions=".txt") for place in (manifest, str(tmp_path / "whole.erofs")))
    assert ours.classes == whole.classes and len(ours) == len(whole) > 20
    order = {path: row for row, (path, _) in enumerate(whole.samples)}
    rows = [order[path] for path, _ in ours.samples]
    assert sorted(rows) == list(range(len(whole)))
    assert list(ours) == [whole[row] for row in rows] and ours[3] == whole[rows[3]]
    assert ours.__getitems__([5, 1, 5]) == whole.__getitems__([rows[5], rows[1], rows[5]])
    assert list(pickle.loads(pickle.dumps(ours))) == list(ours)
    # What one table is needed for is done shard by shard.
    with pytest.raises(TypeError, match=r"are in shards: .*index\.shard\(number\)"):
        LocalityBatches(ours, 4)
    visited = []
    for number in range(len(ours.image.manifest)):  # type: ignore[attr-defined]
        table = ours.files.shard(number)  # type: ignore[attr-defined]
        one = kilnfs.Samples(ours.image.shard(number), index=table)  # type: ignore[attr-defined]
        assert one.classes == ours.classes
        for rows_ in LocalityBatches(one, 4, drop_last=False) if len(one) else ():
            visited += one.__getitems__(rows_)
    assert set(visited) == set(ours) and len(visited) - len(ours) < 4 * len(ours.image.manifest), (
        len(visited),
        len(ours),
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize("by", BY)
def test_extraction_puts_shards_together(source: Path, tmp_path: Path, by: str) -> None:
    image = shards.open(made(source, tmp_path / "shards", by=by))
    assert image.check().ok
    # The filter `data` refuses links that lead out of the tree.
    image.extractall(tmp_path / "all", filter="tar")
    assert packing.files(tmp_path / "all") == packing.files(source)
    assert (tmp_path / "all" / "groups").stat().st_mtime == 0
    image.extract("groups", tmp_path / "some", filter="tar")
    expected = {name: data for name, data in packing.files(source).items() if name.startswith("groups/")}
    assert packing.files(tmp_path / "some") == expected
    with pytest.raises(FileNotFoundError):
        image.extract("nothing", tmp_path / "some")


def test_a_window_is_all_that_is_open(source: Path, tmp_path: Path) -> None:
    image = shards.open(made(source, tmp_path / "shards"), window=3)
    for number in range(len(image)):
        image.read_sample(number)
        assert image.stats()["shards_open"] <= 3
    image.namelist()
    assert image.stats()["shards_open"] == 3
    # Dropped shards give their memory back, and what was given out stays.
    view = image.view("groups/1.jpg")
    image.namelist()
    image.close()
    assert bytes(view) == b"1 jpg"


def test_groups_stay_together(source: Path, tmp_path: Path) -> None:
    for by in BY:
        shards.plan(source, tmp_path / by, shard_bytes=20_000, by=by, seed=1)  # type: ignore[arg-type]
        where: dict[bytes, set[str]] = {}
        for path in (tmp_path / by / "plan").glob("shard-*.list"):
            for name in path.read_bytes().split(b"\0")[:-1]:
                where.setdefault(group_key(name), set()).add(path.name)
        assert {len(found) for found in where.values()} == {1}, by
        assert len(set.union(*where.values())) > 20


def test_keys() -> None:
    assert (
        group_key(b"a/b.d/c.tar.gz") == b"a/b.d/c"
        and group_key(b"..x.y") == b"..x"
        and group_key(b"a.b/...") == b"a.b/..."
    )
    # A promise of the manifest: other versions look paths up by it.
    assert [hash_shard(b"train/0001", 7, count) for count in (1, 10, 23_284)] == [0, 4, 12_256]
    assert path_key(b"a/b.c") == ((b"a", b""), (b"b", b"b.c"))


def test_hashed_shards_are_about_equal() -> None:
    counts = [0] * 50
    for number in range(50_000):
        counts[hash_shard(b"train/%d" % number, 3, 50)] += 1
    # A Poisson count of 1,000: six standard deviations.
    assert min(counts) > 810 and max(counts) < 1190


def test_plans_are_deterministic(source: Path, tmp_path: Path) -> None:
    one = shards.plan(source, tmp_path / "shards", shard_bytes=50_000, seed=3)
    lists = packing.files(tmp_path / "shards")
    again = shards.plan(source, tmp_path / "shards", shard_bytes=50_000, seed=3)
    assert one == again and lists == packing.files(tmp_path / "shards")
    assert pickle.loads(pickle.dumps(one)) == one
    # A quarter of what Ray puts inline into a task.
    assert max(len(pickle.dumps(entry)) for entry in one) < 25_000
    assert sum(entry.bytes for entry in one) == sum(
        os.lstat(path).st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert shards.plan(source, tmp_path / "other", shard_bytes=50_000, seed=4) != one
    # A file more changes one shard.
    (source / "groups" / "new").write_bytes(b"")
    changed = shards.plan(source, tmp_path / "shards", shard_bytes=50_000, seed=3)
    assert len([1 for a, b in zip(one, changed, strict=True) if a.list_digest != b.list_digest]) == 1


def test_a_shard_is_a_function_of_its_entry(source: Path, tmp_path: Path) -> None:
    plan = shards.plan(source, tmp_path / "shards", shard_bytes=100_000, preset="balanced")
    records = [shards.pack(entry, threads=1) for entry in plan]
    first = packing.files(tmp_path / "shards")
    # A record that matches ends the work at once: the shard is not touched.
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.erofs")}
    assert [shards.pack(entry) for entry in plan] == records
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.erofs")}
    # A shard without its record, one without its shard, one that is cut, and one of another plan are packed again:
    # the same bytes.
    os.unlink(tmp_path / "shards" / plan[0].name.replace(".erofs", ".json"))
    os.unlink(tmp_path / "shards" / plan[1].name)
    os.truncate(tmp_path / "shards" / plan[2].name, 4096)
    shutil.copy(tmp_path / "shards" / plan[0].name, tmp_path / "shards" / plan[3].name)
    assert [shards.pack(entry, threads=3) for entry in reversed(plan)] == records[::-1]
    assert packing.files(tmp_path / "shards") == first
    assert not [name for name in os.listdir(tmp_path / "shards") if name.startswith(".")]


def test_speculative_duplicates_are_harmless(source: Path, tmp_path: Path) -> None:
    plan = shards.plan(source, tmp_path / "shards", shard_bytes=100_000)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        done = pool.map(shards.pack, [entry for entry in plan for _ in range(3)], chunksize=1)
    assert all(done[number] == done[number - number % 3] for number in range(len(done)))
    assert kilnfs.open(shards.finish(plan, done[::3])).read("groups/1.jpg") == b"1 jpg"


def test_options_reach_the_shards(source: Path, tmp_path: Path) -> None:
    plan = shards.plan(source, tmp_path / "shards", compress="none", owner=(5, 6), mtime=7, hints={"*.txt": "lz4"})
    [record] = [shards.pack(entry) for entry in plan]
    with kilnfs.open(str(tmp_path / "shards" / record["name"])) as image:
        stat = image.stat("groups/1.jpg")
        assert (stat.st_uid, stat.st_gid, stat.st_mtime) == (5, 6, 7)
    with pytest.raises(TypeError, match="exclude: not an option of a plan"):
        shards.plan(source, tmp_path / "x", exclude=["a"])
    with pytest.raises(TypeError, match="order"):
        shards.plan(source, tmp_path / "x", order=["a"])
    with pytest.raises(ValueError, match="shard_bytes=0"):
        shards.plan(source, tmp_path / "x", shard_bytes=0)
    with pytest.raises(ValueError, match="by='size'"):
        shards.plan(source, tmp_path / "x", by="size")  # type: ignore[arg-type]


def test_an_empty_source_is_one_empty_shard(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with kilnfs.open(made(tmp_path / "source", tmp_path / "shards")) as image:
        assert image.listdir("/") == [] and image.namelist() == []


def test_finish_names_what_is_missing_or_differs(source: Path, tmp_path: Path) -> None:
    into = tmp_path / "shards"
    plan = shards.plan(source, into, shard_bytes=100_000)
    done = [shards.pack(entry) for entry in plan]
    third = plan[2].name

    def refused(message: str, records: list[dict[str, Any]], entries: list[shards.PlanEntry] = plan) -> None:
        with pytest.raises(ValueError, match=message):
            shards.finish(entries, records)
        assert not (into / "manifest.json").exists()

    refused(f"{third}: its record is missing", done[:2] + done[3:])
    refused(f"{third}: packed by another plan", [*done[:2], {**done[2], "entry": "0"}, *done[3:]])
    refused(f"{third}: differs: samples=1 was returned", [*done[:2], {**done[2], "samples": 1}, *done[3:]])
    refused("not a shard of this plan", [*done, {**done[0], "name": "more.erofs"}])
    refused("which are not the", done, plan[1:])
    data = (into / third).read_bytes()
    (into / third).write_bytes(data[:-4096])
    refused(f"{third}: differs: it has {len(data) - 4096} bytes", done)
    (into / third).write_bytes(bytes(len(data)))
    refused(f"{third}: differs: its UUID is 00000000", done)
    os.unlink(into / third)
    refused(f"{third}: missing", done)
    (into / third).write_bytes(data)
    assert shards.finish(plan, iter(done)) == str(into / "manifest.json")


def test_a_plan_that_was_made_anew_is_noticed(source: Path, tmp_path: Path) -> None:
    old = shards.plan(source, tmp_path / "shards")
    (source / "new").touch()
    shards.plan(source, tmp_path / "shards")
    with pytest.raises(ValueError, match="plan again"):
        shards.pack(old[0])


def overflow(manifest: dict[str, Any]) -> None:
    """More samples than a count of 63 bits, each count by itself being one."""
    for shard in manifest["shards"]:
        shard["samples"] = 1 << 62
    manifest["samples"] = len(manifest["shards"]) << 62


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="tar"), "format = 'tar': not 'kilnfs-shards'"),
        (lambda m: m.update(version=2), "version = 2: this kilnfs reads version 1"),
        (lambda m: m.pop("by"), "by = None: not text"),
        (lambda m: m.update(by="size"), "by = 'size'"),
        (lambda m: m.update(seed=-1), "seed = -1: not an integer"),
        (lambda m: m.update(seed=True), "seed = True: not an integer"),
        (lambda m: m.update(shards=[]), "shards.length = 0: not 1 to"),
        (lambda m: m.update(shards="x"), "shards = 'x'"),
        (lambda m: m["shards"].__setitem__(1, 5), "shards[1] = 5: not an object"),
        (lambda m: m["shards"][3].update(name="../x"), "shards[3].name = '../x': leads out of the manifest's dir"),
        (lambda m: m["shards"][3].update(name="a/../../x"), "shards[3].name = 'a/../../x': leads out"),
        (lambda m: m["shards"][3].update(name="/etc/x"), "shards[3].name = '/etc/x': an absolute name"),
        (lambda m: m["shards"][3].update(name="file:///etc/x"), "an absolute name"),
        (lambda m: m["shards"][3].update(name="a\0b"), "not a name"),
        (lambda m: m["shards"][3].update(name=""), "not a name"),
        (lambda m: m["shards"][0].update(uuid="12"), "shards[0].uuid = '12': not a UUID"),
        (lambda m: m["shards"][2].update(samples=1.5), "shards[2].samples = 1.5"),
        (lambda m: m["shards"][2].update(samples=10**30), "shards[2].samples = 1000000000000000000000000000000"),
        (lambda m: m["shards"][2].update(image_bytes=-5), "shards[2].image_bytes = -5"),
        (lambda m: m.update(samples=3), "samples = 3: the shards have"),
        (lambda m: m.update(directories="../../etc/passwd"), "directories = '../../etc/passwd': leads out"),
        (lambda m: overflow(m), "samples = "),
    ],
)  # fmt: skip
def test_hostile_manifests_are_refused(source: Path, tmp_path: Path, change: Any, message: str) -> None:
    manifest = Path(made(source, tmp_path / "shards"))
    fields = json.loads(manifest.read_text())
    change(fields)
    manifest.write_text(json.dumps(fields))
    with pytest.raises(shards.ManifestError) as error:
        kilnfs.open(str(manifest))
    assert message in str(error.value) and str(manifest) in str(error.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"x"'])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(shards.ManifestError, match="not (a )?JSON"):
        kilnfs.open(str(tmp_path / "manifest.json"))


def test_absolute_names_are_taken_if_asked_for(source: Path, tmp_path: Path) -> None:
    manifest = Path(made(source, tmp_path / "shards"))
    fields = json.loads(manifest.read_text())
    for shard in fields["shards"]:
        shard["name"] = str(manifest.parent / shard["name"])
    manifest.write_text(json.dumps(fields))
    with shards.open(manifest, absolute=True) as image:
        assert image.read("groups/1.jpg") == b"1 jpg"


def test_a_shard_that_is_another_image_is_noticed(source: Path, tmp_path: Path) -> None:
    manifest = Path(made(source, tmp_path / "shards"))
    names = sorted(path.name for path in manifest.parent.glob("*.erofs"))
    image = shards.open(manifest)
    path = image.sample_path(0)
    image.close()
    shutil.copy(manifest.parent / names[1], manifest.parent / names[0])
    with (
        shards.open(manifest) as image,
        pytest.raises(OSError, match=r"shards\[0\].uuid = .*: .* is another image") as error,
    ):
        image.read(path)
    assert error.value.errno == 116
    (manifest.parent / "directories.list").write_bytes(b"other\0")
    with shards.open(manifest) as image, pytest.raises(shards.ManifestError, match="directories_digest"):
        image.read(path)


def read_in_child(image: Any, connection: Any) -> None:
    connection.send((image.read("groups/1.jpg"), image.read_sample(3)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_shards_go_to_other_processes(source: Path, tmp_path: Path, method: str) -> None:
    image = shards.open(made(source, tmp_path / "shards"))
    expected = image.read("groups/1.jpg"), image.read_sample(3)
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=read_in_child, args=(image, theirs))  # type: ignore[attr-defined]
    child.start()
    assert ours.poll(60) and ours.recv() == expected
    child.join(60)
    assert child.exitcode == 0
    again = pickle.loads(pickle.dumps(image))
    assert again.read_sample(3) == expected[1] and again.uuid == image.uuid


def test_ten_million_samples_by_counts_alone() -> None:
    count, each = 233, 42_950
    record = {"uuid": "00000000-0000-0000-0000-000000000000", "image_bytes": 4 << 30, "samples": each}
    named = [{**record, "name": f"shard-{number:05}.erofs"} for number in range(count)]
    fields = {
        "format": "kilnfs-shards", "version": 1, "by": "hash", "seed": 0, "samples": count * each,
        "directories": "directories.list", "directories_digest": "", "shards": named,
    }  # fmt: skip
    image = shards.ShardedImage("m.json", Manifest(".", fields), window=8, absolute=False, options={})
    assert len(image) == 10_007_350
    for number, place in [(0, (0, 0)), (each - 1, (0, each - 1)), (each, (1, 0)), (10_007_349, (232, each - 1))]:
        assert image.locate(number) == place


def test_remote_places(source: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    expected = {name: data for name, data in packing.files(source).items() if "\udcff" not in name}
    for name, data in expected.items():
        memory.pipe_file(f"/raw/{name}", data)
    plan = shards.plan("memory://raw", "memory://shards", shard_bytes=100_000, seed=1)
    assert len(plan) > 3
    done = [shards.pack(entry, scratch=tmp_path) for entry in plan]
    first = {name: memory.cat_file(name) for name in memory.find("/shards")}
    memory.rm_file(f"/shards/{plan[0].name}")
    assert [shards.pack(entry, scratch=tmp_path) for entry in plan] == done
    assert {name: memory.cat_file(name) for name in memory.find("/shards")} == first
    assert not [name for name in first if name.endswith(".part")]
    assert os.listdir(tmp_path) == ["source"]
    manifest = shards.finish(plan, done)
    assert manifest == "memory://shards/manifest.json"
    image = kilnfs.open(manifest)
    assert {name: image.read(name) for name in expected} == expected
    # The same shards, from the directory, where metadata are those of the objects.
    local = shards.plan(str(source), str(tmp_path / "local"), shard_bytes=100_000, seed=1)
    assert sum(entry.bytes for entry in local) >= sum(entry.bytes for entry in plan)


def test_options_of_remote_places_reach_fsspec(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").store.clear()
    manifest = made(source, "memory://shards")
    asked = []
    url_to_fs = fsspec.core.url_to_fs

    def spy(url: str, **options: Any) -> Any:
        asked.append((url, options.pop("token", None)))
        return url_to_fs(url, **options)

    monkeypatch.setattr(fsspec.core, "url_to_fs", spy)
    shards.open(manifest, token="secret", cache_bytes=1 << 20).isdir("groups")
    # The manifest, the list of directories, and a shard.
    assert len(asked) > 2 and {token for _, token in asked} == {"secret"}


def test_remote_objects_are_fetched_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    names = [b"%03d" % number for number in range(150)]
    for name in names:
        memory.pipe_file(f"/raw/{name.decode()}", name)
    assert list(_fetched("memory://raw", b"".join(name + b"\0" for name in names))) == [(name, name) for name in names]
