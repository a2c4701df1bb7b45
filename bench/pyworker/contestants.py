"""All contestants, by label."""

from __future__ import annotations

from pyworker import formats, images, plain
from pyworker.base import Contestant

_ALL: tuple[type[Contestant], ...] = (*images.ALL, images.BY_URL, *plain.ALL, *formats.ALL)
CONTESTANTS = {one.label: one for one in _ALL}
