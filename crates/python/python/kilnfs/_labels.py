"""Classes of the files of an index, derived from their paths."""

from __future__ import annotations

from array import array

from ._names import encode

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from . import _native


def labelled(index: _native.Index, group: Literal["parent"] | Callable[[str], str]) -> _native.Index:
    """Returns the index with labels: positions in the sorted list of the classes that `group`
    returns.

    Raises ValueError for an invalid `group`.
    """
    if group == "parent":
        name: Callable[[str], str] = _parent
    elif callable(group):
        name = group
    else:
        raise ValueError(f'group={group!r}: use "parent", a depth or a function from a path to a class')
    numbers: dict[str, int] = {}
    found = array("I")
    for row in range(len(index)):
        found.append(numbers.setdefault(name(index.path(row)), len(numbers)))
    # Sorted by their bytes, as in the native module.
    classes = sorted(numbers, key=encode)
    place = array("I", bytes(4 * len(classes)))
    for label, one in enumerate(classes):
        place[numbers[one]] = label
    return index.with_labels(array("I", (place[number] for number in found)), classes)


def _parent(path: str) -> str:
    """Returns the name of the directory of a file; "" at the root."""
    return path.rpartition("/")[0].rpartition("/")[2]
