#!/usr/bin/env python3
"""Makes the trees and files that the suites read, from packages of one suite of the distribution: the same everywhere.

    corpora.py [NAME...] [--out DIR] [--text-size MIB] [--mixed-size MIB]

DIR is $CORPUS or ~/corpus. What is there is kept. `DIR/corpora.json` has what each holds:

* `quick`: 600 files of text and programs; of this machine's own /usr if no package can be downloaded
* `mini`: programs, fonts, documentation, sources and one big file
* `text`, `mixed`: a file of text and a tar of programs, stand-ins for enwik9 and silesia.tar; their LZ4 ratio is told
* `linux-source`: the sources of a kernel
* `rootfs`: a desktop system's files (no script of a package has run)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lib.programs import find

PEERS_SH = Path(__file__).resolve().with_name("peers.sh")
TIME = 1_700_000_000  # of what is made here
MIB = 1 << 20
KERNEL = "linux-source-6.1"
QUICK_PACKAGES = ("coreutils", "libpython3.11-stdlib", "manpages", "perl-base")
QUICK_FILES, QUICK_BYTES = 600, 12_000_000
SYSTEM = (
    "base-files base-passwd bash coreutils util-linux init dash dpkg apt grep sed tar gzip findutils passwd login "
    "xfce4 xfce4-terminal xserver-xorg firefox-esr git python3 perl man-db manpages "
    "manpages-dev fonts-dejavu fonts-noto-core vim-runtime tzdata locales"
).split()


class Corpora:
    """The folder of all corpora. Methods make one each, under a temporary name."""

    def __init__(self, out: Path, text_size: int, mixed_size: int) -> None:
        self.out = out
        self.text_size = text_size
        self.mixed_size = mixed_size

    def need(self, name: str) -> Path:
        """Returns the path of a corpus, which is made if it is not there."""
        path = self.out / name
        if not path.exists():
            print(f"{name} ...", flush=True)
            new = self.out / f".{name}.new"
            shutil.rmtree(new, ignore_errors=True)
            new.unlink(missing_ok=True)
            MAKERS[name](self, new)
            new.rename(path)
        return path

    def quick(self, new: Path) -> None:
        """Copies files in the order of their names' digests, so that all kinds are among them."""
        with tempfile.TemporaryDirectory(dir=self.out) as place:
            source = Path(place) / "root"
            try:
                for package in fetched(Path(place), QUICK_PACKAGES):
                    subprocess.run(["dpkg-deb", "-x", package, source], check=True)
            except subprocess.CalledProcessError as error:
                print(f"quick: {error}; taken from this machine's /usr", file=sys.stderr)
                source = Path("/usr")
            copy(source, chosen(source, QUICK_FILES, QUICK_BYTES), new)

    def mini(self, new: Path) -> None:
        """Copies parts of two other corpora, and joins libraries to one big file."""
        usr, sources = self.need("rootfs") / "usr", self.need("linux-source")
        parts = {"bin": ["bin", "lib/python3", "lib/python3.11", "lib/git-core"], "share": ["share/man", "share/fonts"]}
        for folder, names in parts.items():
            for name in names:
                shutil.copytree(usr / name, new / folder / Path(name).name, symlinks=True)
        for name in ("fs", "include", "Documentation"):
            shutil.copytree(sources / name, new / "src" / name, symlinks=True)
        libraries = sorted(path for path in (usr / "lib").glob("*-linux-gnu/*.so*") if plain(path))
        (new / "big").mkdir()
        join((path for path in libraries if path.stat().st_size < 8 * MIB), 96 * MIB, new / "big/libraries.bin")
        for path in (new / "big/libraries.bin", *sorted(new.iterdir()), new):
            os.utime(path, (TIME, TIME))

    def text(self, new: Path) -> None:
        """Joins documentation and sources, without one driver's endless tables of registers."""
        root = self.need("linux-source")
        names = sorted(name for name in walk(root) if "/amd/" not in name and Path(name).suffix in (".rst", ".txt"))
        names += sorted(name for name in walk(root) if "/amd/" not in name and Path(name).suffix == ".c")
        join((root / name for name in names), self.text_size, new)

    def mixed(self, new: Path) -> None:
        """Packs programs, libraries, fonts, tables and pictures, in the order of their names' digests."""
        root = self.need("rootfs")
        names = [name for name in walk(root) if name.startswith("usr/") and plain(root / name)]
        names = [name for name in names if not name.startswith(("usr/lib/modules", "usr/share/doc", "usr/include"))]
        left = self.mixed_size
        with tarfile.open(new, "w", format=tarfile.USTAR_FORMAT) as tar:
            for name in by_digest(names):
                size = (root / name).stat().st_size
                if len(name) < 100 and 32 << 10 <= size <= min(left, 24 * MIB):
                    tar.add(root / name, name)
                    left -= size

    def linux_source(self, new: Path) -> None:
        """Unpacks the sources from their package."""
        with tempfile.TemporaryDirectory(dir=self.out) as place:
            (package,) = fetched(Path(place), [KERNEL])
            subprocess.run(["dpkg-deb", "-x", package, place], check=True)
            new.mkdir()
            archive = Path(place, "usr/src", KERNEL + ".tar.xz")
            subprocess.run(["tar", "-xf", archive, "-C", new, "--strip-components=1"], check=True)

    def rootfs(self, new: Path) -> None:
        """Unpacks a system, all packages that it needs included."""
        subprocess.run([PEERS_SH, "--unpack", new, *SYSTEM], check=True)
        for suffix in (".asked", ".packages"):
            new.with_name(new.name + suffix).unlink()


