"""Reads the ranges of hot lists in order below a directory, and prints the seconds of each list as JSON.

    _replay.py ROOT LIST...

It is a program that imports nothing of ours, as it runs where memory is short. Paths are looked up when they are read,
as by a program that starts.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

OCTAL = re.compile(rb"\\([0-7]{3})")
PART = 1 << 20
MAGIC = b"#kiln-hotlist 1"


def entries(path: str) -> list[tuple[int, int, bytes]]:
    """Returns offset, length and path of all entries; length 0 is an inode or a directory. Raises ValueError."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines[0] != MAGIC:
        raise ValueError(f"{path}: no hot list")
    found = []
    for line in lines[1:]:
        if line and not line.startswith(b"#"):
            span, _, name = line.split(b"\t", 2)
            offset, _, length = span.partition(b"+")
            found.append((int(offset), int(length), OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), name)))
    return found


def replay(root: bytes, listed: list[tuple[int, int, bytes]]) -> float:
    """Reads everything. Returns the seconds until the last read."""
    start = time.perf_counter()
    last, fd = b"", -1
    try:
        for offset, length, name in listed:
            path = os.path.join(root, name)
            if length == 0:
                os.lstat(path)
                continue
            if name != last:
                if fd >= 0:
                    os.close(fd)
                last, fd = name, os.open(path, os.O_RDONLY)
            while length > 0 and (part := os.pread(fd, min(length, PART), offset)):
                offset, length = offset + len(part), length - len(part)
    finally:
        if fd >= 0:
            os.close(fd)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps([replay(os.fsencode(sys.argv[1]), entries(path)) for path in sys.argv[2:]]))
