"""The suites that are there: each module of `bench/suites` with `SUITE = Suite(...)`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from lib.suite import Suite

BENCH = Path(__file__).resolve().parent.parent


def names() -> list[str]:
    """Returns the names of all suites, in order."""
    return sorted(path.stem for path in (BENCH / "suites").glob("*.py") if not path.stem.startswith("_"))


def load(name: str) -> Suite:
    """Imports a suite. Raises KeyError if there is none of this name, ValueError if its module has no `SUITE`."""
    known = names()
    if name not in known:
        raise KeyError(f"no suite {name!r}: there are {', '.join(known) or 'none'}")
    if str(BENCH) not in sys.path:
        sys.path.insert(0, str(BENCH))
    suite = getattr(importlib.import_module(f"suites.{name}"), "SUITE", None)
    if not isinstance(suite, Suite):
        raise ValueError(f"bench/suites/{name}.py: SUITE is {suite!r}, not a Suite")
    if suite.name != name:
        raise ValueError(f"bench/suites/{name}.py: SUITE.name is {suite.name!r}")
    return suite