MAKERS: dict[str, Callable[[Corpora, Path], None]] = {
    "quick": Corpora.quick,
    "mini": Corpora.mini,
    "text": Corpora.text,
    "mixed": Corpora.mixed,
    "linux-source": Corpora.linux_source,
    "rootfs": Corpora.rootfs,
}
STAND_INS = {"text": "enwik9", "mixed": "silesia.tar"}


def fetched(place: Path, packages: Iterable[str]) -> list[Path]:
    """Downloads packages, and returns their files. Raises CalledProcessError."""
    subprocess.run([PEERS_SH, "--fetch", place, *packages], check=True)
    return sorted(place.glob("*.deb"))


def walk(root: Path) -> Iterator[str]:
    """Yields the paths of all files and links below a directory, relative to it, in any order."""
    for folder, directories, files in os.walk(root):
        links = [name for name in directories if os.path.islink(os.path.join(folder, name))]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in [*files, *links])


def by_digest(names: Iterable[str]) -> list[str]:
    """Returns names in an order that looks random and is the same everywhere."""
    return sorted(names, key=lambda name: hashlib.sha256(os.fsencode(name)).digest())


def plain(path: Path) -> bool:
    """True for a regular file that is not a link."""
    return stat.S_ISREG(path.lstat().st_mode)


def chosen(root: Path, count: int, most: int) -> Iterator[str]:
    """Yields regular files and links, so many and at most so many bytes; none has more than a tenth of these."""
    for name in by_digest(walk(root)):
        about = (root / name).lstat()
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISLNK(about.st_mode):
            continue
        size = about.st_size if stat.S_ISREG(about.st_mode) else 0
        if size <= min(most, QUICK_BYTES // 10) and os.access(root / name, os.R_OK, follow_symlinks=False):
            yield name
            count, most = count - 1, most - size
            if count == 0:
                return


def copy(root: Path, names: Iterable[str], to: Path) -> None:
    """Copies files and links with their folders, and gives folders one time."""
    to.mkdir()
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, to / name, follow_symlinks=False)
    for folder, _, _ in os.walk(to):
        os.utime(folder, (TIME, TIME))


def join(files: Iterable[Path], size: int, to: Path) -> None:
    """Writes files end to end until there are so many bytes."""
    with to.open("wb") as out:
        for path in files:
            out.write(path.read_bytes()[: size - out.tell()])
            if out.tell() == size:
                return
    print(f"{to.name}: only {to.stat().st_size / MIB:.0f} MiB: there is no more", file=sys.stderr)


def counted(path: Path) -> dict[str, int]:
    """Counts files, directories and bytes of a corpus."""
    if path.is_file():
        return {"files": 1, "directories": 0, "bytes": path.stat().st_size}
    found = {"files": 0, "directories": 0, "bytes": 0}
    for folder, directories, files in os.walk(path):
        found["directories"] += sum(not os.path.islink(os.path.join(folder, name)) for name in directories)
        found["files"] += len(files)
        about = (os.lstat(os.path.join(folder, name)) for name in files)
        found["bytes"] += sum(one.st_size for one in about if stat.S_ISREG(one.st_mode))
    return found


def lz4_ratio(path: Path) -> float | None:
    """Returns the size after LZ4 as a share of that before; None if there is no lz4."""
    program = find("lz4") or shutil.which("lz4")
    if program is None:
        return None
    with subprocess.Popen([program, "-1cq", path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        size = sum(map(len, iter(lambda: child.stdout.read(MIB), b"")))
    return size / path.stat().st_size if child.returncode == 0 else None


def about(name: str, path: Path) -> dict[str, object]:
    """Returns what corpora.json says of a corpus."""
    found: dict[str, object] = {**counted(path)}
    if original := STAND_INS.get(name):
        ratio = lz4_ratio(path)
        found["lz4_ratio"] = ratio
        found["note"] = f"stand-in for {original}, LZ4 ratio {'unknown' if ratio is None else f'{ratio:.3f}'}"
    return found


def main() -> int:
    """Makes what is asked for; exit status 1 if one cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("CORPUS") or Path.home() / "corpus"))
    parser.add_argument("--text-size", type=int, default=512, metavar="MIB")
    parser.add_argument("--mixed-size", type=int, default=200, metavar="MIB")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - MAKERS.keys():
        parser.error(f"no corpus {', '.join(sorted(unknown))}: there are {', '.join(MAKERS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    corpora = Corpora(arguments.out.resolve(), arguments.text_size * MIB, arguments.mixed_size * MIB)
    index = corpora.out / "corpora.json"
    known: dict[str, dict[str, object]] = json.loads(index.read_text()) if index.exists() else {}
    failed = False
    for name in arguments.names or MAKERS:
        try:
            path = corpora.need(name)
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        known[name] = about(name, path)
        index.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in known[name].items())}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
