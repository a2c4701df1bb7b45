"""What an image says of itself: its superblock, its check, where files are stored and what reading them costs."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Literal, Self


class Report:
    """Values by their names; `vars(report)` has all of them."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """The report of what the native side has found."""
        report = cls()
        vars(report).update(found)
        return report

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it has lists in it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class ImageInfo(Report):
    """What the superblock says."""

    block_size: int
    """Bytes."""
    blocks: int
    """Of the image itself, without extra devices."""
    inodes: int
    """Files and directories, each once, whatever its names."""
    build_time: int
    """Seconds since 1970."""
    label: str
    """The volume name, text of 16 bytes at most; empty where it has none."""
    root_nid: int
    """The inode of the root directory."""
    packed_nid: int | None
    """The inode that holds small files and ends of files, packed together."""
    devices: int
    """Extra devices."""
    compat: int
    """Bits of features that a reader may ignore."""
    incompat: int
    """Bits of features that a reader must know."""
    algorithms: tuple[str, ...]
    """Compressors that are used."""


class CheckReport(Report):
    """Result of a check. As text it says whether the image is whole, and whether contents could be verified."""

    inodes: int
    """Inodes that were checked."""
    directories: int
    """Directories among them."""
    extents: int
    """Extents of their contents."""
    bytes: int
    """Contents that were read and decoded."""
    file_bytes: int
    """Contents of regular files."""
    digested_bytes: int
    """Contents of regular files that were compared with a digest in the image, and are right."""
    problem_count: int
    """Number of things that are wrong."""
    problems: list[str]
    """What is wrong, and where; the first ones of very many."""
    notes: list[str]
    """What is unusual, but allowed."""

    @property
    def ok(self) -> bool:
        """Tells if nothing is wrong, as far as it can be told: see `contents`."""
        return self.problem_count == 0

    @property
    def contents(self) -> Literal["verified", "verified in part", "not verifiable", "none"]:
        """Tells how much of the files' contents has been compared with digests. Where there are none, damage in files
        that are stored as they are goes unseen. "none": no file has contents.
        """
        if not self.file_bytes:
            return "none"
        if not self.digested_bytes:
            return "not verifiable"
        return "verified" if self.digested_bytes == self.file_bytes else "verified in part"

    def __str__(self) -> str:
        found = "ok" if self.ok else f"{self.problem_count} found to be wrong, first: {self.problems[0]}"
        how = f", {self.digested_bytes} of {self.file_bytes} bytes" if self.contents == "verified in part" else ""
        return f"{found}; contents: {self.contents}{how}"


class Extent(Report):
    """A piece of a file, and where it is stored."""

    start: int
    """First byte in the file."""
    length: int
    """Bytes in the file."""
    kind: str
    """`"hole"`, `"plain"`, `"inline"` (beside the inode), `"compressed"`, `"uncompressed"` (in a file that is
    compressed elsewhere), or `"fragment"` (in the packed inode).
    """
    device: int | None
    """0 is the image itself; `None` for what is on no device by itself."""
    address: int | None
    """First byte on the device; of a fragment, in the packed inode."""
    stored: int
    """Bytes on the device."""
    algorithm: str | None
    """The compressor, "zstd" for example; None for what is stored as it is."""


class Cost(Report):
    """What reading a range of a file costs, if nothing of it is in memory."""

    extents: int
    """Pieces that the range touches."""
    wanted: int
    """Bytes of the range."""
    fetched: int
    """Bytes of contents read from the image."""
    decoded: int
    """Bytes decompressed."""
    metadata: int
    """Bytes of metadata that are looked at."""
    fetch_amplification: float
    """`fetched` for each byte wanted."""
    decode_amplification: float
    """`decoded` for each byte wanted."""
