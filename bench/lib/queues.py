"""Reads whole small files at random by N processes at once: one driver for mounts and for libraries.

It is a program, so that a library runs under the Python that has it (3.9 or newer); it imports nothing of ours:

    queues.py KIND PLACE DEPTH SECONDS [--shared] [--compare TREE] < NAMES

KIND is `mount` or `stat` (a directory, of whose names the latter asks for attributes only), `lmdb` (a database) or
`kilnfs` (an image). Each process has every DEPTH-th name; with
`--shared` all take names from one queue, as a published benchmark did. Who still reads two seconds after the end is
stopped. It prints a run as JSON: files a second, bytes a second, seconds, CPU seconds of the readers.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import signal
import struct
import sys
import time

PIECE = 1 << 20
RECORD = struct.Struct("dddd")  # files, bytes, CPU seconds, time of the end
GRACE_S = 2.0


def opened(kind, place):
    """Returns a function that reads a file by its name."""
    if kind == "mount":
        root = os.open(place, os.O_RDONLY | os.O_DIRECTORY)

        def read(name):
            fd = os.open(name, os.O_RDONLY, dir_fd=root)
            try:
                data = os.read(fd, PIECE)
                while more := os.read(fd, PIECE):
                    data += more
                return data
            finally:
                os.close(fd)

        return read
    if kind == "stat":
        root = os.open(place, os.O_RDONLY | os.O_DIRECTORY)

        def look(name):
            os.stat(name, dir_fd=root, follow_symlinks=False)
            return b""

        return look
    if kind == "lmdb":
        import lmdb

        values = lmdb.open(place, subdir=False, readonly=True, lock=False, readahead=False).begin()
        return lambda name: values.get(name.encode())
    if kind == "kilnfs":
        import kilnfs

        return kilnfs.open(place).read
    raise SystemExit(f"no kind {kind!r}")


def work(read, names, record, until, compare):
    """Reads files until there are no more, or the time is over; keeps its record up to date."""
    files, size, before_s = 0, 0, time.process_time()
    for name in names:
        data = read(name)
        if compare and data != open(os.path.join(compare, name), "rb").read():
            raise SystemExit(f"{name}: other bytes")
        files, size = files + 1, size + len(data)
        now = time.monotonic()
        RECORD.pack_into(*record, files, size, time.process_time() - before_s, now)
        if now > until:
            break


def main():
    """Starts readers, lets them go at the same moment, and tells what they have done."""
    kind, place, depth, seconds, *more = sys.argv[1:]
    depth, compare = int(depth), more[more.index("--compare") + 1] if "--compare" in more else ""
    names = sys.stdin.read().split("\n")
    queue = multiprocessing.get_context("fork").Queue() if "--shared" in more else None
    if queue:
        for item in [*names, *[None] * depth]:
            queue.put(item)
    records = mmap.mmap(-1, RECORD.size * depth)
    ready, go = os.pipe(), os.pipe()
    children = []
    for number in range(depth):
        child = os.fork()
        if child == 0:
            try:
                read = opened(kind, place)
                mine = iter(queue.get, None) if queue else names[number::depth]
                os.write(ready[1], b".")
                os.read(go[0], 1)
                work(read, mine, (records, number * RECORD.size), time.monotonic() + float(seconds), compare)
                os._exit(0)
            except BaseException as error:
                os.write(ready[1], b"!")  # else nobody is let go
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
        children.append(child)
    for _ in children:
        os.read(ready[0], 1)
    start = time.monotonic()
    os.write(go[1], b"." * depth)
    failed = waited(children, start + float(seconds) + GRACE_S)
    done = [RECORD.unpack_from(records, number * RECORD.size) for number in range(depth)]
    files, size, cpu_s = (sum(one[field] for one in done) for field in range(3))
    wall_s = max([one[3] - start for one in done if one[0]] or [float(seconds)])
    run = {"files": files, "rate": files / wall_s, "bytes_s": size / wall_s, "wall_s": wall_s, "cpu_s": cpu_s}
    print(json.dumps(run))
    return int(failed)


def waited(children, until):
    """Waits for readers, and stops those that read too long. Returns true if one has failed."""
    failed, left = False, set(children)
    while left:
        for child in list(left):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                left.discard(child)
                failed = failed or os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL)
        if left and time.monotonic() > until:
            for child in left:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01 if left else 0)
    return failed


if __name__ == "__main__":
    sys.exit(main())
