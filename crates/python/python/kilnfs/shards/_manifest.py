"""Manifest of a set of shards: `manifest.json`, whose contents are not trusted."""

from __future__ import annotations

import json
import posixpath
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .._urls import redact
from ._pack import RECORD_MAX_LEN, _record_name, uuid_of
from ._plan import DIRECTORIES, PLAN_DIR, _digest
from ._store import is_remote, store_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._plan import PlanEntry
    from ._store import Store

FORMAT = "kilnfs-shards"
VERSION = 1
NAME = "manifest.json"
MANIFEST_MAX_LEN = 256 << 20
DIRECTORIES_MAX_LEN = 1 << 30
SHARDS_MAX = 1 << 22
_COUNT_MAX = (1 << 63) - 1


class ManifestError(ValueError):
    """Error of an invalid manifest. The message names the file, the record, the field and the
    value."""


class Manifest:
    """Names and counts of all shards, in columns: some 200 bytes per shard."""

    __slots__ = (
        "by",
        "directories",
        "directories_digest",
        "first",
        "names",
        "sample_ends",
        "seed",
        "sizes",
        "url",
        "uuids",
    )

    def __init__(self, url: str, fields: dict[str, Any], *, absolute: bool = False) -> None:
        self.url = url
        """Path or URL of the manifest's directory."""
        check = _Checker(redact(f"{url}/{NAME}"))
        if check.text(fields, "", "format") != FORMAT:
            raise check.error("", "format", fields["format"], f"not {FORMAT!r}")
        if check.count(fields, "", "version") != VERSION:
            raise check.error("", "version", fields["version"], f"this kilnfs reads version {VERSION}")
        self.by = check.text(fields, "", "by")
        """Rule by which files are divided: "hash" or "path"."""
        if self.by not in ("hash", "path"):
            raise check.error("", "by", self.by, "not 'hash' or 'path'")
        self.seed = check.count(fields, "", "seed", maximum=(1 << 64) - 1)
        """Seed of the plan."""
        self.directories = _place(check.text(fields, "", "directories"), url, absolute, check, "", "directories")
        """Path or URL of the list of directories."""
        self.directories_digest = check.text(fields, "", "directories_digest")
        """BLAKE2b digest of that list, 32 bytes in hexadecimal."""
        shards = fields.get("shards")
        if not isinstance(shards, list):
            raise check.error("", "shards", shards, "not a list")
        if not 0 < len(shards) <= SHARDS_MAX:
            raise check.error("shards", "length", len(shards), f"not 1 to {SHARDS_MAX} records")
        self.names: list[str] = []
        """Path or URL of each shard."""
        self.uuids: list[str] = []
        """UUID of each shard, in hexadecimal groups."""
        self.first: list[bytes] = []
        """First path of each shard if `by` is "path"."""
        self.sizes = array("Q")
        """Length of each shard in bytes."""
        samples = array("Q")
        for number, shard in enumerate(shards):
            record = f"shards[{number}]"
            if not isinstance(shard, dict):
                raise check.error(record, "", shard, "not an object")
            self.names.append(_place(check.text(shard, record, "name"), url, absolute, check, record, "name"))
            self.uuids.append(check.uuid(shard, record, "uuid"))
            self.sizes.append(check.count(shard, record, "image_bytes"))
            samples.append(check.count(shard, record, "samples"))
            if self.by == "path":
                self.first.append(check.text(shard, record, "first").encode("utf-8", "surrogateescape"))
        total = sum(samples)
        if check.count(fields, "", "samples") != total:
            raise check.error("", "samples", fields["samples"], f"the shards have {total}")
        if total > _COUNT_MAX:
            raise check.error("", "samples", total, f"more than {_COUNT_MAX}")
        self.sample_ends = array("Q", accumulate(samples))
        """Number of samples of each shard and all shards before it."""

    @property
    def samples(self) -> int:
        """Number of regular files of all shards."""
        return self.sample_ends[-1]

    def __len__(self) -> int:
        return len(self.names)


