"""Remote images: one that is replaced while it is read, servers that fail for a while, misspelt options, secrets."""

from __future__ import annotations

import errno
import pickle
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

import kilnfs  # noqa: E402
from conftest import pack  # noqa: E402
from fsspec_support import CountingFileSystem, RangeServer, in_child, noise, range_server  # noqa: E402
from kilnfs import _block_cache, _fsspec_source, _retry, _urls, shards  # noqa: E402
from kilnfs._fsspec_source import Target  # noqa: E402

FILES = 500


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data set, and the same packed again in another order: as many bytes, and each file elsewhere."""
    base = tmp_path_factory.mktemp("remote")
    (base / "tree").mkdir()
    data = noise(FILES * 6000)
    for number in range(FILES):
        (base / "tree" / f"{number:03}.jpg").write_bytes(data[number * 6000 : (number + 1) * 6000 - number])
    for seed in (1, 2):
        kilnfs.pack(base / "tree", base / f"{seed}.erofs", preset="dataset", order="shuffle", seed=seed)
    first, second = base / "1.erofs", base / "2.erofs"
    assert first.stat().st_size == second.stat().st_size and first.read_bytes() != second.read_bytes()
    return first, second


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with range_server() as running:
        yield running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses; little is kept, so that a data set of 3 MB is fetched in many requests."""
    monkeypatch.setattr(_retry.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(_fsspec_source.FsspecSource.__init__, "__defaults__", (None, _block_cache.BLOCK_LEN, 8))


def contents(images: tuple[Path, Path]) -> list[bytes]:
    with kilnfs.open(images[0]) as image:
        return [bytes(part) for part in image.read_many(image.index())]


def read_while_replaced(
    image: kilnfs.Image, expected: list[bytes], replace: Callable[[], None], after: int = 200
) -> tuple[int, int, OSError | None]:
    """Read all samples in random order, and replace the image after so many: samples read, wrong ones, the error."""
    index = image.index()
    rows = random.Random(3).sample(range(FILES), FILES)
    read = wrong = 0
    for row in rows:
        if read == after:
            replace()
        try:
            data = image.read_many(index, rows=[row])[0]
        except OSError as error:
            return read, wrong, error
        read += 1
        wrong += bytes(data) != expected[row]
    return read, wrong, None


@pytest.mark.parametrize("honours_conditions", [True, False])
def test_a_replaced_image_is_stale_at_once(
    server: RangeServer, images: tuple[Path, Path], honours_conditions: bool
) -> None:
    server.honours_conditions = honours_conditions
    expected = contents(images)
    with kilnfs.open(server.put(images[0], "/x")) as image:
        read, wrong, error = read_while_replaced(image, expected, lambda: server.replace(images[1], "/x"))
        assert error is not None and error.errno == errno.ESTALE
        assert 200 <= read < FILES and wrong == 0
        assert 'ETag "/x-1"' in str(error) and 'ETag "/x-2"' in str(error) and image.name in str(error)
        assert set(server.conditions) == {'"/x-1"'}
        # And it stays so.
        server.put(images[0], "/x")
        server.version = 1
        with pytest.raises(OSError, match="has changed since it was opened"):
            [bytes(part) for _, part in image.iter_many(image.index())]


def test_without_versions_a_replaced_image_is_found_by_a_look(
    server: RangeServer, images: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server tells neither an ETag nor a time: the superblock is compared, after 1 MiB here instead of 64."""
    monkeypatch.setattr(_fsspec_source, "CHECK_LEN", 1 << 20)
    server.tells_version = False
    expected = contents(images)
    with kilnfs.open(server.put(images[0], "/x")) as image:
        read, wrong, error = read_while_replaced(image, expected, lambda: server.replace(images[1], "/x"))
        assert error is not None and error.errno == errno.ESTALE and not server.conditions
        # Files that were delivered in between cannot be recalled, but they are no more than 1 MiB and one batch.
        assert 200 <= read < 200 + (1 << 20) // 6000 and wrong <= read - 200
        assert "some may be of the new version" in str(error)


def test_without_versions_a_replaced_image_is_found_after_a_minute(
    server: RangeServer, images: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(_fsspec_source.time, "monotonic", lambda: now[0])
    server.tells_version = False
    expected = contents(images)

    def replace() -> None:
        server.replace(images[1], "/x")
        now[0] += 61

    with kilnfs.open(server.put(images[0], "/x")) as image:
        read, wrong, error = read_while_replaced(image, expected, replace)
        assert error is not None and error.errno == errno.ESTALE and wrong == 0
        assert 200 <= read < FILES


def test_other_filesystems_are_looked_at_from_time_to_time(
    images: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fsspec_source, "CHECK_LEN", 1 << 20)
    CountingFileSystem.reset()
    fs = CountingFileSystem()
    fs.pipe("/x", images[0].read_bytes())
    with kilnfs.open("counting://x") as image:
        read, wrong, error = read_while_replaced(
            image, contents(images), lambda: fs.pipe("/x", images[1].read_bytes())
        )
    assert error is not None and error.errno == errno.ESTALE and "counting://x" in str(error)
    assert 200 <= read < 200 + (1 << 20) // 6000


def test_a_look_at_the_same_file_goes_on(
    server: RangeServer, images: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fsspec_source, "CHECK_LEN", 1 << 18)
    server.tells_version = False
    with kilnfs.open(server.put(images[0], "/x")) as image:
        assert read_while_replaced(image, contents(images), lambda: None) == (FILES, 0, None)
    assert sum(command == "HEAD" for command, _, _ in server.requests) > 5


def test_a_condition_that_is_refused_though_it_is_met(server: RangeServer, images: tuple[Path, Path]) -> None:
    """Some servers refuse every condition: they are asked without one, and their answers are compared."""
    server.refuses_conditions = True
    expected = contents(images)
    with kilnfs.open(server.put(images[0], "/x")) as image:
        assert server.conditions == ['"/x-1"']
        read, wrong, error = read_while_replaced(image, expected, lambda: server.replace(images[1], "/x"))
        assert error is not None and error.errno == errno.ESTALE and wrong == 0 and 200 <= read < FILES
        assert server.conditions == ['"/x-1"']


def test_a_pickle_of_an_image_is_of_this_version(server: RangeServer, images: tuple[Path, Path]) -> None:
    url = server.put(images[0], "/x")
    with kilnfs.open(url) as image:
        stored, samples = pickle.dumps(image), pickle.dumps(kilnfs.Samples(url))
        expected = image.read("007.jpg")
    with pickle.loads(stored) as again:
        assert again.read("007.jpg") == expected
    assert pickle.loads(samples)[7] == expected
    # One byte of the contents is another: UUID and length are the same.
    changed = bytearray(server.files["/x"])
    place = bytes(changed).index(expected[:4096])
    changed[place] ^= 1
    server.files["/x"] = bytes(changed)
    server.version = 2
    for pickled in (stored, samples):
        with pytest.raises(OSError, match="has changed since it was pickled") as caught:
            found = pickle.loads(pickled)
            found[7]  # datasets are opened when they are used
        assert caught.value.errno == errno.ESTALE
        assert 'ETag "/x-1"' in str(caught.value) and 'ETag "/x-2"' in str(caught.value)


def test_a_fork_is_of_this_version(server: RangeServer, images: tuple[Path, Path]) -> None:
    with kilnfs.open(server.put(images[0], "/x")) as image:
        assert in_child(lambda: len(image.read("007.jpg"))) == b"5993"
        server.replace(images[1], "/x")
        assert b"has changed since it was opened" in in_child(lambda: image.read("009.jpg"))


# servers that fail


def test_what_may_pass_is_waited_for(server: RangeServer, images: tuple[Path, Path]) -> None:
    expected = contents(images)
    server.failures = [503, 503, 429]
    with kilnfs.open(server.put(images[0], "/x")) as image:
        assert not server.failures
        server.failures = [500, "close", 502]
        assert image.read("007.jpg") == expected[7]
        assert not server.failures
        # Bounded: three more attempts.
        server.failures = [503] * 4
        with pytest.raises(OSError, match="503") as caught:
            image.read("400.jpg")
        assert caught.value.errno == errno.EIO and not server.failures
        assert image.read("400.jpg") == expected[400]


def test_retries_are_chosen(server: RangeServer, images: tuple[Path, Path]) -> None:
    url = server.put(images[0], "/x")
    with kilnfs.open(url, retries=0) as image:
        server.failures = [503]
        with pytest.raises(OSError, match="503"):
            image.read("400.jpg")
        # A request is not repeated after an error that does not pass.
        server.failures = [403]
        with pytest.raises(OSError, match="403"):
            image.read("400.jpg")
    with kilnfs.open(url, retries=6) as image:
        server.failures = [503] * 6
        assert len(image.read("400.jpg")) == 5600
        server.failures = [403]
        server.requests.clear()
        with pytest.raises(OSError, match="403"):
            image.read("000.jpg")
        assert len(server.requests) == 1
    with pytest.raises(ValueError, match="retries is -1"):
        kilnfs.open(url, retries=-1)


def test_pauses_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(_retry.time, "sleep", waited.append)
    found = list(_retry.pauses(10))
    assert all(0.75 * 0.5 * 2**n <= pause <= 1.25 * 0.5 * 2**n for n, pause in enumerate(found[:6]))
    assert max(found) <= 30 * 1.25

    class Busy(Exception):
        headers = {"Retry-After": "7"}

    _retry.wait(0.5, Busy())
    _retry.wait(9.0, Busy())
    Busy.headers = {"Retry-After": "86400"}
    _retry.wait(0.5, Busy())
    assert waited == [7.0, 9.0, 30.0]


def test_errors_of_opening_are_those_of_the_server(server: RangeServer, images: tuple[Path, Path]) -> None:
    """fsspec says of each that the file was not found."""
    url = server.put(images[0], "/x")
    with pytest.raises(FileNotFoundError):
        kilnfs.open(url + "-nope")
    server.shutdown()
    server.server_close()
    with pytest.raises(ConnectionRefusedError, match="Cannot connect"):
        kilnfs.open(url, retries=1)


def test_a_server_without_ranges_is_found_before_its_body_is_fetched(server: RangeServer) -> None:
    server.knows_ranges = False
    server.files["/big"] = bytes(64 << 20)
    url = f"http://127.0.0.1:{server.server_port}/big"
    with pytest.raises(OSError, match=r"67108864 bytes, not 131072; a server that ignores ranges.*simplecache::"):
        kilnfs.open(url)
    # Some of it is in buffers of the system.
    assert server.sent < 16 << 20


def test_an_answer_that_does_not_end_is_not_fetched(server: RangeServer, images: tuple[Path, Path]) -> None:
    url = server.put(images[0], "/x")
    server.endless = True
    with pytest.raises(OSError, match="the server returned more than 131072 bytes"):
        kilnfs.open(url)
    assert server.sent < 32 << 20


def test_a_small_image_needs_no_ranges(server: RangeServer, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("text")
    pack(tmp_path / "tree", tmp_path / "small.erofs")
    server.knows_ranges = False
    with kilnfs.open(server.put(tmp_path / "small.erofs", "/x")) as image:
        assert image.read("a") == b"text"


# options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cachebytes": 1}, r"'cachebytes' is not an option of .* fsspec's 'http': did you mean 'cache_bytes'\?"),
        ({"header": {}}, r"'header' .* did you mean 'headers'\?"),
        ({"quux": 1}, r"'quux' is not an option"),
    ],
)
def test_a_misspelt_option_is_named(server: RangeServer, images: tuple[Path, Path], options: Any, message: str) -> None:
    url = server.put(images[0], "/x")
    with pytest.raises(TypeError, match=message):
        kilnfs.open(url, **options)
    with kilnfs.open(url, headers={"X-A": "b"}, block_size=1 << 20, timeout=None) as image:
        assert image.read("007.jpg")


def test_a_misspelt_option_of_another_store_is_named(images: tuple[Path, Path], tmp_path: Path) -> None:
    CountingFileSystem.reset()
    CountingFileSystem().pipe("/x", images[0].read_bytes())
    with pytest.raises(TypeError, match=r"'retrys' .* did you mean 'retries'"):
        kilnfs.open("counting://x", retrys=1)
    with kilnfs.open("simplecache::counting://x", simplecache={"cache_storage": str(tmp_path)}) as image:
        assert image.read("007.jpg")
    with pytest.raises(TypeError, match="'cache_store' .* did you mean 'cache_storage'"):
        kilnfs.open("simplecache::counting://x", simplecache={"cache_store": str(tmp_path)})


# secrets


def texts(error: BaseException) -> str:
    """All that a user sees of an error."""
    fields = [str(error), repr(error), *(str(getattr(error, name, "")) for name in ("filename", "filename2"))]
    return "\n".join([*fields, *traceback.format_exception(error)])


def test_no_secret_of_a_url_is_shown(server: RangeServer, images: tuple[Path, Path]) -> None:
    server.put(images[0], "/x?X-Amz-Signature=signature123&file=x")
    good = f"http://user:password1@127.0.0.1:{server.server_port}/x?X-Amz-Signature=signature123&file=x"
    shown = f"http://***@127.0.0.1:{server.server_port}/x?X-Amz-Signature=***&file=***"
    secrets = ("password1", "signature123", "user:")
    with kilnfs.open(good) as image:
        assert image.name == shown
        told = [repr(image), repr(image / "a"), repr(image.open("007.jpg", buffering=0)), repr(kilnfs.Samples(good))]
        assert pickle.loads(pickle.dumps(image)).read("007.jpg") == image.read("007.jpg")
        for work in (
            lambda: image.read("nope"),
            lambda: kilnfs.open(good.replace("/x?", "/y?")),
            lambda: kilnfs.open(good, quux=1),
            lambda: kilnfs.open(good.replace("/x?", "/x/manifest.json?") + ".json"),
            lambda: shards.open(good.replace("/x?", "/nope?")),
        ):
            with pytest.raises((OSError, TypeError, ValueError)) as caught:
                work()
            told.append(texts(caught.value))
        server.failures = [403]
        with pytest.raises(OSError) as forbidden:
            image.read("400.jpg")
        told.append(texts(forbidden.value))
    for text in told:
        assert not [secret for secret in secrets if secret in text], text


def test_urls_that_look_alike_are_different_images(
    server: RangeServer, images: tuple[Path, Path], tmp_path: Path
) -> None:
    """Names without secrets are no keys."""
    fsspec = pytest.importorskip("fsspec")
    for number, image in enumerate(images):
        server.put(image, f"/x?token=secret-{number}")
    url = f"http://127.0.0.1:{server.server_port}/x?token=secret-"
    first, second = (fsspec.filesystem("erofs", fo=f"{url}{number}") for number in (0, 1))
    assert first.image.name == second.image.name and first.image is not second.image
    assert first.image.uuid != second.image.uuid
    assert first.ukey("007.jpg") != second.ukey("007.jpg")
    assert (first.image / "007.jpg") != (second.image / "007.jpg")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@host/x?a=b@c", "https://***@host/x?a=***"),
        ("https://token@host/x", "https://***@host/x"),
        ("s3://bucket/x?versionId=3", "s3://bucket/x?versionId=3"),
        ("zip://a.erofs::https://u:p@ss@host/x.zip", "zip://a.erofs::https://***@host/x.zip"),
        ("https://host/x?sig=abc::d&t", "https://host/x?sig=***&***"),
        ("https://host/x?sig=a::https://u:p@h/y?sig=b", "https://host/x?sig=***::https://***@h/y?sig=***"),
        ("http://u:p@[::1]:80/x?k=v", "http://***@[::1]:80/x?k=***"),
        ("memory://a@b", "memory://***@b"),
        ("/data/a@b?c=d", "/data/a@b?c=d"),
    ],
)
def test_how_urls_are_shown(url: str, shown: str) -> None:
    assert _urls.redact(url) == shown


def test_targets_are_shown_without_secrets() -> None:
    assert Target("s3", "bucket/x", {}).name == "s3://bucket/x"
    assert Target(None, "https://h/x?sig=abcdefgh", {}).redaction.text("got abcdefgh") == "got ***"
