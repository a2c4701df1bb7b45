"""What the native module of kilnfs offers. Its classes are bases and parts of those that users see."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, Self, SupportsIndex, TypedDict, final, overload, type_check_only

from typing_extensions import Buffer, disjoint_base

__version__: str

@type_check_only
class HasPath(Protocol):
    """An object that stands for a path in an image: `kilnfs.Path`, `DirEntry`, `Entry`, `File`."""

    def __kilnfs_path__(self) -> bytes: ...

_Name = str | bytes | HasPath
_What = _Name | int  # a path, or the nid of an inode
_Files = Index | Iterable[_Name]  # the files of an index, or paths from whatever can be iterated over
_Rows = Iterable[SupportsIndex] | Buffer  # numpy's arrays are buffers for type checkers from Python 3.12 on

def main(args: Sequence[str | bytes], program: Sequence[str | bytes]) -> int:
    """Run the command `kiln` with these arguments, the first of which is its name. `program` starts it anew in the background."""

@type_check_only
class Source(Protocol):
    """Bytes that are read at any position, from any thread."""

    def length(self) -> int: ...
    def read_ranges(self, ranges: list[tuple[int, int]]) -> Sequence[Buffer]:
        """The bytes of each range, (first byte, length), all of which lie within the source."""
    def will_need(self, start: int, length: int) -> None:
        """These bytes will be read soon. Returns at once."""

@disjoint_base
class Image:
    """An open image. All methods may be called from any thread; each releases the interpreter while it reads or decodes.

    `what` is a path in the image (`str`, `bytes`, or an object with `__kilnfs_path__() -> bytes`), absolute or from the root; `nid` is
    the number of an inode instead. Errors are `OSError` with `filename` (the path) and `filename2` (the image), see `kilnfs._errors`.
    """

    def __new__(
        cls,
        source: bytes | Buffer | Source,  # `bytes` is the path of a file; other buffers are the image itself
        name: str,
        *,
        offset: int = 0,
        devices: Sequence[bytes] = ...,
        cache_bytes: int = 6 << 20,
        verify_checksum: bool = True,
        mmap: bool = False,
        verify: bool = False,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Methods raise ValueError from now on. Memory that was given out stays valid."""

    @property
    def uuid(self) -> bytes: ...  # 16 bytes
    @property
    def source_length(self) -> int: ...  # bytes of the primary device
    def _superblock(self) -> dict[str, Any]: ...  # block_size, inodes, build_time, label, root_nid, compat, incompat, algorithms, min_kernel…
    def stats(self) -> dict[str, int]: ...

    # names
    def _lookup(self, what: _What, follow: bool) -> int: ...  # nid
    def _stat(self, what: _What, follow: bool) -> tuple[tuple[int, ...], dict[str, int]]: ...  # the arguments of os.stat_result
    def _listdir(self, what: _What) -> list[tuple[bytes, int, int]]: ...  # name, nid, S_IFMT of the type; . and .. left out; stored order
    def _readlink(self, what: _What) -> bytes: ...
    def _listxattr(self, what: _What, follow: bool) -> list[bytes]: ...
    def _getxattr(self, what: _What, name: bytes, follow: bool) -> bytes: ...  # ENODATA

    # contents; symbolic links are followed
    def read(
        self, what: _Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> bytes: ...
    def read_into(
        self, what: _Name | None = None, buffer: Buffer | None = None, *, start: int = 0, nid: SupportsIndex | None = None
    ) -> int: ...
    def view(
        self, what: _Name | None = None, start: int = 0, stop: int | None = None, *, nid: SupportsIndex | None = None
    ) -> memoryview: ...
    def views(
        self, what: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None
    ) -> list[memoryview]: ...
    def read_many(
        self,
        what: _Files | None = None,
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
        what: _Files | None = None,
        *,
        rows: _Rows | None = None,
        nids: _Rows | None = None,
        threads: int | None = None,
        window_bytes: int = 67108864,
    ) -> Iterator[tuple[int, memoryview]]: ...
    def positions(self, what: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None) -> Positions: ...
    def physical_order(
        self, what: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None
    ) -> memoryview: ...
    def prefetch(self, what: _Files | None = None, *, rows: _Rows | None = None, nids: _Rows | None = None) -> int: ...

    def _index(
        self,
        root: _What,
        *,
        extensions: Sequence[bytes] = ...,
        glob: bytes | None = None,
        depth: int | None = None,  # labels: directories at this depth below the root are the classes
        threads: int | None = None,
    ) -> Index: ...
    def _store_index(
        self,
        path: bytes,  # of the file that the image is in
        root: _What,
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
    def _extents(self, what: _What) -> list[dict[str, Any]]: ...
    def _explain(self, what: _What, start: int | None = None, stop: int | None = None) -> dict[str, Any]: ...

@final
class IterMany:
    """Places in `what` (or in `rows`) and contents, in stored order."""

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
    """Where files are stored: columns, one row a file."""

    def __len__(self) -> int: ...
    @property
    def devices(self) -> memoryview: ...  # 'H', 0 is the image itself
    @property
    def addresses(self) -> memoryview: ...  # 'Q', bytes
    @property
    def stored(self) -> memoryview: ...  # 'Q', bytes
    @property
    def clusters(self) -> memoryview: ...  # 'Q': number of the pcluster that is shared with other files, or 2**64 - 1

@final
class Index(Sequence[str]):
    """Regular files below a directory, in path order: nid, size and label of each in flat columns, 16 bytes a file."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, i: SupportsIndex, /) -> str: ...  # path from the root of the image, without a slash in front
    @overload
    def __getitem__(self, i: slice, /) -> Index: ...
    @property
    def nids(self) -> memoryview: ...  # 'Q'
    @property
    def sizes(self) -> memoryview: ...  # 'I', or 'Q' where a file has 4 GiB
    @property
    def labels(self) -> memoryview | None: ...  # 'I'
    @property
    def classes(self) -> list[str]: ...  # sorted by bytes; a label is a place in this list
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
    def bind(self, image: Image) -> Index: ...  # ESTALE where the image is another
    def save(self, path: str | bytes) -> None: ...  # atomic
    @staticmethod
    def load(path: str | bytes, image: Image | None = None) -> Index: ...  # mapped into memory

@final
class LocalityOrder:
    """The block-window shuffle of an index: which rows make up batch `step` of `epoch`. A pure function of its arguments."""

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
        last_batch: Literal["drop", "short", "fill"] = "drop",  # what becomes of samples that do not fill a batch
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
    def stored_shuffled(self) -> bool: ...  # the files lie in random order
    def upcoming(self, epoch: int, step: int, rank: int = 0, world_size: int = 1) -> memoryview: ...
    # 'I', a rank's part of the rows to announce with this step, in stored order: with all steps of a window, the next window
    def underway(self, epoch: int, step: int, rank: int = 0, world_size: int = 1) -> memoryview: ...
    # 'I', the rows of the window of this step that a rank reads from here on, in stored order
    def report(self, epoch: int, labels: _Rows | None = None) -> dict[str, float]: ...

@type_check_only
class PackOptions(TypedDict):
    """Options of an image, all of them. Paths and globs are bytes."""

    preset: str
    compress: str | None
    unit: int | None  # bytes
    kernel: str | None
    order: str | None  # path, shuffle or list; None: shuffle where files are stored by themselves, else path
    order_list: bytes  # of the order `list`: paths with a zero byte behind each
    seed: int
    exclude: list[bytes]
    only: bytes | None  # only these paths and their parents, with a zero byte behind each
    hints: list[tuple[bytes, str]]
    owner: tuple[int, int] | None
    mtime: str | None  # keep, clamp:SECS or SECS
    strict_xattrs: bool
    concatenated: bool
    dedupe: str | None  # parts, files or off
    inline: bool
    content_digests: bool
    threads: int | None
    overwrite: bool
    dry_run: bool

def pack(
    sources: list[tuple[bytes, bytes]],  # path, and the directory that its root becomes
    image: bytes,
    options: PackOptions,
    progress: Callable[[int, int], object] | None,
) -> dict[str, Any]:
    """Pack sources as one into a new file, on threads that end with the call. Signals are handled meanwhile."""

def estimate(sources: list[tuple[bytes, bytes]], presets: Sequence[str], options: PackOptions) -> list[dict[str, Any]]: ...

@final
class Builder:
    """A tree in the making. Methods may be called from any thread. `meta` is (permissions, uid, gid, mtime in nanoseconds)."""

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
