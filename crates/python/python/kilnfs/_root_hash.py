"""Root hashes of images that are verified, in the forms in which users have them."""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

    OneRootHash = str | bytes | os.PathLike[str] | os.PathLike[bytes]
    RootHash = OneRootHash | Sequence[OneRootHash]

_LENGTHS = (32, 64)
"""Bytes of SHA-256 and of SHA-512."""

_FILE_MAX_LEN = 4096


def root_hashes(given: RootHash | None) -> list[bytes]:
    """Returns the digests of an image and of its devices: none for None.

    >>> root_hashes("00" * 32) == root_hashes([bytes(32)]) == [bytes(32)]
    True
    """
    if given is None:
        return []
    if isinstance(given, (str, bytes, os.PathLike)):
        return [_digest(given)]
    return [_digest(one) for one in given]


def _digest(given: OneRootHash) -> bytes:
    if isinstance(given, bytes):
        if len(given) not in _LENGTHS:
            raise ValueError(f"root_hash has {len(given)} bytes: use 32 or 64, or hexadecimal digits as str")
        return given
    if isinstance(given, str) and (digest := _of_digits(given)) is not None:
        return digest
    with open(given, "rb") as file:
        text = file.read(_FILE_MAX_LEN).decode("ascii", "replace").strip()
    if (digest := _of_digits(text)) is None:
        raise ValueError(f"{os.fsdecode(given)!r} has no root hash: 64 or 128 hexadecimal digits")
    return digest


def _of_digits(text: str) -> bytes | None:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return None
    # `fromhex` skips spaces.
    return digest if len(digest) in _LENGTHS and len(text) == 2 * len(digest) else None
