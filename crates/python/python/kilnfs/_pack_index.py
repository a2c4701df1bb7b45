"""Index that is packed behind its image."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._image import Image, index_choice

if TYPE_CHECKING:
    from collections.abc import Mapping


def index_arguments(choice: bool | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `Image.index` for an index that is packed; True stands for those of
    `Samples`."""
    if isinstance(choice, bool):
        return {"group": 1}
    arguments = dict(choice)
    unknown = arguments.keys() - {"root", "glob", "extensions", "group"}
    if unknown:
        raise TypeError(f"index: {min(unknown)!r}: use root, glob, extensions and group")
    group = arguments.get("group")
    if not (group is None or isinstance(group, int)):
        raise ValueError(f"index: group={group!r}: use a depth, or None")
    return arguments


def store_index(image: str | bytes | os.PathLike[str] | os.PathLike[bytes], choice: bool | Mapping[str, Any]) -> int:
    """Writes an index behind an image, as `kilnfs.pack(index=…)` does. Returns its length in
    bytes."""
    arguments = index_arguments(choice)
    with Image(image) as opened:
        if choice is True and not opened.index(group=1).classes:
            # `Samples` uses these arguments if there are no classes.
            arguments = {}
        root, *rest = (arguments.get(name) for name in ("root", "glob", "extensions", "group"))
        return opened._store_index(os.fsencode(image), "/" if root is None else root, **index_choice(*rest))
