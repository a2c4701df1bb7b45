"""Datasets that are too large for one image: divided into shards, packed by many machines, read as
one tree.

```python
from kilnfs import shards

plan = shards.plan("raw/imagenet", into="shards/imagenet", shard_bytes=4 << 30, seed=7)
done = [shards.pack(entry) for entry in plan]  # or by Ray, Dask, Spark: each entry is a separate task
shards.finish(plan, done)  # writes shards/imagenet/manifest.json
image = shards.open("shards/imagenet/manifest.json")
```
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._manifest import Manifest, ManifestError, finish
    from ._pack import pack
    from ._plan import PlanEntry, plan
    from ._sharded_batch import ShardedBatch
    from ._sharded_image import ShardedImage, open
    from ._sharded_index import ShardedIndex

_MODULES = {
    "Manifest": "_manifest",
    "ManifestError": "_manifest",
    "PlanEntry": "_plan",
    "ShardedBatch": "_sharded_batch",
    "ShardedImage": "_sharded_image",
    "ShardedIndex": "_sharded_index",
    "finish": "_manifest",
    "open": "_sharded_image",
    "pack": "_pack",
    "plan": "_plan",
}

__all__ = [
    "Manifest",
    "ManifestError",
    "PlanEntry",
    "ShardedBatch",
    "ShardedImage",
    "ShardedIndex",
    "finish",
    "open",
    "pack",
    "plan",
]


def __getattr__(name: str) -> object:
    # Imported at access, so that a worker that only packs imports no reader.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
