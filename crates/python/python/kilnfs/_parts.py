"""Samples that consist of several files of an index."""

from __future__ import annotations

import errno
from array import array
from typing import TYPE_CHECKING

from ._names import failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from ._native import Index
    from .shards import ShardedIndex


class Parts:
    """Rows of the parts of each sample in an index: 8 bytes for each part of each sample.

    Files with the same stem are a sample. The stem is the path without the ending that identifies
    the part; of several matching endings the longest counts, and upper and lower case of ASCII
    letters are the same, as in `Image.index`. """

    __slots__ = ("names", "rows")

    def __init__(self, names: tuple[str, ...], rows: array[int]) -> None:
        self.names = names
        self.rows = rows
        """Rows, 'Q': all parts of the first sample, then of the second."""

    @classmethod
    def of(
        cls, index: Index | ShardedIndex, endings: Mapping[str, str], missing: Literal["raise", "skip"], image: str
    ) -> Parts:
        """Finds the samples of an index, in the order of their first files.

        Raises FileNotFoundError that names the stem of a sample with a missing part, unless
        `missing` is "skip", and FileExistsError if two files are the same part. """
        ways = sorted(
            ((ending.lower(), nth) for nth, ending in enumerate(endings.values())),
            key=lambda way: len(way[0]),
            reverse=True,
        )
        names, width = tuple(endings), len(endings)
        samples: dict[str, int] = {}
        rows = array("q")
        for row, path in enumerate(index):
            lower = path.lower()
            for ending, nth in ways:
                if lower.endswith(ending):
                    break
            else:
                continue
            stem = path[: len(path) - len(ending)]
            at = samples.setdefault(stem, len(samples)) * width
            if at == len(rows):
                rows.extend([-1] * width)
            if rows[at + nth] >= 0:
                other = index[rows[at + nth]]
                text = f"a second part {names[nth]!r} of {stem!r}, besides {other!r}"
                raise failure(errno.EEXIST, path, image, text)
            rows[at + nth] = row
        lacking = [(stem, at * width) for stem, at in samples.items() if -1 in rows[at * width : (at + 1) * width]]
        if lacking and missing == "raise":
            stem, at = lacking[0]
            nth = rows.index(-1, at)
            ending = endings[names[nth - at]]
            more = f", and {len(lacking) - 1} more samples lack a part" if len(lacking) > 1 else ""
            text = f'no part {names[nth - at]!r} ({ending}) of this sample{more}: missing="skip" leaves them out'
            raise failure(errno.ENOENT, stem, image, text)
        for _, at in reversed(lacking):
            del rows[at : at + width]
        return cls(names, array("Q", rows))

    def __len__(self) -> int:
        return len(self.rows) // len(self.names)

    def first(self) -> array[int]:
        """Returns the row of the first part of each sample."""
        return self.rows[:: len(self.names)]

    def of_samples(self, samples: Iterable[int]) -> array[int]:
        """Returns the rows of all parts of these samples, sample by sample."""
        width = len(self.names)
        return array("Q", [row for at in samples for row in self.rows[at * width : (at + 1) * width]])