def finish(plan: Sequence[PlanEntry], done: Iterable[dict[str, Any]]) -> str:
    """Writes `manifest.json` beside the shards, from the plan and the results of `pack` for all
    entries. Returns its path or URL.

    Raises ValueError that names the shard if one is missing, was packed by another plan, or does
    not match its record. """
    if not plan:
        raise ValueError("plan: no shards")
    first = plan[0]
    store = store_of(first.into)
    numbers = [entry.number for entry in plan]
    if numbers != list(range(first.count)) or any(entry.into != first.into for entry in plan):
        raise ValueError(f"plan: {len(plan)} entries, which are not the {first.count} of one plan in their order")
    records = {record["name"]: record for record in done}
    shards = []
    for entry in plan:
        record = records.pop(entry.name, None)
        if record is None:
            raise ValueError(f"{entry.into}/{entry.name}: its record is missing")
        _check_shard(store, entry, record)
        shard = {key: record[key] for key in ("name", "uuid", "files", "samples", "bytes", "image_bytes")}
        shards.append({**shard, "first": entry.first} if entry.by == "path" else shard)
    if records:
        raise ValueError(f"{next(iter(records))}: not a shard of this plan")
    directories = store.read(f"{PLAN_DIR}/{DIRECTORIES}", DIRECTORIES_MAX_LEN)
    if _digest(directories) != first.directories_digest:
        raise ValueError(f"{first.into}/{PLAN_DIR}/{DIRECTORIES}: not the list of this plan")
    store.write(DIRECTORIES, directories)
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "by": first.by,
        "seed": first.seed,
        "samples": sum(shard["samples"] for shard in shards),
        "files": sum(shard["files"] for shard in shards),
        "bytes": sum(shard["bytes"] for shard in shards),
        "directories": DIRECTORIES,
        "directories_digest": first.directories_digest,
        "shards": shards,
    }
    # Raises the error of a reader before an invalid manifest is written.
    Manifest(store.url, fields)
    store.write(NAME, json.dumps(fields, indent=1).encode())
    return f"{store.url}/{NAME}"


def read_manifest(place: str, *, absolute: bool = False, storage_options: dict[str, Any] | None = None) -> Manifest:
    """Reads the manifest at a path or URL. Refuses names that lead out of its directory, and
    absolute ones unless `absolute` is true. """
    url, _, name = place.rpartition("/")
    store = store_of(url if url else ("/" if place.startswith("/") else "."), storage_options)
    try:
        fields = json.loads(store.read(name, MANIFEST_MAX_LEN))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ManifestError(f"{redact(place)}: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ManifestError(f"{redact(place)}: not a JSON object")
    return Manifest(store.url, fields, absolute=absolute)


def _check_shard(store: Store, entry: PlanEntry, record: dict[str, Any]) -> None:
    """Refuse a shard that is not what both its records say."""
    place = f"{entry.into}/{entry.name}"
    if record.get("entry") != entry.digest:
        raise ValueError(
            f"{place}: packed by another plan: entry={record.get('entry')!r}, and this plan has {entry.digest!r}"
        )
    try:
        stored = json.loads(store.read(_record_name(entry), RECORD_MAX_LEN))
    except FileNotFoundError:
        raise ValueError(f"{place}: missing: it has no record {_record_name(entry)}") from None
    for field in ("entry", "uuid", "files", "samples", "bytes", "image_bytes"):
        if stored.get(field) != record.get(field):
            raise ValueError(
                f"{place}: differs: {field}={record.get(field)!r} was returned, {stored.get(field)!r} is recorded"
            )
    size = store.size(entry.name)
    if size is None:
        raise ValueError(f"{place}: missing")
    if size != record["image_bytes"]:
        raise ValueError(
            f"{place}: differs: it has {size} bytes, and its record says image_bytes={record['image_bytes']}"
        )
    uuid = uuid_of(store, entry.name)
    if uuid != record["uuid"]:
        raise ValueError(f"{place}: differs: its UUID is {uuid}, and its record says {record['uuid']}")


def _place(name: str, url: str, absolute: bool, check: _Checker, record: str, field: str) -> str:
    """Returns a name in a manifest as a path or URL."""
    if "\0" in name or not name:
        raise check.error(record, field, name, "not a name")
    if name.startswith("/") or "://" in name:
        if absolute:
            return name
        raise check.error(
            record, field, name, "an absolute name: open a trusted manifest with absolute=True"
        )
    if ".." in name.split("/"):
        raise check.error(record, field, name, "leads out of the manifest's directory")
    return f"{url}/{name}" if is_remote(url) else posixpath.join(url, name)


class _Checker:
    """Check of the types of fields of JSON objects."""

    def __init__(self, place: str) -> None:
        self.place = place

    def error(self, record: str, field: str, value: object, reason: str) -> ManifestError:
        where = ".".join(part for part in (record, field) if part)
        shown = repr(value)
        return ManifestError(f"{self.place}: {where} = {shown if len(shown) <= 120 else shown[:117] + '...'}: {reason}")

    def text(self, fields: dict[str, Any], record: str, field: str) -> str:
        value = fields.get(field)
        if not isinstance(value, str):
            raise self.error(record, field, value, "not text")
        return value

    def uuid(self, fields: dict[str, Any], record: str, field: str) -> str:
        value = self.text(fields, record, field)
        parts = value.split("-")
        if [len(part) for part in parts] != [8, 4, 4, 4, 12] or not set("".join(parts)) <= set("0123456789abcdef"):
            raise self.error(record, field, value, "not a UUID")
        return value

    def count(self, fields: dict[str, Any], record: str, field: str, maximum: int = _COUNT_MAX) -> int:
        value = fields.get(field)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
            raise self.error(record, field, value, f"not an integer from 0 to {maximum}")
        return value
