#!/usr/bin/env python3
"""Virtual environments with the peers of the suite `python`.

The suite makes what is missing below `$KILN_BENCH`, by default `~/.cache/kiln-bench/python`. A package that cannot be
installed keeps its reason in `reasons.json`, and its rows show it. kilnfs comes by `bench/pyworker/environment.py
--wheel crates/python`, which builds it, or from a wheel.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

# Distributions by environment. MosaicML's reader names torch, but reads without it (`formats.lend_torch`): what it asks
# for would bring gigabytes of CUDA libraries, so it is installed without that.
PACKAGES = {
    "peers": "numpy xxhash pillow zstandard lmdb webdataset h5py pylance PySquashfsImage ratarmountcore fsspec",
    "mds": "numpy<2.2 xxhash<4 typing_extensions filelock brotli python-snappy zstd tqdm pillow mosaicml-streaming",
}
ALONE = {"mosaicml-streaming"}
# Peers that no environment has, with the reasons.
ABSENT = {
    "litData": "needs torch, whose wheel of PyPI brings gigabytes of CUDA libraries: not installed",
    "FFCV": "a source distribution only, which needs OpenCV, libjpeg-turbo and numba: not installed",
}


def home() -> Path:
    """Returns the directory of the environments."""
    return Path(os.environ.get("KILN_BENCH") or Path.home() / ".cache/kiln-bench/python").resolve()


def interpreter(environment: str) -> Path:
    """Returns the Python of an environment."""
    return home() / environment / "bin" / "python"


def why(distribution: str) -> str:
    """Returns why a distribution is not there."""
    kept = home() / "reasons.json"
    found: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    if distribution == "kilnfs":
        return "kilnfs is not installed: run bench/pyworker/environment.py --wheel crates/python"
    return f"{distribution} is not installed: {found.get(distribution, 'run bench/pyworker/environment.py')}"


def installed(environment: str) -> dict[str, str]:
    """Returns the versions of the distributions of an environment, by lower-case name."""
    listed = "{d.name.lower(): d.version for d in m.distributions()}"
    code = f"import json, importlib.metadata as m; print(json.dumps({listed}))"
    done = subprocess.run([interpreter(environment), "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def pip(environment: str, *arguments: str) -> str:
    """Runs pip in an environment. Returns the last line of its errors; empty if it succeeds."""
    flags = ["-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([interpreter(environment), *flags, *arguments], capture_output=True, text=True, check=False)
    return (done.stderr.strip() or "pip failed").splitlines()[-1].strip() if done.returncode else ""


@functools.cache
def ensure() -> None:
    """Makes the environments that are not complete, once a run, and keeps the reasons of what fails."""
    reasons = {}
    for environment, packages in PACKAGES.items():
        if not interpreter(environment).exists():
            subprocess.run([sys.executable, "-m", "venv", home() / environment], check=True)
        there = installed(environment)
        for package in packages.split():
            name = package.partition("<")[0]
            if name.lower() not in there and (said := pip(environment, package, *["--no-deps"] * (name in ALONE))):
                reasons[name] = said
    (home() / "reasons.json").write_text(json.dumps(reasons, indent=1) + "\n")


def main() -> int:
    """Prints what is there; rows of what is missing tell their reasons. Returns 1 if the wheel cannot be installed."""
    import argparse  # every process of a measurement imports this module

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", help="install this wheel of kilnfs, or a path that pip takes")
    wheel = parser.parse_args().wheel
    ensure()
    said = pip("peers", "--force-reinstall", "--no-deps", wheel) if wheel else ""
    print(said or json.dumps({name: installed(name) for name in PACKAGES}, indent=1))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
