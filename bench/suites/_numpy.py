"""An interpreter with NumPy in a tree of its own, as people have it on a cluster, and its cold starts."""

from __future__ import annotations

import functools
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from lib import disks, images, machine
from lib.bench import Bench
from lib.mounts import mount
from lib.process import quiet
from lib.programs import need
from lib.storage import counted, since, slow
from lib.suite import Missing, Row, Run
from pyworker import environment

# Parts of Python that no program on a cluster needs.
LEFT_OUT = ("test", "tests", "idlelib", "ensurepip", "turtledemo", "config-*", "site-packages")


def tree_of(bench: Bench) -> Path:
    """Returns a tree with this machine's Python and NumPy, made once a run. Raises Missing."""
    tree = bench.scratch / "numpy-tree"
    if tree.exists():
        return tree
    environment.ensure()
    code = "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])"
    try:
        packages = Path(quiet(environment.interpreter("peers"), "-c", code).strip())
    except OSError as error:
        raise Missing(f"NumPy is not in a Python environment of the benchmarks: {error}") from error
    library = Path(sysconfig.get_path("stdlib"))
    to = tree / "lib" / library.name
    shutil.copytree(library, to, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    for part in sorted(packages.glob("numpy*")):
        shutil.copytree(part, to / "site-packages" / part.name, symlinks=True)
    (tree / "bin").mkdir()
    shutil.copy2(Path(sys.executable).resolve(), tree / "bin/python3")
    for shared in Path(sysconfig.get_config_var("LIBDIR") or "/").glob("libpython3*.so*"):
        shutil.copy2(shared, tree / "lib" / shared.name)
    # Compiled modules, as an installation has them: else each start would compile them.
    quiet("sh", "-c", '"$0" -m compileall -q "$1" || :', tree / "bin/python3", tree / "lib")
    return tree


def command(root: Path) -> list[str]:
    """Returns the command that imports NumPy, by the interpreter below `root`."""
    start = [f"PYTHONHOME={root}", f"LD_LIBRARY_PATH={root}/lib", "PYTHONDONTWRITEBYTECODE=1"]
    return ["env", *start, str(root / "bin/python3"), "-s", "-c", "import numpy"]


def numpy(bench: Bench) -> Iterator[Row]:
    """Yields cold imports of NumPy from a directory on a disk, and from images on the same disk."""
    machine.need_root("recording")
    tree = tree_of(bench)
    place = bench.new("numpy")
    listed = bench.scratch / "numpy.list"
    plain = bench.image("kiln", "", tree)
    if not listed.exists():
        with mount("kiln mount", plain, place) as one:
            quiet(need("kiln"), "record", "--quiet", "--force", "-o", listed, place, "--", *command(one.root))
    ordered = bench.image("kiln", f"--order {listed}", tree)
    disk = bench.scratch / "numpy.ext4"
    if not disk.exists():
        disks.filled(disk, "ext4", tree)

    def run(server: str, image: Path, options: list[str]) -> Run:
        machine.drop_caches()
        image.read_bytes()  # the storage is slow, not the disk below it
        quiet(sys.executable, "-c", "pass")  # the libraries of the system are not in the tree
        with slow(image, bench.new("slow"), 1000) as source:
            begun = time.perf_counter()
            before = counted(source)
            with mount(server, source, place, options=options) as one:
                found = one.client(command(one.root), cwd=Path("/"))
                return {**found, "with_mount_s": time.perf_counter() - begun, **since(source, before)}

    ways = [
        ("ext4", "directory", "kernel ext4", disk, []),
        ("kiln", "image", "kiln mount", plain, []),
        ("kiln --order", "image, --preload", "kiln mount", ordered, ["--preload", str(listed)]),
        ("kiln --order", "image, kernel", "kernel erofs", ordered, []),
    ]
    for made, way, server, image, options in ways:
        row = Row({"made by": made, "from": way}, functools.partial(run, server, image, options))
        row.command = "python3 -c 'import numpy'"
        row.ours = made != "ext4"
        if row.ours:
            row.check = functools.partial(images.same, image, tree)
        yield row
