"""What data sets of 10^6 to 10^9 files cost in shards: the arithmetic behind the tables of docs/python-packing.md."""

from __future__ import annotations

import json

FILE_BYTES = 100_000
SHARD_BYTES = 4 << 30
INODE_AND_NAME = 32 + 12 + 20
"""Bytes of metadata a file: inode, directory entry, name. Stored data in one run needs no more."""
INDEX_ROW = 16
OPEN_SHARDS = 8
GETS_PER_DOLLAR = 1e6 / 0.40
PUTS_PER_DOLLAR = 1e6 / 5.0
GETS_PER_SECOND = 5500
"""Of one prefix of a bucket."""
NODES, NODE_BYTES_PER_SECOND = 125, 1.25e9
ZSTD_BYTES_PER_CPU_SECOND = 230e6
SIZES = (10**6, 10**8, 10**9)


def manifest_bytes_per_shard() -> int:
    """As `finish` writes a record."""
    uuid = "00000000-0000-0000-0000-000000000000"
    record = {"name": "shard-00000-of-00000.erofs", "uuid": uuid, "files": 42950, "samples": 42950}
    record |= {"bytes": SHARD_BYTES, "image_bytes": SHARD_BYTES}
    return len(json.dumps({"shards": [record] * 1000}, indent=1)) // 1000


def tables() -> list[str]:
    """The rows of both tables, in the order of the document."""
    rows = []

    def row(title: str, *cells: str) -> None:
        rows.append(f"| {title} | {' | '.join(cells)} |")

    def of_each(title: str, cell: object) -> None:
        assert callable(cell)
        row(title, *(cell(count) for count in SIZES))

    shards = {count: max(1, round(count * FILE_BYTES / SHARD_BYTES)) for count in SIZES}
    of_each("contents", lambda count: size(count * FILE_BYTES))
    of_each("shards of 4 GiB", lambda count: f"{shards[count]:,}")
    of_each("`manifest.json`", lambda count: size(shards[count] * manifest_bytes_per_shard()))
    of_each("metadata of all shards (64 B a file)", lambda count: size(count * INODE_AND_NAME))
    of_each("index of all samples (16 B each)", lambda count: size(count * INDEX_ROW))
    per_shard = SHARD_BYTES // FILE_BYTES
    of_each("indexes of 8 open shards", lambda count: size(min(count, OPEN_SHARDS * per_shard) * INDEX_ROW))
    of_each("epoch, a GET a file", lambda count: gets(count))
    of_each("… at the rate of one prefix", lambda count: duration(count / GETS_PER_SECOND))
    for block in (4 << 20, 16 << 20):
        of_each(f"epoch, blocks of {block >> 20} MiB", lambda count, block=block: gets(count * FILE_BYTES / block))
    of_each("opening each shard (2 GETs)", lambda count: f"{2 * shards[count]:,}")
    wire = NODES * NODE_BYTES_PER_SECOND
    of_each("epoch at the nodes' wire speed", lambda count: duration(count * FILE_BYTES / wire))
    of_each("packing: GETs of the source", lambda count: gets(count))
    of_each("packing: PUTs of 64 MiB", lambda count: puts(count * FILE_BYTES / (64 << 20)))
    of_each("packing: zstd 3", lambda count: f"{duration(count * FILE_BYTES / ZSTD_BYTES_PER_CPU_SECOND)} of CPU")
    return rows


def size(count: float) -> str:
    """Two significant digits, decimal units."""
    units = ["B", "KB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{two(count)} {units[0]}"


def gets(count: float) -> str:
    return f"{number(count)}, ${two(count / GETS_PER_DOLLAR)}"


def puts(count: float) -> str:
    return f"{number(count)}, ${two(count / PUTS_PER_DOLLAR)}"


def number(count: float) -> str:
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= factor:
            return two(count / factor) + unit
    return two(count)


def duration(seconds: float) -> str:
    for factor, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * factor:
            return f"{two(seconds / factor)} {unit}"
    return f"{two(seconds)} s"


def two(count: float) -> str:
    """Two significant digits, of large numbers all before the point."""
    text = f"{count:.2g}"
    return f"{float(text):,.0f}" if "e" in text else text
