"""kilnfs: an EROFS image read as it lies, without a mount. All use of the package `kilnfs` by the suite is here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pyworker.base import Buffer, Contestant
from pyworker.sets import SEED
from pyworker.slow import Store, slow_url

# Options of `kiln pack`, by form and, where they differ, by set. Photos are stored without ends beside inodes: a view
# of such a file has to be a copy. Texts are smaller than a page and share pclusters in some forms: the shorter these
# are, the less is decoded for one sample, and the more bytes are stored. `zstd` is for random order, `zstd small` for
# few bytes.
PACK = {
    "stored": "-z none --layout=inline-data=off",
    "stored texts": "-z none",
    "lz4": "-z lz4 -C 64k --fragments off",
    "lz4 texts": "-z lz4 -C 4k --fragments all",
    "zstd": "--preset dataset",
    "zstd packed": "-z zstd,3 -C 4k --fragments all",
    "zstd small": "-z zstd,3 -C 32k --fragments all --layout=metadata",
}
FOR_TEXTS = ("zstd packed", "zstd small")


class Kilnfs(Contestant):
    """An image of one form, and one of the calls that read samples."""

    distribution, builder = "kilnfs", "kiln"
    form: ClassVar[str]

    @staticmethod
    def packing(form: str, of_set: str) -> str:
        """Returns the options of `kiln pack` for a form and a set."""
        return PACK.get(f"{form} {of_set}", PACK[form])

    @classmethod
    def options(cls, of_set: str) -> str:
        return cls.packing(cls.form, of_set)

    def open(self, order: str) -> None:
        self.image: Any = self.open_image()
        self.index: Any = self.image.index("/")
        self.nids = list(self.index.nids)
        if len(self.index) != len(self.tree):
            raise RuntimeError(f"kilnfs: index has {len(self.index)} rows, the set has {len(self.tree)} files")

    def open_image(self) -> Any:
        """Returns the image, opened as this contestant opens it."""
        import kilnfs

        return kilnfs.open(self.open_file(self.file) if self.open_file else str(self.file))

    def close(self) -> None:
        self.image.close()

    def local_order(self, batch: int, options: dict[str, int]) -> Iterator[list[int]]:
        # The base of `kilnfs.torch.LocalityBatchSampler`, which adds nothing but a base class of torch.
        from kilnfs._locality import LocalityBatches

        return iter(LocalityBatches(self.index, batch, seed=SEED, **options))


class Read(Kilnfs):
    """One call for each sample, which gives `bytes`."""

    call = "Image.read(nid=…)"

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        read, nids = self.image.read, self.nids
        return [read(nid=nids[i]) for i in ids]


class ReadMany(Kilnfs):
    """One buffer for a batch."""

    call = "Image.read_many(index, rows)"

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        batch: Sequence[Buffer] = self.image.read_many(self.index, rows=ids, threads=self.threads)
        return batch


class ReadManyMapped(ReadMany):
    """The same of an image that is mapped, as the file of LMDB is."""

    def open_image(self) -> Any:
        import kilnfs

        return kilnfs.open(str(self.file), mmap=True)


class ReadManyByUrl(ReadMany):
    """The same of an image that fsspec reads, through kilnfs's cache of blocks."""

    def open_image(self) -> Any:
        import kilnfs

        store = self.open_file if isinstance(self.open_file, Store) else Store(0.0)
        return kilnfs.open(slow_url(self.file, store))


class Views(ReadManyMapped):
    """No copy of what is stored plain, of an image that is mapped."""

    call = "Image.views(index, rows)"

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        views: Sequence[Buffer] = self.image.views(self.index, rows=ids)
        return views


CALLS: dict[str, type[Kilnfs]] = {
    "read": Read,
    "read_many": ReadMany,
    "read_many, mmap": ReadManyMapped,
    "views, mmap": Views,
}


def variant(form: str, call: str, base: type[Kilnfs]) -> type[Kilnfs]:
    """Returns the class of a form of image and a call."""
    sets = ("texts",) if form in FOR_TEXTS else Contestant.only_sets
    container = f"kiln-{form.replace(' ', '-')}"
    names = {"label": f"kilnfs {form}, {call}", "container": container, "form": form, "only_sets": sets}
    return type(base.__name__, (base,), {**names, "__doc__": base.__doc__})


BY_URL = variant("stored", "read_many by fsspec", ReadManyByUrl)
ALL = tuple(variant(form, *call) for form in PACK if not form.endswith(" texts") for call in CALLS.items())


class IndexedSamples:
    """A dataset of the map style over an image, which is pickled as its path and the index."""

    def __init__(self, file: str) -> None:
        import kilnfs

        self.image: Any = kilnfs.open(file)
        self.index: Any = self.image.index("/")

    def __len__(self) -> int:
        return len(self.index)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        samples: Sequence[Buffer] = self.image.read_many(self.index, rows=ids, threads=1)
        return samples
