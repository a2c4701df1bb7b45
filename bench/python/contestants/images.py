"""kilnfs: an EROFS image read as it lies, without a mount. All use of the package `kilnfs` by this benchmark is
here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from contestants.base import Buffer, Contestant, Missing, first_line, program, run
from packers import kiln_path
from sets import Tree
from slow import Store, slow_url

# How images are packed: options of `kiln pack`, by the name of the form and, where it differs, of the set.
# Stored files of set I are contiguous, which costs half a block each: with their last bytes beside the inode, a view
# has to be a copy. In set S, whose files are smaller than a page, small files share pclusters: the shorter these are,
# the less is decoded for one sample and the more bytes are stored. `zstd` is for random order, `zstd small` for few
# bytes.
PACK: dict[str, tuple[str, ...]] = {
    "stored": ("-z", "none", "--layout=inline-data=off"),
    "lz4": ("-z", "lz4", "-C", "64k", "--fragments", "off"),
    "stored S": ("-z", "none"),
    "lz4 S": ("-z", "lz4", "-C", "4k", "--fragments", "all"),
    "zstd": ("--preset", "dataset"),
    "zstd packed": ("-z", "zstd,3", "-C", "4k", "--fragments", "all"),
    "zstd small": ("-z", "zstd,3", "-C", "32k", "--fragments", "all", "--layout=metadata"),
}
FORMS = {"stored": "ISJ", "lz4": "ISJ", "zstd": "ISJ", "zstd packed": "S", "zstd small": "S"}  # and the sets that they are made of


def pack_options(form: str, of_set: str) -> tuple[str, ...]:
    """Options of `kiln pack` for a form of image and a set."""
    return PACK.get(f"{form} {of_set}", PACK[form])


def kiln() -> Path:
    """The command. Raises Missing."""
    return program(kiln_path(), "kiln", "set KILN, or build it with `cargo build --release`")


def make_image(tree: Tree, image: Path, form: str) -> None:
    """Pack the set."""
    run([kiln(), "pack", *pack_options(form, tree.about.name), "--quiet", tree.root, image], "kiln pack")


def kiln_version() -> str:
    """Raises Missing if there is no command `kiln`."""
    return first_line([kiln(), "--version"])


def recipe(form: str, tree: Tree) -> str:
    """The program and its options. Raises Missing."""
    return f"{kiln_version()} pack {' '.join(pack_options(form, tree.about.name))}"


def kilnfs() -> Any:
    """The package. Raises Missing."""
    try:
        import kilnfs as package
    except ImportError as error:
        raise Missing(f"kilnfs not installed: {error}") from error
    return package


class Kilnfs(Contestant):
    """An image and one of the calls that read many samples or one."""

    form: ClassVar[str]  # key of `PACK`
    mapped: ClassVar[bool] = False

    @property
    def file(self) -> Path:
        """The container."""
        return self.place / "set.erofs"

    def version(self) -> str:
        return f"kilnfs {kilnfs().__version__}; {recipe(self.form, self.tree)}"

    def recipe(self) -> str:
        return recipe(self.form, self.tree)

    def build(self) -> None:
        make_image(self.tree, self.file, self.form)

    def open(self, order: str) -> None:
        self.image: Any = self.open_image()
        self.index: Any = self.image.index("/")
        if len(self.index) != len(self.tree):
            raise RuntimeError(f"kilnfs: index has {len(self.index)} rows, the set has {len(self.tree)} files")

    def open_image(self) -> Any:
        """The image, opened as this contestant opens it."""
        if self.open_file:
            return kilnfs().open(self.open_file(self.file))
        return kilnfs().open(str(self.file), mmap=True) if self.mapped else kilnfs().open(str(self.file))

    def close(self) -> None:
        self.image.close()

    def local_order(self, batch: int, seed: int, options: dict[str, int]) -> Iterator[list[int]]:
        kilnfs()
        try:
            # The base of `kilnfs.torch.LocalityBatchSampler`, which adds nothing but a base class of torch.
            from kilnfs._locality import LocalityBatches

            return iter(LocalityBatches(self.index, batch, seed=seed, **options))
        except ImportError as error:
            raise Missing(f"no sampler: {error}") from error


class Read(Kilnfs):
    """`Image.read(nid=…)`: one call for each sample, which gives `bytes`."""

    takes_file_object = True

    def open(self, order: str) -> None:
        super().open(order)
        self.nids = list(self.index.nids)

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        read, nids = self.image.read, self.nids
        return [read(nid=nids[i]) for i in ids]


class ReadMany(Kilnfs):
    """`Image.read_many(index, rows)`: one buffer for a batch."""

    uses_threads = True
    takes_file_object = True

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        batch: Sequence[Buffer] = self.image.read_many(self.index, rows=ids, threads=self.threads)
        return batch


class ReadManyMapped(ReadMany):
    """The same of an image that is mapped, as LMDB's file is."""

    mapped = True


class ReadManyByUrl(ReadMany):
    """The same of an image that fsspec reads, through kilnfs's cache of blocks."""

    only_slow = True

    def open_image(self) -> Any:
        store = self.open_file if isinstance(self.open_file, Store) else Store(0.0)
        return kilnfs().open(slow_url(self.file, store))


class Views(Kilnfs):
    """`Image.views(index, rows)` of an image that is mapped: no copy of what is stored plain."""

    mapped = True

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        views: Sequence[Buffer] = self.image.views(self.index, rows=ids)
        return views


CALLS: dict[str, type[Kilnfs]] = {
    "read": Read,
    "read_many": ReadMany,
    "read_many, mmap": ReadManyMapped,
    "views, mmap": Views,
}


def label(form: str, call: str) -> str:
    """The label of a contestant of this module: `kilnfs stored, read_many`."""
    return f"kilnfs {form}, {call}"


def variants() -> list[type[Kilnfs]]:
    """Each form of image with each call, and the one that fsspec reads."""
    made = [(form, call, base) for form in FORMS for call, base in CALLS.items()]
    made.append(("stored", "read_many by fsspec", ReadManyByUrl))
    classes = []
    for form, call, base in made:
        names = {"label": label(form, call), "container": f"kiln-{form.replace(' ', '-')}", "form": form}
        names |= {"only_sets": FORMS[form], "__doc__": base.__doc__ or ""}
        classes.append(type(f"{base.__name__}_{form.replace(' ', '_')}", (base,), names))
    return classes


# What the cases of `special.py` measure of the package.


def open_image(file: Path) -> Any:
    """`kilnfs.open` with its defaults."""
    return kilnfs().open(str(file))


class IndexedSamples:
    """A dataset of the map style over an image, which is pickled as its path and the index."""

    def __init__(self, file: Path) -> None:
        self.image: Any = open_image(file)
        self.index: Any = self.image.index("/")

    def __len__(self) -> int:
        return len(self.index)

    def __getitems__(self, ids: list[int]) -> Sequence[Buffer]:
        samples: Sequence[Buffer] = self.image.read_many(self.index, rows=ids, threads=1)
        return samples
