"""The command kiln: `python -m kilnfs`, and the script `kiln` that pip installs."""

from __future__ import annotations

import os
import signal
import sys

from . import _native


def main() -> int:
    """Run the command with this process's arguments. Its exit code.

    A mount in the background is a process of its own, which this interpreter is started for once more.
    """
    # The command catches signals that ask it to end, and Python's `signal` does not know.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Python's own handler would only take note, and be asked when the command has ended. Who has the signal ignored, as
    # nohup does, keeps that.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = [os.fsencode(argument) for argument in sys.argv[1:]]
    try:
        return _native.main([b"kiln", *arguments], [os.fsencode(sys.executable), b"-m", b"kilnfs"])
    finally:
        for number, handler in before.items():
            # None: a handler that is not Python's.
            if handler is not None:
                signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
