"""The sets and containers of a run, and the processes that work with them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lib import disks, images, mounts
from lib.process import Failed, measure
from lib.suite import Missing, Row, Run, Wrong
from pyworker import environment
from pyworker.base import Contestant, allocated
from pyworker.contestants import CONTESTANTS

FILES = {"photos": (5000, 200), "texts": (100_000, 1000), "pictures": (1000, 20)}  # in full, quick
BATCH = {"photos": 64, "texts": 256, "pictures": 64}
TMPFS_MOST = 5 << 29
TIMEOUT_S = 3600


class Stage:
    """Sets and containers of a run. They lie in its scratch directory until the last table has ended."""

    def __init__(self, home: Path, quick: bool) -> None:
        self.home, self.quick = home, quick
        self.sets: set[str] = set()
        self.built: dict[Path, Run | Exception] = {}
        self.checked: dict[tuple[str, str], str] = {}

    def work(self, kind: str, environment_name: str = "peers", **fields: Any) -> dict[str, Any]:
        """Runs a process of `worker.py`, and returns its answer. Raises Missing, Wrong, Failed."""
        environment.ensure()
        command = [environment.interpreter(environment_name), Path(environment.__file__).with_name("worker.py")]
        ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, errors="replace", start_new_session=True, **ends) as child:
            try:
                said, messages = child.communicate(json.dumps({"kind": kind, **fields}), TIMEOUT_S)
            except BaseException:  # an interrupt, too: its children do not run on
                os.killpg(child.pid, signal.SIGKILL)
                raise
        if child.returncode != 0 or not said:
            raise Failed(f"exit code {child.returncode}: {messages.strip()[-500:]}")
        answer: dict[str, Any] = json.loads(said)
        for name, error in (("missing", Missing), ("wrong", Wrong), ("failed", Failed)):
            if name in answer:
                raise error(answer[name])
        return answer

    def tree(self, name: str) -> Path:
        """Returns the directory of a set, which is made once."""
        path = self.home / name
        if name not in self.sets:
            shutil.rmtree(path, ignore_errors=True)
            self.work("measure.make_set", tree=str(path), files=FILES[name][self.quick])
            self.sets.add(name)
        return path

    def container(self, of_set: str, kind: type[Contestant]) -> Path:
        """Returns a contestant's container, which is made once. Raises what its making has raised."""
        path = self.tree(of_set) / kind.container
        if kind.container == "tree":
            return path
        if path not in self.built:
            try:
                self.built[path] = self.build(of_set, kind, path)
            except (Missing, Failed) as error:
                self.built[path] = error
        if isinstance(found := self.built[path], Exception):
            raise found
        return path

    def build(self, of_set: str, kind: type[Contestant], path: Path) -> Run:
        """Makes a container, and returns what that costs."""
        tree = self.tree(of_set)
        if kind.builder:
            run = measure(images.command(kind.builder, kind.options(of_set), tree / "tree", path), flush=path).run()
        else:
            run = self.work("measure.build", kind.environment, label=kind.label, tree=str(tree), file=str(path))
        return {**run, "size_bytes": allocated(path)}

    @contextmanager
    def attached(self, of_set: str, kind: type[Contestant]) -> Iterator[dict[str, Any]]:
        """The container, mounted if it needs that, as fields of a specification."""
        path = self.container(of_set, kind)
        place = self.home / "mount"
        if kind.server == "tmpfs":
            count, size = disks.entries(path)
            if size > TMPFS_MOST:
                raise Missing(f"the set has {size:,} bytes, and at most {TMPFS_MOST:,} are taken of the memory")
            with disks.tmpfs(place, size + 8192 * count):
                shutil.copytree(path, place, dirs_exist_ok=True)
                yield {"file": str(place)}
        elif kind.server:
            with mounts.mount(kind.server, path, place) as mount:
                yield {"file": str(mount.root), "server": mount.pid, "kernel_threads": mount.threads}
        else:
            yield {"file": str(path)}

    def read(self, work: str, of_set: str, label: str, **fields: Any) -> dict[str, Any]:
        """Does a contestant's work in a process of its own."""
        kind = CONTESTANTS[label]
        with self.attached(of_set, kind) as where:
            fields = {"batch": BATCH[of_set], **fields, **where}
            return self.work(work, kind.environment, label=label, tree=str(self.tree(of_set)), **fields)

    def check(self, of_set: str, row: Row, label: str) -> None:
        """Compares every byte of a contestant with the source, once a run, and puts its version into the row."""
        if (of_set, label) not in self.checked:
            self.checked[of_set, label] = self.read("measure.check", of_set, label)["version"]
        kind = CONTESTANTS[label]
        where = f" below a mount by {kind.server}" if kind.server else ""
        row.command = f"{self.checked[of_set, label]}: {kind.call}{where}"
