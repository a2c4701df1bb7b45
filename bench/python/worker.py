"""The process of one measurement: a specification as JSON on stdin, its result as JSON on stdout; all that libraries
print goes to stderr."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """One of: numbers, `{"missing": reason}`, `{"failed": error}`."""
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        answer = measured(json.load(sys.stdin))
    except Exception as error:
        import traceback

        traceback.print_exc()
        answer = {"failed": f"{type(error).__name__}: {error}"}
    os.write(out, json.dumps(answer).encode())


def measured(fields: dict[str, object]) -> dict[str, object]:
    """Run the requested measurement."""
    import measure
    import special
    from contestants.base import Missing

    kinds = {
        "prepare": measure.prepare,
        "read": measure.read,
        "load": measure.load,
        "memory": special.memory,
        "index": special.index,
        "open": special.opening,
    }
    spec = measure.Spec(**fields)  # type: ignore[arg-type]
    try:
        return kinds[spec.kind](spec)
    except Missing as reason:
        return {"missing": str(reason)}


if __name__ == "__main__":
    main()
