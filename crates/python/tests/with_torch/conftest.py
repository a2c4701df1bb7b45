"""Tests that need PyTorch: `../torch_root.sh test` has it. Elsewhere they are skipped."""

from __future__ import annotations

import multiprocessing
from importlib.util import find_spec

if find_spec("torchvision"):
    # Workers of a fork server begin with what it has imported.
    multiprocessing.set_forkserver_preload(["torchvision.datasets", "torch.utils.data"])
