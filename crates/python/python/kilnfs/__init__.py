"""EROFS images as datasets: one file instead of millions, read without mounting.

>>> import kilnfs
>>> with kilnfs.open("train.erofs") as image:
...     image.read("cat/1.txt")
...     sorted(image.listdir("cat"))
b'meow\\n'
['1.txt', '2.txt']

Names are `str` (UTF-8 with surrogateescape, in any locale) or `bytes`, and results are of the same
type. Errors are `OSError` with the path in the image as `filename` and the image as `filename2`.
"""

from __future__ import annotations

# Names are imported when they are used, so that `import kilnfs` costs nothing that is not needed.
# Type checkers treat this name as `typing.TYPE_CHECKING`, which would have to be imported.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._errors import CorruptImageError, ImageError, UnsupportedImageError
    from ._image import Image
    from ._builder import Builder
    from ._native import Batch, Index, __version__
    from ._open import open
    from ._pack import estimate, pack
    from ._pack_options import PackOptions
    from ._pack_result import PackResult
    from ._path import Path
    from ._samples import Samples

_MODULES = {
    "Batch": "_native",
    "Builder": "_builder",
    "CorruptImageError": "_errors",
    "Image": "_image",
    "ImageError": "_errors",
    "Index": "_native",
    "PackOptions": "_pack_options",
    "PackResult": "_pack_result",
    "Path": "_path",
    "Samples": "_samples",
    "UnsupportedImageError": "_errors",
    "__version__": "_native",
    "estimate": "_pack",
    "open": "_open",
    "pack": "_pack",
}

_SUBMODULES = ("fs", "shards", "torch", "torchvision")
"""Submodules that are also imported by access, as in `kilnfs.shards.open`."""

__all__ = [
    "Batch",
    "Builder",
    "CorruptImageError",
    "Image",
    "ImageError",
    "Index",
    "PackOptions",
    "PackResult",
    "Path",
    "Samples",
    "UnsupportedImageError",
    "__version__",
    "estimate",
    "open",
    "pack",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None and name not in _SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if module is None:
        return import_module(f"{__name__}.{name}")

    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
