"""Native module of kilnfs. Its classes are bases and parts of those that users see."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, Self, SupportsIndex, final, overload, type_check_only

from typing_extensions import Buffer, disjoint_base

from ._pack_options import PackOptions

__version__: str

@type_check_only
class HasPath(Protocol):
    """Object that represents a path in an image: `kilnfs.Path`, `DirEntry`, `Entry`, `File`."""

    def __kilnfs_path__(self) -> bytes: ...

_Name = str | bytes | HasPath
_File = _Name | int  # a path or a nid
_Files = Index | Iterable[_Name]  # files of an index, or paths of an iterable
_Rows = Iterable[SupportsIndex] | Buffer  # NumPy's arrays are buffers for type checkers from Python 3.12 on

def main(args: Sequence[str | bytes], program: Sequence[str | bytes]) -> int:
    """Runs the command `kiln` with these arguments, the first of which is its name, and returns its
    exit code. `program` is the command line that starts it again in the background."""

@type_check_only
class Source(Protocol):
    """Source of bytes that is read at any position, from any thread."""

    def length(self) -> int: ...
    def read_ranges(self, ranges: list[tuple[int, int]]) -> Sequence[Buffer]:
        """Returns the bytes of each range (first byte, length), which are within the source."""
    def will_need(self, start: int, length: int) -> None:
        """Announces that these bytes will be read soon. Returns at once."""

@disjoint_base
class Image:
    """Open image. All methods may be called from any thread; each releases the interpreter while it
    reads or decodes.

    `path` is a path in the image (`str`, `bytes`, or an object with `__kilnfs_path__() -> bytes`),
    absolute or from the root; `nid` is an inode number instead; `file` is either. Errors are
    `OSError` with `filename` (the path) and `filename2` (the image), see `kilnfs._errors`. """

    def __new__(
        cls,
        source: bytes | Buffer | Source,  # `bytes` is the path of a file; other buffers are the image itself
        name: str,
        *,
        offset: int = 0,
        devices: Sequence[bytes] = ...,
        objects: Sequence[bytes] = ...,
        cache_bytes: int = 6 << 20,
        verify_checksum: bool = True,
        mmap: bool = False,
        verify: bool = False,
        root_hash: Sequence[bytes] = ...,
        hash_tree: Sequence[bytes | Buffer | Source] = ...,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Closes the image. Methods raise ValueError from now on. Memory that was returned stays
        valid."""

    @property
    def uuid(self) -> bytes: ...  # 16 bytes
    @property
    def source_length(self) -> int: ...  # bytes of the primary device
    def _superblock(self) -> dict[str, Any]: ...  # block_size, inodes, build_time, label, root_nid, compat, incompat, algorithms, min_kernel…
    def stats(self) -> dict[str, int]: ...

    # names
    def _lookup(self, file: _File, follow: bool) -> int: ...  # nid
    def _stat(self, file: _File, follow: bool) -> tuple[tuple[int, ...], dict[str, int]]: ...  # the arguments of os.stat_result
    def _listdir(self, file: _File) -> list[tuple[bytes, int, int]]: ...  # name, nid, S_IFMT of the type; without . and ..; stored order
    def _readlink(self, file: _File) -> bytes: ...
    def _listxattr(self, file: _File, follow: bool) -> list[bytes]: ...
    def _getxattr(self, file: _File, name: bytes, follow: bool) -> bytes: ...  # ENODATA

    # contents; symbolic links are followed
    def read(
        self, path: _Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> bytes: ...
    def read_into(
        self, path: _Name | None = None, buffer: Buffer | None = None, *, start: int = 0, nid: SupportsIndex | None = None
    ) -> int: ...
    def view(
        self, path: _Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> memoryview: ...
    def views(
        self, files: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None
    ) -> list[memoryview]: ...
    def read_many(
        self,
        files: _Files | None = None,
        *,
        rows: _Rows | None = None,
        nids: _Rows | None = None,
        ranges: Iterable[Iterable[SupportsIndex | None]] | Buffer | None = None,
        out: Buffer | None = None,
        threads: int | None = None,
        on_error: str = "raise",  # or "return"
    ) -> Batch: ...
    def iter_many(
        self,
        files: _Files | None = None,
        *,
        rows: _Rows | None = None,
        nids: _Rows | None = None,
        threads: int | None = None,
        window_bytes: int = 67108864,
    ) -> Iterator[tuple[int, memoryview]]: ...
    def positions(self, files: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None) -> Positions: ...
    def physical_order(
        self, files: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None
    ) -> memoryview: ...
    def prefetch(self, files: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None) -> int: ...

    def _index(
        self,
        root: _File,
        *,
        extensions: Sequence[bytes] = ...,
        glob: bytes | None = None,
        depth: int | None = None,  # of the directories below the root that are the classes
        threads: int | None = None,
    ) -> Index: ...
    def _store_index(
        self,
        path: bytes,  # of the file with the image
        root: _File,
        *,
        extensions: Sequence[bytes] = ...,
        glob: bytes | None = None,
        depth: int | None = None,
        threads: int | None = None,
    ) -> int: ...
    def _extract(
        self, members: Sequence[bytes], target: bytes, *, policy: str, overwrite: bool = False, threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]: ...
    def _check(self, *, threads: int | None = None, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]: ...
    def _extents(self, file: _File) -> list[dict[str, Any]]: ...
    def _explain(self, file: _File, start: int | None = None, stop: int | None = None) -> dict[str, Any]: ...

@final
class IterMany:
    """Iterator over pairs of a position in `files` (or in `rows`) and contents, in stored order."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[int, memoryview]: ...

@final
class Batch(Sequence[memoryview]):
    """Contents of many files in one buffer. `batch[i]` is a writable memoryview of file i."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, i: SupportsIndex, /) -> memoryview: ...
    @overload
    def __getitem__(self, i: slice, /) -> list[memoryview]: ...
    @property
    def data(self) -> memoryview: ...  # writable
    @property
    def offsets(self) -> memoryview: ...  # 'q', one more than there are files
    @property
    def sizes(self) -> memoryview: ...  # 'q'
    @property
    def errors(self) -> dict[int, OSError]: ...
    def tobytes(self, i: int) -> bytes: ...

@final
class Positions:
    """Places at which files are stored: columns with one row for each file."""

    def __len__(self) -> int: ...
    @property
    def devices(self) -> memoryview: ...  # 'H', 0 is the image itself
    @property
    def addresses(self) -> memoryview: ...  # 'Q', bytes
    @property
    def stored(self) -> memoryview: ...  # 'Q', bytes
    @property
    def clusters(self) -> memoryview: ...  # 'Q', numbers of pclusters shared with other files; 2**64 - 1 for none

@final
class Index(Sequence[str]):
    """Regular files below a directory, in path order: nid, size and label in flat columns, 16 bytes
    per file."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, i: SupportsIndex, /) -> str: ...  # path from the root of the image, without a leading slash
    @overload
    def __getitem__(self, i: slice, /) -> Index: ...
    @property
    def nids(self) -> memoryview: ...  # 'Q'
    @property
    def sizes(self) -> memoryview: ...  # 'I', or 'Q' if a file has 4 GiB or more
    @property
    def labels(self) -> memoryview | None: ...  # 'I'
    @property
    def classes(self) -> list[str]: ...  # sorted by bytes; a label is a position in this list
    @property
    def digest(self) -> bytes: ...  # 32 bytes, BLAKE3 of the columns
    @property
    def uuid(self) -> bytes: ...  # of the image
    @property
    def image(self) -> Image | None: ...
    def index(self, value: object, start: int = 0, stop: int | None = None, /) -> int: ...  # ValueError
    def path(self, i: int) -> str: ...
    def find(self, path: _Name) -> int: ...  # row; FileNotFoundError
    def subset(self, rows: _Rows) -> Index: ...
    def with_labels(self, labels: _Rows, classes: Sequence[str]) -> Index: ...
    def bind(self, image: Image) -> Index: ...  # ESTALE for another image
    def save(self, path: str | bytes) -> None: ...  # atomic
    @staticmethod
    def load(path: str | bytes, image: Image | None = None) -> Index: ...  # mapped into memory

@final
class LocalityOrder:
    """Block-window shuffle of an index: the rows of batch `step` of `epoch`, a pure function of the
    arguments."""

    def __new__(
        cls,
        index: Index,
        batch_size: int,  # samples of a step, all ranks together
        *,
        seed: int = 0,
        lanes: int = 1,
        block_bytes: int,
        window_blocks: int | None = None,
        window_bytes: int | None = None,
        shuffle: bool = True,
        last_batch: Literal["drop", "short", "fill"] = "drop",  # treatment of samples that do not fill a batch
    ) -> Self: ...
    @property
    def steps(self) -> int: ...  # batches of an epoch
    @property
    def samples(self) -> int: ...  # rows of the index
    @property
    def blocks(self) -> int: ...
    @property
    def window_blocks(self) -> int: ...
    @property
    def window_capped(self) -> bool: ...  # by window_bytes
    def batch(self, epoch: int, step: int, rank: int = 0, world_size: int = 1) -> memoryview: ...  # 'I', rows of the index
    def order(self, epoch: int) -> memoryview: ...  # 'I', all batches of all ranks
    @property
    def stored_shuffled(self) -> bool: ...  # the files are stored in random order
    def upcoming(self, epoch: int, step: int, rank: int = 0, world_size: int = 1) -> memoryview: ...
    # 'I', rows of a rank to announce with this step, in stored order: those of all steps of a
    # window are the next window
    def underway(self, epoch: int, step: int, rank: int = 0, world_size: int = 1) -> memoryview: ...
    # 'I', rows of the window of this step that a rank still reads, in stored order
    def report(self, epoch: int, labels: _Rows | None = None) -> dict[str, float]: ...

def pack(
    sources: list[tuple[bytes, bytes]],  # path, and the directory of the image that its root becomes
    image: bytes,
    options: PackOptions,
    only: bytes | None,  # paths that are packed, with their parents, and a zero byte behind each
    progress: Callable[[int, int], object] | None,
) -> dict[str, Any]:
    """Packs sources as one into a new file, on threads that end with the call. Signals are handled
    meanwhile."""

def estimate(sources: list[tuple[bytes, bytes]], presets: Sequence[str], options: PackOptions) -> list[dict[str, Any]]: ...

@final
class Builder:
    """Tree that grows call by call. Methods may be called from any thread. `meta` is (permissions,
    uid, gid, mtime in ns)."""

    def __new__(cls, spool_dir: bytes | None = None) -> Self: ...
    def close(self) -> None: ...
    def add_bytes(self, at: bytes, data: bytes, meta: tuple[int, int, int, int]) -> None: ...
    def add_many(self, files: Iterable[tuple[bytes, bytes]], meta: tuple[int, int, int, int]) -> int: ...
    def add_file(self, host: bytes, at: bytes) -> None: ...
    def add_tree(self, source: bytes, at: bytes, concatenated: bool) -> None: ...
    def add_archive(self, file: Any, at: bytes, name: bytes, concatenated: bool) -> None: ...
    def mkdir(self, at: bytes, meta: tuple[int, int, int, int]) -> None: ...
    def symlink(self, target: bytes, at: bytes, meta: tuple[int, int, int, int]) -> None: ...
    def link(self, existing: bytes, at: bytes) -> None: ...
    def setxattr(self, at: bytes, name: bytes, value: bytes) -> None: ...
    def write(self, image: bytes, options: PackOptions, progress: Callable[[int, int], object] | None) -> dict[str, Any]: ...
