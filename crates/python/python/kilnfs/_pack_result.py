"""Results of packing: `PackResult` and `Estimate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._pack_options import HostPath, PackOptions


@dataclass(frozen=True, slots=True)
class PackResult:
    """Result of packing an image. Equal to itself after pickling."""

    files: int
    """Number of regular files, hard links counted once."""
    bytes: int
    """Total length of the files in bytes."""
    image_bytes: int
    """Size in bytes of the image, and of the index behind it."""
    seconds: float
    """Wall time in seconds of all phases: scan, survey, store, write, sync."""
    cpu_seconds: float
    """User and system time in seconds of the process meanwhile."""
    peak_bytes: int
    """Peak resident memory of the process in bytes so far."""
    uuid: str
    """UUID of the image, derived from its contents, in hexadecimal groups."""
    min_kernel: str
    """Oldest Linux that can mount the image."""
    order: str
    """Order of the stored data: `"path"`, `"shuffle"` or `"list"`."""
    warnings: tuple[str, ...] = ()
    """Likely mistakes, and notes about the source: paths of the order and hints that match no file,
    bytes behind the end mark of a tar archive, attributes that were left out."""
    left_out_xattrs: dict[str, int] = field(default_factory=dict, hash=False)
    """Numbers, by name, of extended attributes and entries of ACLs that EROFS cannot store and that
    were left out."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of an image. Each `…_error` is half the length of an interval that contains the true
    value in 95 of 100 cases. """

    preset: str
    """Preset of the estimated image."""
    refused: str | None = None
    """Reason why this preset contradicts the other options, whose figures are 0 then; else None."""
    bytes: int = 0
    """Total length of the files of the source in bytes."""
    image_bytes: int = 0
    """Size of the image in bytes."""
    image_bytes_error: int = 0
    """Error of `image_bytes`, in bytes."""
    seconds: float = 0.0
    """Wall time of packing in seconds."""
    seconds_error: float = 0.0
    """Error of `seconds`, in seconds."""
    cpu_seconds: float = 0.0
    """CPU time of packing in seconds."""
    cpu_seconds_error: float = 0.0
    """Error of `cpu_seconds`, in seconds."""
    min_kernel: str = ""
    """Oldest Linux that can mount the image."""
    sampled_bytes: int = 0
    """Number of bytes that were packed for the estimate. If these are all bytes, sizes are
    exact."""


def finish(figures: dict[str, Any], image: HostPath, options: PackOptions) -> PackResult:
    """Writes the index of the options behind the image, and returns the result of packing."""
    index_bytes = 0
    if options.index is not False and not options.dry_run:
        from ._pack_index import store_index

        index_bytes = store_index(image, options.index)
    return PackResult(
        files=figures["files"],
        bytes=figures["bytes"],
        image_bytes=figures["image_bytes"] + index_bytes,
        seconds=figures["seconds"],
        cpu_seconds=figures["cpu_seconds"],
        peak_bytes=_peak_bytes(),
        uuid=_uuid(figures["uuid"]),
        min_kernel=figures["min_kernel"],
        order=figures["order"],
        warnings=tuple(figures["warnings"]),
        left_out_xattrs=figures["left_out_xattrs"],
    )


def _uuid(digits: bytes) -> str:
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _peak_bytes() -> int:
    import resource

    # In KiB on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
