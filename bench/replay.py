#!/usr/bin/env python3
"""Read the ranges of hot lists in order below a directory, and print the seconds for each list.

Paths are looked up when they are read, as a program does. Without files of this repository: it runs where memory is short.
"""
from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import List, Tuple

OCTAL = re.compile(rb"\\([0-7]{3})")
PART = 1 << 20


def entries(path: str) -> List[Tuple[int, int, bytes]]:
    """Offset, length and path of the entries of a list; length 0 is an inode or a directory."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines[0] != b"#kiln-hotlist 1":
        raise ValueError(f"{path}: no hot list")
    found = []
    for line in lines[1:]:
        if line and not line.startswith(b"#"):
            span, _, name = line.split(b"\t", 2)
            offset, _, length = span.partition(b"+")
            found.append((int(offset), int(length), OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), name)))
    return found


def replay(root: bytes, listed: List[Tuple[int, int, bytes]]) -> float:
    """Read everything. Seconds until the last read."""
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
            while length > 0:
                part = os.pread(fd, min(length, PART), offset)
                if not part:
                    break
                offset, length = offset + len(part), length - len(part)
    finally:
        if fd >= 0:
            os.close(fd)
    return time.perf_counter() - start


def main() -> int:
    """`replay.py ROOT LIST...`"""
    lists = [entries(path) for path in sys.argv[2:]]
    print(json.dumps([replay(os.fsencode(sys.argv[1]), listed) for listed in lists]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
