"""Formats of shards: WebDataset, MosaicML's MDS, litData."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contestants.base import Buffer, Contestant, Missing

SHARD_BYTES = 64 << 20


class WebDataset(Contestant):
    """Tar shards of 64 MiB, read front to back. A sample is a dictionary, of which the file's bytes are taken."""

    label = "WebDataset"
    container = "webdataset"
    sequential_only = True

    def version(self) -> str:
        import webdataset

        return f"webdataset {webdataset.__version__}"

    def build(self) -> None:
        from webdataset import ShardWriter

        extension = self.tree.paths[0].rpartition(".")[2]
        pattern = str(self.place / "%06d.tar")
        with ShardWriter(pattern, maxcount=1 << 40, maxsize=SHARD_BYTES, verbose=0) as writer:
            for path, data in zip(self.tree.paths, self.tree.contents(), strict=True):
                writer.write({"__key__": path.rpartition(".")[0], extension: data})

    def open(self, order: str) -> None:
        import webdataset

        shards = sorted(str(path) for path in self.place.glob("*.tar"))
        self.extension = self.tree.paths[0].rpartition(".")[2]
        self.samples: Iterator[dict[str, Any]] = iter(
            webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
        )

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        samples, extension = self.samples, self.extension
        return [next(samples)[extension] for _ in ids]

    def close(self) -> None:
        del self.samples


class Placeholder:
    """Stands for every class of torch that a signature or a base class names."""

    def __class_getitem__(cls, item: object) -> type[Placeholder]:
        return cls


class PlaceholderModule(types.ModuleType):
    """A module of which every name is a `Placeholder`."""

    def __getattr__(self, name: str) -> type[Placeholder]:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


def lend_torch() -> bool:
    """Let MosaicML's modules be imported without torch, whose names they mention but do not use to read a local set.

    Returns whether names were lent: the packages' own `__init__` files, which import cloud clients, are left out then.
    """
    try:
        importlib.metadata.distribution("torch")
        return False
    except importlib.metadata.PackageNotFoundError:
        pass
    if "streaming" in sys.modules:
        return True
    folder = Path(str(importlib.metadata.distribution("mosaicml-streaming").locate_file("streaming")))
    for name, path in (("streaming", folder), ("streaming.base", folder / "base")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    for name in ("torch", "torch.utils", "torch.utils.data", "torch.distributed"):
        sys.modules[name] = PlaceholderModule(name)
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]  # type: ignore[attr-defined]
    return True


class Mds(Contestant):
    """`LocalDataset[i]` of MosaicML's streaming, shards of 64 MiB, a column of bytes."""

    label = "MDS"
    container = "mds"
    environment = "mds"

    def version(self) -> str:
        try:
            version = importlib.metadata.version("mosaicml-streaming")
        except importlib.metadata.PackageNotFoundError as error:
            raise Missing("mosaicml-streaming is not installed") from error
        return f"mosaicml-streaming {version}" + (", torch's names lent" if lend_torch() else "")

    def build(self) -> None:
        lend_torch()
        from streaming.base.format.mds.writer import MDSWriter

        with MDSWriter(out=str(self.place / "set"), columns={"data": "bytes"}, size_limit=SHARD_BYTES) as writer:
            for data in self.tree.contents():
                writer.write({"data": data})

    def open(self, order: str) -> None:
        lend_torch()
        from streaming.base.local import LocalDataset

        self.dataset: Any = LocalDataset(str(self.place / "set"))

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        dataset = self.dataset
        return [dataset[i]["data"] for i in ids]

    def close(self) -> None:
        del self.dataset


class LitData(Contestant):
    """A row with a reason."""

    label = "litData"
    container = "litdata"

    def version(self) -> str:
        from environment import LITDATA_REASON

        raise Missing(LITDATA_REASON)

    def open(self, order: str) -> None:
        self.version()

    def read(self, ids: Sequence[int]) -> Sequence[Buffer]:
        raise Missing(self.version())

    def close(self) -> None:
        pass


class Ffcv(LitData):
    """A row with a reason."""

    label = "FFCV"
    container = "ffcv"

    def version(self) -> str:
        raise Missing("a source distribution only, which needs OpenCV, libjpeg-turbo and numba: not installed")
