"""Threads, forks and workers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import run_python

import kilnfs

# That is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def names_of(image: kilnfs.Image) -> list[str]:
    """The files that are read here."""
    return ["hello.txt", "big.bin", "hole.bin", *(str(path) for path in image.glob("many/*.JPG"))]


def contents_of(image: kilnfs.Image) -> dict[str, bytes]:
    return {name: image.read(name) for name in names_of(image)}


@contextmanager
def readers(image: kilnfs.Image, count: int) -> Iterator[None]:
    """Threads that read all the time."""
    stop = threading.Event()
    names = names_of(image)

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            image.read(rng.choice(names), rng.randrange(5000))
            image.stat(rng.choice(names))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def check_in_child(image: kilnfs.Image, expected: dict[str, bytes]) -> None:
    """Read everything, and end the process with 1 if it is not what is expected. A child that hangs is killed by its
    alarm.
    """
    import signal

    signal.alarm(120)
    for name, contents in expected.items():
        if image.read(name) != contents:
            sys.exit(f"{name} is wrong")
    with image.open("big.bin") as file:
        if file.read() != expected["big.bin"]:
            sys.exit("the file object is wrong")
    if [bytes(part) for part in image.read_many(list(expected))] != list(expected.values()):
        sys.exit("read_many is wrong")


def test_forks_while_threads_read(image: kilnfs.Image) -> None:
    expected = contents_of(image)
    with readers(image, 4):
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    check_in_child(image, expected)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert contents_of(image) == expected


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers(image: kilnfs.Image, method: str) -> None:
    expected = contents_of(image)
    context = multiprocessing.get_context(method)
    with readers(image, 2):
        workers = [context.Process(target=check_in_child, args=(image, expected)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 3


def read_path(path: kilnfs.Path) -> bytes:
    return path.read_bytes()


def test_paths_go_to_workers(image: kilnfs.Image, tree: Path) -> None:
    paths = list((image / "train").rglob("*.jpg"))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(read_path, paths)
    assert found == [(tree / str(path)[1:]).read_bytes() for path in paths]


def test_many_threads_give_what_one_gives(image: kilnfs.Image) -> None:
    expected = contents_of(image)
    listing = list(image.walk())
    wrong: list[str] = []

    def soak(seed: int) -> None:
        rng = random.Random(seed)
        names = list(expected)
        for _ in range(60):
            name = rng.choice(names)
            start = rng.randrange(len(expected[name]) + 1)
            stop = start + rng.randrange(100_000)
            if image.read(name, start, stop) != expected[name][start:stop]:
                wrong.append(name)
            if bytes(image.view(name, start, stop)) != expected[name][start:stop]:
                wrong.append(name)
            if seed % 4 == 0 and list(image.walk()) != listing:
                wrong.append("walk")
            if seed % 4 == 1:
                chosen = rng.sample(names, 5)
                if [bytes(part) for part in image.read_many(chosen)] != [expected[one] for one in chosen]:
                    wrong.append("read_many")

    threads = [threading.Thread(target=soak, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_while_threads_read(image_path: Path) -> None:
    for _ in range(5):
        image = kilnfs.open(image_path)
        expected = image.read("big.bin")
        outcomes: list[bool] = []

        def read(image: kilnfs.Image = image, expected: bytes = expected, outcomes: list[bool] = outcomes) -> None:
            try:
                while True:
                    outcomes.append(image.read("big.bin") == expected)
            except ValueError:
                outcomes.append(True)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(outcomes) < 4:
            pass
        image.close()
        for thread in threads:
            thread.join()
        assert all(outcomes)


def test_memory_outlives_the_image(image_path: Path) -> None:
    for options in ({}, {"mmap": True}):
        image = kilnfs.open(image_path, **options)
        expected = [image.read(name) for name in ("big.bin", "hello.txt", "all-hole", "empty")]
        views = [image.view(name) for name in ("big.bin", "hello.txt", "all-hole", "empty")]
        batch = image.read_many(["big.bin", "hello.txt"])
        parts = [batch[0], batch[1]]
        assert all(view.readonly for view in views)
        image.close()
        del image, batch
        gc.collect()
        assert [bytes(view) for view in views] == expected
        assert [bytes(part) for part in parts] == expected[:2]
        parts[1][0] = 0  # the caller's own memory


def test_signals_reach_python(image_path: Path) -> None:
    """A program that reads in a loop ends by SIGINT as any other does."""
    program = """
import os, signal, sys, threading, kilnfs
image = kilnfs.open(sys.argv[1])
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        image.read("big.bin")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run_python(program, str(image_path)) == "interrupted\n"
