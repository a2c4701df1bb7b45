"""Reports about an image: superblock, check, extents of files and cost of reading."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Literal, Self


class Report:
    """Report with values as attributes; `vars(report)` has all of them."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """Makes a report from the dictionary of the native module."""
        report = cls()
        vars(report).update(found)
        return report

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it contains lists

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class ImageInfo(Report):
    """Fields of the superblock."""

    block_size: int
    """Length of a block in bytes."""
    blocks: int
    """Number of blocks of the image itself, without extra devices."""
    inodes: int
    """Number of inodes: files and directories, hard links counted once."""
    build_time: int
    """Build time in seconds since 1970."""
    label: str
    """Volume name, at most 16 bytes; empty if there is none."""
    root_nid: int
    """Inode number of the root directory."""
    packed_nid: int | None
    """Number of the packed inode, which contains small files and ends of files; None if there is
    none."""
    devices: int
    """Number of extra devices."""
    compat: int
    """Feature bits that a reader may ignore."""
    incompat: int
    """Feature bits that a reader must support."""
    algorithms: tuple[str, ...]
    """Names of the compression algorithms in use."""


class CheckReport(Report):
    """Result of a check. Its text summarises problems, and how much of the contents was
    verified."""

    inodes: int
    """Number of checked inodes."""
    directories: int
    """Number of directories among them."""
    extents: int
    """Number of extents of their contents."""
    bytes: int
    """Number of bytes of contents that were read and decoded."""
    file_bytes: int
    """Number of bytes of contents of regular files."""
    digested_bytes: int
    """Number of bytes of regular files whose contents match a digest in the image."""
    problem_count: int
    """Number of problems."""
    problems: list[str]
    """Descriptions of the problems; only the first ones if there are very many."""
    notes: list[str]
    """Descriptions of unusual but valid properties."""

    @property
    def ok(self) -> bool:
        """True if no problem was found; see `contents` for how much was verified."""
        return self.problem_count == 0

    @property
    def contents(self) -> Literal["verified", "verified in part", "not verifiable", "none"]:
        """Amount of the files' contents that was compared with digests. Without digests, damage in
        uncompressed files is not found. "none": no file has contents. """
        if not self.file_bytes:
            return "none"
        if not self.digested_bytes:
            return "not verifiable"
        return "verified" if self.digested_bytes == self.file_bytes else "verified in part"

    def __str__(self) -> str:
        found = "ok" if self.ok else f"{self.problem_count} problems, first: {self.problems[0]}"
        how = f", {self.digested_bytes} of {self.file_bytes} bytes" if self.contents == "verified in part" else ""
        return f"{found}; contents: {self.contents}{how}"


class Extent(Report):
    """Extent of a file, and the place where it is stored."""

    start: int
    """Offset in the file in bytes."""
    length: int
    """Length in the file in bytes."""
    kind: str
    """Kind: `"hole"`, `"plain"`, `"inline"` (beside the inode), `"compressed"`, `"uncompressed"`
    (in a file that is compressed elsewhere), `"fragment"` (in the packed inode), or `"object"` (of
    composefs, outside the image). """
    device: int | None
    """Device number, 0 for the image itself; `None` for holes, fragments and objects."""
    address: int | None
    """Offset on the device in bytes, or of a fragment in the packed inode."""
    stored: int
    """Length on the device in bytes."""
    algorithm: str | None
    """Compression algorithm, for example "zstd"; None for uncompressed data."""


class Cost(Report):
    """Cost of reading a range of a file if none of it is in memory."""

    extents: int
    """Number of extents in the range."""
    wanted: int
    """Length of the range in bytes."""
    fetched: int
    """Number of bytes of contents read from the image."""
    decoded: int
    """Number of bytes decompressed."""
    metadata: int
    """Number of bytes of metadata read."""
    fetch_amplification: float
    """Ratio of `fetched` to `wanted`."""
    decode_amplification: float
    """Ratio of `decoded` to `wanted`."""
