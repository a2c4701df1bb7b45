"""The process of one measurement: a specification as JSON on stdin, its answer as JSON on stdout. All that libraries
print goes to stderr."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])


def main() -> None:
    """Answers with numbers, or with `missing`, `wrong` or `failed` and the reason."""
    out = os.dup(1)
    os.dup2(2, 1)
    from lib.suite import Missing
    from pyworker.measure import Spec

    spec = Spec(**json.load(sys.stdin))
    module, _, function = spec.kind.partition(".")
    try:
        answer = getattr(importlib.import_module(f"pyworker.{module}"), function)(spec)
    except Missing as reason:
        answer = {"missing": str(reason)}
    except Exception as error:
        traceback.print_exc()
        answer = {"failed": f"{type(error).__name__}: {error}"}
    os.write(out, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
