"""Packing: `kilnfs.pack` and `kilnfs.estimate`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _native
from ._pack_options import PackOptions, tree_path
from ._pack_result import Estimate, PackResult, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from ._pack_options import HostPath, Preset, TreePath

    Sources: TypeAlias = HostPath | Sequence[HostPath | tuple[HostPath, TreePath]]
    Progress: TypeAlias = Callable[[int, int], object]

PRESETS: tuple[Preset, ...] = ("plain", "fast", "balanced", "archive", "dataset")


def pack(
    source: Sources,
    image: HostPath,
    options: PackOptions | None = None,
    *,
    progress: Progress | None = None,
    **keywords: Any,
) -> PackResult:
    """Packs a source into an image, by default with preset "dataset" and shuffled data (`python -m
    kilnfs pack`: preset "balanced", data by path).

    `image` appears when it is complete, or not at all. The same input and options give the same
    bytes, with any number of threads and on any machine.

    * `source`: path of a directory, an archive (tar, zip, cpio; compressed or not) or an image
      (EROFS, SquashFS, ext4, cramfs, of containers). In a list of several, later sources override
      earlier ones; `(path, directory)` puts a source below that directory.
    * `options`, and keywords, which override them: see `PackOptions`.
    * `progress(done, total)`: called with numbers of bytes on this thread, about 20 times a second.
      An exception in it ends the work, as Ctrl-C does.

    Raises `OSError` (`FileExistsError` if `image` exists and `overwrite` is false) and, for
    options, `ValueError`.

    >>> import os, tempfile
    >>> tmp = tempfile.TemporaryDirectory()
    >>> with open(os.path.join(tmp.name, "a.txt"), "w") as file:
    ...     _ = file.write("text" * 100)
    >>> result = pack(tmp.name, os.path.join(tmp.name, "..", os.path.basename(tmp.name) + ".erofs"))
    >>> result.files, result.bytes, result.order
    (1, 400, 'shuffle')
    >>> os.unlink(tmp.name + ".erofs"); tmp.cleanup()
    """
    options = PackOptions.of(options, keywords)
    packed = _native.pack(_sources(source), local_path(image, "image"), options, None, progress)
    return finish(packed, image, options)


def estimate(
    source: Sources, options: PackOptions | None = None, *, presets: Iterable[Preset] = PRESETS, **keywords: Any
) -> list[Estimate]:
    """Estimates images of `source`, one for each preset: a sample of the data is packed, and
    nothing is written.

    The other arguments are those of `pack`. The `preset` and the `order` of the options are
    ignored. """
    names = list(presets)
    options = replace(PackOptions.of(options, keywords), order="path")
    return [Estimate(**figures) for figures in _native.estimate(_sources(source), names, options)]


def _sources(source: Sources) -> list[tuple[bytes, bytes]]:
    if isinstance(source, (str, bytes, os.PathLike)):
        return [(local_path(source, "source"), b"")]
    pairs = (one if isinstance(one, tuple) else (one, b"") for one in source)
    parts = [(local_path(path, "source"), tree_path(directory)) for path, directory in pairs]
    if not parts:
        raise ValueError("source: use at least one")
    return parts


def local_path(path: HostPath, argument: str) -> bytes:
    """Returns a path of this system as bytes, and refuses URLs."""
    raw = os.fsencode(path)
    scheme = raw.partition(b"://")[0]
    if b"://" in raw and scheme.isalnum():
        raise ValueError(
            f"{argument}={os.fsdecode(raw)!r}: use a path of this system, not a URL; kilnfs.shards reads from URLs "
            "and writes to them"
        )
    return raw
