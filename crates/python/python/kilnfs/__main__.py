"""The command kiln, as `python -m kilnfs`. Its `pack` defaults to preset "balanced" and order by
path, unlike `kilnfs.pack`.

pip installs it as the script `kiln`, too.
"""

from __future__ import annotations

import os
import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of this process, and returns its exit code.

    For a mount in the background, the command starts this interpreter again.
    """
    # The command sets handlers for signals that end it, which Python's `signal` does not notice.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Python's own handler would only run after the command has ended. A signal that is ignored, as
    # by nohup, stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = [os.fsencode(argument) for argument in sys.argv[1:]]
    try:
        return _native.main([b"kiln", *arguments], [os.fsencode(sys.executable), b"-m", b"kilnfs"])
    finally:
        for number, handler in before.items():
            # None stands for a handler that was not set by Python.
            if handler is not None:
                signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
