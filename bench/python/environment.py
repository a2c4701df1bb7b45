#!/usr/bin/env python3
"""Virtual environments with the peers: makes them, and says which version or which reason each peer has.

`environment.py` alone makes what is missing below `$KILN_BENCH` (default `~/.cache/kiln-bench/python`) and prints
what is there. A package that cannot be installed keeps its reason in `environment.json`, and its contestants keep
their rows with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import lib  # noqa: E402
from packers import kiln_path, peer_path  # noqa: E402

# Names of virtual environments.
PEERS, MDS, LITDATA = "peers", "mds", "litdata"

# What litData and MosaicML ask for would bring gigabytes of CUDA libraries, which no benchmark of reading uses.
LITDATA_REASON = "needs torch, whose wheel of PyPI brings gigabytes of CUDA libraries: not installed"


@dataclass(frozen=True)
class Package:
    """A distribution of PyPI."""

    name: str  # as pip knows it, with a version if one is needed
    wanted_by: str  # the contestants that need it
    no_deps: bool = False  # install it alone

    @property
    def distribution(self) -> str:
        """The name without a version."""
        return self.name.split("<")[0].split("=")[0]


PACKAGES: dict[str, list[Package]] = {
    PEERS: [
        Package("numpy", "sets, HDF5"),
        Package("xxhash", "all"),
        Package("pillow", "set J"),
        Package("zstandard", "LMDB with zstd, PySquashfsImage"),
        Package("lmdb", "LMDB"),
        Package("webdataset", "WebDataset"),
        Package("h5py", "HDF5"),
        Package("pylance", "Lance"),
        Package("PySquashfsImage", "PySquashfsImage"),
        Package("ratarmountcore", "ratarmountcore"),
        Package("fsspec", "kilnfs"),
    ],
    # MosaicML's reader imports names of torch, but reads without it: `contestants/shards.py` lends it the names.
    MDS: [
        Package("numpy<2.2", "MDS"),
        Package("xxhash<4", "MDS"),
        *(
            Package(name, "MDS")
            for name in ("typing_extensions", "filelock", "brotli", "python-snappy", "zstd", "tqdm", "pillow")
        ),
        Package("mosaicml-streaming", "MDS", no_deps=True),
    ],
    LITDATA: [],
}


def home() -> Path:
    """Return the directory of environments, sets and programs: `$KILN_BENCH`, or `~/.cache/kiln-bench/python`."""
    return Path(os.environ.get("KILN_BENCH") or Path.home() / ".cache/kiln-bench/python").resolve()


def interpreter(environment: str) -> Path:
    """The Python of a virtual environment."""
    return home() / environment / "bin" / "python"


def make(environment: str) -> dict[str, str]:
    """Make a virtual environment, or complete it. Returns the reasons of what cannot be installed."""
    python = interpreter(environment)
    if not python.exists():
        lib.say(f"making {python.parent.parent}")
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
    there, reasons = installed(environment), {}
    for package in PACKAGES[environment]:
        if package.distribution.lower() in there:
            continue
        lib.say(f"  {package.name}")
        flags = ["--no-deps"] if package.no_deps else []
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *flags, package.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
            reasons[package.distribution] = lines[-1].strip()
            lib.say(f"  {package.name}: {reasons[package.distribution]}")
    return reasons


def installed(environment: str) -> dict[str, str]:
    """Versions of the distributions of an environment, by lower-case name; empty if there is no environment."""
    python = interpreter(environment)
    if not python.exists():
        return {}
    listed = "{d.name.lower(): d.version for d in m.distributions()}"
    code = f"import json, importlib.metadata as m; print(json.dumps({listed}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def install_wheel(wheel: str) -> None:
    """Put kilnfs into the peers' environment: a wheel file, or what pip takes in its place."""
    command = [str(interpreter(PEERS)), "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel]
    subprocess.run(command, check=True)


def squashfuse_path() -> Path | None:
    """`squashfuse_ll`: a newer one below `$PEERS`, else the system's."""
    newest, system = peer_path("squashfuse", "squashfuse_ll"), shutil.which("squashfuse_ll")
    return newest if newest.exists() else Path(system) if system else None


def mksquashfs_path() -> Path | None:
    """`mksquashfs`: a newer one below `$PEERS`, else the system's."""
    newest, system = peer_path("squashfs-tools", "mksquashfs"), shutil.which("mksquashfs")
    return newest if newest.exists() else Path(system) if system else None


def programs() -> dict[str, str]:
    """Versions of the programs that contestants run, or why they do not."""
    found = {}
    for name, path, flag, hint in (
        ("kiln", kiln_path(), "--version", "build it with `cargo build --release`, or set KILN"),
        ("mksquashfs", mksquashfs_path(), "-version", "apt install squashfs-tools, or set PEERS"),
        ("squashfuse_ll", squashfuse_path(), "--help", "apt install squashfuse, or set PEERS"),
    ):
        try:
            done = subprocess.run([str(path), flag], capture_output=True, text=True, errors="replace", check=False)
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(name.split("_")[0])]
            found[name] = (lines or ["unknown"])[0].strip()
        except OSError as error:
            found[name] = f"not run: {error.strerror}: {hint}"
    return found


def facts() -> dict[str, object]:
    """Versions and reasons, for the JSON file."""
    kept = home() / "environment.json"
    reasons: dict[str, dict[str, str]] = json.loads(kept.read_text()) if kept.exists() else {}
    versions = {}
    for environment, packages in PACKAGES.items():
        there = installed(environment)
        names = [package.distribution for package in packages] + (["kilnfs"] if environment == PEERS else [])
        versions[environment] = {name: there[name.lower()] for name in names if name.lower() in there}
    return {"versions": versions, "not_installed": {**reasons, "litdata": LITDATA_REASON}, "programs": programs()}


def ensure() -> None:
    """Make all environments that are not complete, and keep the reasons of what fails."""
    home().mkdir(parents=True, exist_ok=True)
    reasons = {name: make(name) for name, packages in PACKAGES.items() if packages}
    (home() / "environment.json").write_text(json.dumps({k: v for k, v in reasons.items() if v}, indent=1) + "\n")


def main() -> int:
    """Exit code 0: rows of what is missing tell their reasons."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--wheel", help="install this wheel of kilnfs (or a path that pip takes) into the peers' environment"
    )
    arguments = parser.parse_args()
    ensure()
    if arguments.wheel:
        install_wheel(arguments.wheel)
    print(json.dumps(facts(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
