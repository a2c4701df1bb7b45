"""Tests that need PyTorch: `../torch_root.sh test` has it. Elsewhere they are skipped."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

pytest.importorskip("torch", reason="PyTorch is not installed: crates/python/tests/torch_root.sh test")
pytest.importorskip("torchvision", reason="torchvision is not installed: crates/python/tests/torch_root.sh test")

# Workers of a fork server begin with what it has imported.
multiprocessing.set_forkserver_preload(["torchvision.datasets", "torch.utils.data"])
