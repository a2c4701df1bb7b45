"""Check of the options of a filesystem of fsspec, which would ignore unknown ones or fail late."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

_OF_OPEN: Final = (
    *("offset", "devices", "cache_bytes", "verify_checksum", "mmap", "retries", "root_hash", "hash_tree"),
)
_OF_FSSPEC: Final = frozenset(
    (
        *("asynchronous", "batch_size", "loop", "skip_instance_cache", "use_listings_cache", "listings_expiry_time"),
        *("max_paths", "use_instance_cache", "target_protocol", "target_options", "fo", "fs", "protocol"),
    )
)
"""Options of fsspec itself, which every filesystem accepts."""

_NO_OPTIONS: Final = frozenset(("self", "args", "kwargs", "storage_options", "method", "str_or_url"))


def refuse_unknown(fs: Any, name: str) -> None:
    """Raises TypeError that names the first misspelt option of this filesystem, or of one below it.

    The constructor of most filesystems accepts any option: only an option that is similar to a
    known one counts as misspelt. Options of a web server become arguments of aiohttp's requests, so
    all of them are known. """
    while hasattr(fs, "storage_options"):
        known, are_all = _known(fs)
        for option in fs.storage_options:
            if option in known or option in _OF_FSSPEC:
                continue
            near = get_close_matches(option, (*known, *_OF_OPEN), 1, 0.75)
            if are_all or near:
                hint = f": did you mean {near[0]!r}?" if near else ""
                protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
                raise TypeError(f"{name}: {option!r} is not an option of kilnfs.open or of fsspec's {protocol!r}{hint}")
        # The filesystem that this one reads from has options, too.
        fs = getattr(fs, "fs", None)


def _known(fs: Any) -> tuple[set[str], bool]:
    """Returns the known options of a filesystem, and true if there are no others."""
    known: set[str] = set()
    for base in type(fs).__mro__:
        made_by = vars(base).get("__init__")
        if made_by is not None and base is not object:
            known.update(inspect.signature(made_by).parameters)
    if f"{type(fs).__module__}.{type(fs).__name__}" != "fsspec.implementations.http.HTTPFileSystem":
        return known - _NO_OPTIONS, False
    known.update(inspect.signature(import_module("aiohttp").ClientSession._request).parameters)
    return known - _NO_OPTIONS, True
