"""The process of one measurement: a specification as JSON on stdin, its answer as JSON on stdout. All that libraries
print goes to stderr."""

from __future__ import annotations

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
    from pyworker import measure, special

    kinds = {"set": measure.make_set, "build": measure.build, "check": measure.check, "read": measure.read}
    kinds |= {"load": measure.load, "memory": special.memory, "index": special.index, "open": special.opening}
    spec = measure.Spec(**json.load(sys.stdin))
    try:
        answer = kinds[spec.kind](spec)
    except Missing as reason:
        answer = {"missing": str(reason)}
    except Exception as error:
        traceback.print_exc()
        answer = {"failed": f"{type(error).__name__}: {error}"}
    os.write(out, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
