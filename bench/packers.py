"""Programs that make images: their paths, names, and command lines with equal settings."""
from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import lib

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Setting:
    """Compression settings. `algorithm` is a name of erofs-utils, or None to store."""

    algorithm: Optional[str]
    level: Optional[int]
    unit: int  # bytes: pcluster of EROFS, data block of SquashFS

    @property
    def method(self) -> str:
        """Algorithm and level as EROFS's tools spell them: `zstd,3`."""
        name = self.algorithm or "none"
        return name if self.level is None else f"{name},{self.level}"


@dataclass(frozen=True)
class Packer:
    """A program that makes images."""

    name: str
    path: Path
    version: str


def kiln_path() -> Path:
    """`$KILN`, or the release build of this repository."""
    return Path(os.environ.get("KILN") or REPOSITORY / "target/release/kiln")


def peer_path(folder: str, name: str) -> Path:
    """A peer below `$PEERS` (`~/peers`). Never from PATH: that one might be years older."""
    return Path(os.environ.get("PEERS") or Path.home() / "peers") / folder / "bin" / name


# Folder below the peers' directory, and how the program tells its version.
PEERS = {
    "mkfs.erofs": ("erofs", "-V"),
    "mksquashfs": ("squashfs-tools", "-version"),
    "unsquashfs": ("squashfs-tools", "-version"),
    "sqfstar": ("squashfs-tools", "-version"),
    "tar2sqfs": ("squashfs-tools-ng", "--version"),
}
BUILDERS = ("kiln", "mkfs.erofs", "mksquashfs")


def find_packers(names: Sequence[str] = BUILDERS) -> Dict[str, Packer]:
    """Return the programs among `names` that exist on this machine."""
    places = {name: (kiln_path(), "--version") for name in names if name == "kiln"}
    places.update({name: (peer_path(PEERS[name][0], name), PEERS[name][1]) for name in names if name in PEERS})
    found = {name: open_packer(name, path, flag) for name, (path, flag) in places.items()}
    return {name: packer for name, packer in found.items() if packer is not None}


def mkfs_command(options: str) -> List[str]:
    """mkfs.erofs with these options, in front of an image and a tree."""
    mkfs = find_packers(("mkfs.erofs",)).get("mkfs.erofs")
    if mkfs is None:
        lib.say("nothing to do: mkfs.erofs is needed: set PEERS")
        raise SystemExit(2)
    return [str(mkfs.path), "--quiet", *options.split()]


def missing_packers(found: Dict[str, Packer], names: Sequence[str] = BUILDERS) -> List[str]:
    """Return a sentence for each missing program among `names`."""
    hints = {name: f"not at {peer_path(folder, name)}: set PEERS" for name, (folder, _) in PEERS.items()}
    hints["kiln"] = f"not at {kiln_path()}: build it with `cargo build --release`, or set KILN"
    return [f"SKIP: {name}: {hints[name]}" for name in names if name not in found]


def open_packer(name: str, path: Path, version_flag: str) -> Optional[Packer]:
    """The program at `path` with its version; None if it cannot be run."""
    try:
        done = subprocess.run([path, version_flag], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return None
    lines = (done.stdout or done.stderr).splitlines()
    return Packer(name, path, lines[0].strip() if lines else "unknown")


def grid_command(packer: Packer, words: Sequence[str], source: Path, image: Path) -> List[str]:
    """Return the command that makes `image` with a program and its options from a line of a grid."""
    options = ["--quiet", *words[1:]]
    if packer.name == "kiln":
        return [str(packer.path), "pack", *options, str(source), str(image)]
    return [str(packer.path), *options, str(image), str(source)]


def kiln_command(
    packer: Packer, setting: Setting, source: Path, image: Path, threads: int, options: Sequence[str] = ()
) -> List[str]:
    """`kiln pack`; without `options` with its defaults."""
    method = setting.method.replace("libdeflate", "deflate")  # we have one encoder for both
    how = ["-z", method, "-C", str(setting.unit)] if setting.algorithm else ["--preset", "plain"]
    rest = ["--threads", str(threads), *options, "--quiet", str(source), str(image)]
    return [str(packer.path), "pack", *how, *rest]


def mkfs_erofs_command(
    packer: Packer, setting: Setting, source: Path, image: Path, threads: int, extended: str = ""
) -> List[str]:
    """`mkfs.erofs`, with extended options: image first, source behind it."""
    how = [f"-z{setting.method}", f"-C{setting.unit}"] if setting.algorithm else []
    how += [f"-E{extended}"] if extended else []
    return [str(packer.path), *how, f"--workers={threads}", "--quiet", str(image), str(source)]


def mksquashfs_command(packer: Packer, setting: Setting, source: Path, image: Path, threads: int) -> List[str]:
    """Return the command of `mksquashfs` with the nearest settings; README.md lists the differences."""
    level = [] if setting.level is None else ["-Xcompression-level", str(setting.level)]
    how = {
        None: ["-no-compression"],
        "lz4": ["-comp", "lz4"],
        "lz4hc": ["-comp", "lz4", "-Xhc"],
        "deflate": ["-comp", "gzip", *level],
        "libdeflate": ["-comp", "gzip", *level],
        "lzma": ["-comp", "xz"],
        "zstd": ["-comp", "zstd", *level],
    }[setting.algorithm]
    rest = ["-b", str(setting.unit), "-processors", str(threads), "-noappend", "-no-progress", "-quiet"]
    # The options of a compressor must follow -comp at once.
    return [str(packer.path), str(source), str(image), *how, *rest]
