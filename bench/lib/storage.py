"""Classes of storage as models: latency, bandwidth, queue depth, seek. A file is served as such a disk would serve it.

The arithmetic is that of the example `slow_file` of `kiln-mount` (`examples/slow_file/disk.rs`): a request waits for
one of `depth` places, takes `latency`, more by `seek` if it does not begin where the one before ended, and all together
carry at most `bandwidth` bytes a second. So one reader gets 1 ÷ (latency + length ÷ bandwidth) requests a second, and
many depth ÷ latency. The way through FUSE comes on top, some 30 to 70 µs a request (on two busy cores, at depth one).
Sixteen readers got 25,000 requests a second together: `sata` and `nvme` are not reached at their full depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib.machine import need_root
from lib.mounts import serving
from lib.programs import need


@dataclass(frozen=True)
class Storage:
    """A class of storage. `sources` has the origin of each number."""

    name: str
    title: str
    latency_us: int
    bandwidth: int  # bytes a second
    depth: int
    seek_us: int
    sources: Mapping[str, str]

    @property
    def options(self) -> list[str]:
        """Options of `slow_file`."""
        latency, seek = ["--latency-us", str(self.latency_us)], ["--seek-us", str(self.seek_us)]
        return [*latency, "--bandwidth", str(self.bandwidth), "--depth", str(self.depth), *seek]


NO_SEEK = "none: flash and networks do not seek"
ALL = (
    Storage(
        "emmc",
        "eMMC 5.1",
        latency_us=150,
        bandwidth=260_000_000,
        depth=2,
        seek_us=0,
        sources={
            "latency_us": "Samsung on its eMMC 5.0 of 128 GB, 2015-03: 6,000 random reads a second (no queue), "
            "less the time to carry 4 KiB; https://sammyhub.com/2015/03/19/",
            "bandwidth": "the same: 260 MB/s",
            "depth": "our assumption: two at once give the more than 10,000 reads a second that Samsung gave for "
            "eMMC 5.1, whose queue takes 32",
            "seek_us": NO_SEEK,
        },
    ),
    Storage(
        "ufs",
        "UFS 2.1",
        latency_us=120,
        bandwidth=850_000_000,
        depth=5,
        seek_us=0,
        sources={
            "latency_us": "our assumption: between eMMC and the SATA disk, which share its kind of flash",
            "bandwidth": "Samsung on its UFS of 256 GB, 2016-02: 850 MB/s over two lanes; "
            "https://www.tomshardware.com/uk/news/samsung-256gb-ufs-2.0-announcement,31284.html",
            "depth": "Samsung on its UFS 2.1 of 512 GB, 2017-12: 42,000 random reads a second, so five at once",
            "seek_us": NO_SEEK,
        },
    ),
    Storage(
        "sata",
        "SATA SSD",
        latency_us=92,
        bandwidth=540_000_000,
        depth=9,
        seek_us=0,
        sources={
            "latency_us": "data of Samsung's 850 EVO of 1 TB: 10,000 random reads a second at depth 1, less the time "
            "to carry 4 KiB",
            "bandwidth": "the same: 540 MB/s",
            "depth": "the same: 98,000 random reads a second at depth 32, so nine at once",
            "seek_us": NO_SEEK,
        },
    ),
    Storage(
        "nvme",
        "NVMe SSD",
        latency_us=51,
        bandwidth=3_500_000_000,
        depth=31,
        seek_us=0,
        sources={
            "latency_us": "data of Samsung's 970 EVO Plus of 1 TB: 19,000 random reads a second at depth 1, less the "
            "time to carry 4 KiB; https://www.digit.in/reviews/general/samsung-970-evo-plus-nvme-m-2-ssd-250-gb-"
            "review-177943.html",
            "bandwidth": "the same: 3,500 MB/s",
            "depth": "the same: 600,000 random reads a second at depth 32, so 31 at once",
            "seek_us": NO_SEEK,
        },
    ),
    Storage(
        "nfs",
        "NFS over 1 GbE",
        latency_us=250,
        bandwidth=117_700_000,
        depth=8,
        seek_us=0,
        sources={
            "latency_us": "our assumption: a round trip of 200 µs, 50 µs of a server that has the file in memory; "
            "Radkov and others, FAST 2004: below 1 ms",
            "bandwidth": "1 Gbit/s, less the headers of Ethernet, IP and TCP: 1,448 of 1,538 bytes a packet",
            "depth": "threads of Linux's server by default for most of its life: 8",
            "seek_us": NO_SEEK,
        },
    ),
    Storage(
        "cloud",
        "cloud disk",
        latency_us=240,
        bandwidth=390 << 20,
        depth=2,
        seek_us=0,
        sources={
            "latency_us": "the published table C (docs/comparison.md): random reads of 4 KiB took 0.244 to 0.276 ms "
            "at two in flight, less the time to carry them",
            "bandwidth": "the same table: reads end at about 390 MiB/s",
            "depth": "the same table has two in flight, and no more",
            "seek_us": NO_SEEK,
        },
    ),
    Storage(
        "spinning",
        "disk of 7,200 rpm",
        latency_us=100,
        bandwidth=210_000_000,
        depth=1,
        seek_us=6600,
        sources={
            "latency_us": "our assumption: what the controller takes for a request that goes on",
            "bandwidth": "data of Seagate's Barracuda ST1000DM010: at most 210 MB/s, at the rim",
            "depth": "one arm",
            "seek_us": "half a turn, 4.16 ms, and our assumption for a seek within an image, 2.4 ms of the 7.4 ms "
            "that a Western Digital HC310 takes on average over all of itself: 150 random reads a second; the "
            "published table D gives more than 145",
        },
    ),
    Storage(
        "object",
        "slow object store",
        latency_us=150_000,
        bandwidth=1_250_000_000,
        depth=15,
        seek_us=0,
        sources={
            "latency_us": "Amazon's guide to the performance of S3: 100 to 200 ms to the first byte; "
            "https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html",
            "bandwidth": "our assumption: the client's network of 10 Gbit/s",
            "depth": "the same guide: a request for each 85 to 90 MB/s of the client's network, so 15",
            "seek_us": NO_SEEK,
        },
    ),
)
BY_NAME = {model.name: model for model in ALL}


@contextmanager
def storage(model: Storage, image: Path, place: Path) -> Iterator[Path]:
    """Serves a file as the storage would, in a directory that is made, and yields the path of the slow file. The
    kernel caches and reads ahead: drop its caches first. Beside the file, `counts` has requests and bytes so far."""
    need_root("mounting")
    place.mkdir(parents=True, exist_ok=True)
    with serving([need("slow_file"), "--cached", *model.options, str(image), str(place)], place):
        yield place / image.name
    place.rmdir()


def counted(slow: Path) -> tuple[int, int]:
    """Requests and bytes that a slow file has served so far."""
    # The file may grow while it is read: what then comes behind its line is a part of another one.
    requests, size = (slow.parent / "counts").read_text().splitlines()[0].split()
    return int(requests), int(size)


@contextmanager
def slow(image: Path, place: Path, delay_us: int) -> Iterator[Path]:
    """A file whose reads take longer, and are counted; the system caches it as it does a disk."""
    place.mkdir(exist_ok=True)
    with serving([need("slow_file"), "--cached", str(image), str(place), str(delay_us)], place):
        yield place / image.name
    place.rmdir()


def since(source: Path, before: tuple[int, int]) -> dict[str, float]:
    """Returns what a slow file has served since."""
    after = counted(source)
    return {"requests": after[0] - before[0], "fetched_bytes": after[1] - before[1]}
