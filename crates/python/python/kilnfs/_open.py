"""`kilnfs.open`, which opens images and manifests of shards."""

from __future__ import annotations

import os

from ._image import Image
from ._retry import RETRIES

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, TypeGuard, overload

    from ._image import ImageSource
    from ._root_hash import RootHash
    from .shards import ShardedImage
else:

    def overload(function):
        return function


@overload
def open(
    image: Literal["manifest.json", b"manifest.json"],
    *,
    window: int = ...,
    absolute: bool = ...,
    cache_bytes: int = ...,
    verify_checksum: bool = ...,
    mmap: bool = ...,
    verify: bool = ...,
    **storage_options: Any,
) -> ShardedImage: ...
@overload
def open(
    image: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    window: int,
    absolute: bool = ...,
    cache_bytes: int = ...,
    verify_checksum: bool = ...,
    mmap: bool = ...,
    verify: bool = ...,
    **storage_options: Any,
) -> ShardedImage: ...
@overload
def open(
    image: ImageSource,
    *,
    offset: int = ...,
    devices: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]] = ...,
    objects: str | bytes | os.PathLike[Any] | Sequence[str | bytes | os.PathLike[Any]] = ...,
    cache_bytes: int = ...,
    verify_checksum: bool = ...,
    mmap: bool = ...,
    verify: bool = ...,
    root_hash: RootHash | None = ...,
    hash_tree: ImageSource | Sequence[ImageSource] | None = ...,
    **storage_options: Any,
) -> Image: ...
def open(
    image: ImageSource,
    *,
    offset: int = 0,
    devices: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]] = (),
    objects: str | bytes | os.PathLike[Any] | Sequence[str | bytes | os.PathLike[Any]] = (),
    cache_bytes: int = 6 << 20,
    verify_checksum: bool = True,
    mmap: bool = False,
    retries: int = RETRIES,
    verify: bool = False,
    root_hash: RootHash | None = None,
    hash_tree: ImageSource | Sequence[ImageSource] | None = None,
    **storage_options: Any,
) -> Image | ShardedImage:
    """Opens an image, or the manifest of a dataset that is divided into shards.

    `image` is the path of a file, a URL that fsspec supports (`https://…`, `s3://…`;
    `storage_options` are passed to it), the path or URL of a manifest of shards (`….json`), a
    binary file object, or the image itself in memory. `bytes` that contain a NUL are an image,
    others a path.

    `offset` is the offset of the image in a larger file; `devices` are the paths of extra devices,
    in the order of the device table. `objects` is the directory with the objects of a composefs
    image, or several: files are then read from there, and compared with their fs-verity digests
    before; names and attributes are those that `mount.composefs` shows. `cache_bytes` limits the decoded data in memory, per process.
    `mmap=True` maps the file: faster, but if the file is truncated or its disk fails, the process
    is killed by SIGBUS instead of getting an OSError.

    `retries` is the number of further attempts after an error of a URL that may be temporary: a
    lost or refused connection, a timeout, or the HTTP status 408, 425, 429, 500, 502, 503 or 504.
    Pauses are 0.5, 1, 2, … s, or as long as the server asks for, at most 30 s.

    A remote image must not change while it is open. A replaced one raises `OSError` (ESTALE): at
    once if the store accepts a condition with each request, or names the version in each answer
    (web servers with ETags or times of modification, S3, Google Cloud Storage); else after 64 MiB
    or 60 s of reading. Data that was read in between may be of either version.

    `verify=True` compares the contents of each file that is read whole with their digest, and
    raises CorruptImageError if they differ. Files without a digest and parts of files are not
    compared. `kilnfs.pack(content_digests=True)` stores digests, and `check().contents` tells how
    much has them. Costs a SHA-256 of the data, and no second read.

    `root_hash` is the root hash of the image's dm-verity hash tree: 32 or 64 bytes, hexadecimal
    digits as `str`, or the path of a file with them; for an image with extra devices a list, the
    image first. All bytes are then verified when they are read, the superblock included. A wrong
    block raises OSError (EIO) that names its byte and both digests; nothing behind the covered
    blocks can be read. `hash_tree` is the path or URL of the tree, or a list of these; without it
    the tree is searched behind the image, then in files beside it. Costs a SHA-256 of the stored
    bytes that are read, and 0.8 % more bytes. `mmap=True` then copies. See docs/verity.md.

    For type checkers, "manifest.json" and calls with `window=` return a
    `kilnfs.shards.ShardedImage`; for a manifest of another name, `kilnfs.shards.open` has that
    type.

    >>> image = kilnfs.open("train.erofs")
    >>> image.read("dog/1.txt")
    b'woof\\n'
    >>> image.close()
    """
    options: dict[str, Any] = {
        "offset": offset,
        "devices": devices,
        "cache_bytes": cache_bytes,
        "verify_checksum": verify_checksum,
        "mmap": mmap,
        "retries": retries,
        "verify": verify,
        "root_hash": root_hash,
        "hash_tree": hash_tree,
    }
    if objects:
        options["objects"] = objects
    if _is_manifest(image):
        from .shards import open as open_shards

        return open_shards(image, **options, **storage_options)
    return Image(image, **options, **storage_options)



def _is_manifest(image: ImageSource) -> TypeGuard[str | bytes | os.PathLike[str] | os.PathLike[bytes]]:
    """Returns true for the path or URL of a manifest of shards."""
    path = os.fspath(image) if isinstance(image, os.PathLike) else image
    if isinstance(path, str):
        return path.endswith(".json")
    return isinstance(path, bytes) and path.endswith(b".json") and b"\0" not in path
