"""EROFS images as datasets: one file instead of millions, read without mounting.

>>> import kilnfs
>>> with kilnfs.open("train.erofs") as image:
...     image.read("cat/1.txt")
...     sorted(image.listdir("cat"))
b'meow\\n'
['1.txt', '2.txt']

Names are `str` (UTF-8 with surrogateescape, whatever the locale) or `bytes`, and what comes back is of the same type.
Errors are `OSError` with the path in the image as `filename` and the image as `filename2`.
"""

from __future__ import annotations

# What the names are made of is imported when they are used: `import kilnfs` costs nothing that is not needed. Type
# checkers take this name for `typing.TYPE_CHECKING`, which would have to be imported.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from ._errors import CorruptImageError, ImageError, UnsupportedImageError
    from ._image import Image, open
    from ._native import Batch, Index, __version__
    from ._pack import Builder, PackResult, estimate, pack
    from ._path import Path
    from ._samples import Samples

_MODULES = {
    "Batch": "_native",
    "Builder": "_pack",
    "CorruptImageError": "_errors",
    "Image": "_image",
    "ImageError": "_errors",
    "Index": "_native",
    "PackResult": "_pack",
    "Path": "_path",
    "Samples": "_samples",
    "UnsupportedImageError": "_errors",
    "__version__": "_native",
    "estimate": "_pack",
    "open": "_image",
    "pack": "_pack",
}

_SUBMODULES = ("fs", "shards", "torch", "torchvision")
"""Modules that users import, or name: `kilnfs.shards.open`."""

__all__ = [
    "Batch",
    "Builder",
    "CorruptImageError",
    "Image",
    "ImageError",
    "Index",
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
