#!/usr/bin/env python3
"""Patches between two versions of a tree: `kiln patch make` and `kiln patch apply` beside zstd --patch-from, xdelta3 and bsdiff.

The peers make patches of the two images, and of plain tar archives of the two trees, and what each patch makes is compared with what it
was made for. Trees of Debian packages in two versions: `apt-get download NAME=VERSION`, `dpkg -x`. xdelta3, bsdiff and bspatch are looked for
below $PEERS (`xdelta3/usr/bin`, `bsdiff/usr/bin`) and then in PATH, zstd in PATH.
"""
from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import lib
import packers

# The best of the peers is compared with these: on images, and on tar archives.
IMAGE_BAR, TAR_BAR = 0.3, 1.5
# CPU time of `kiln patch apply` in that of packing the new tree: with one preset, and with two.
APPLY_BAR, ACROSS_BAR = 0.5, 1.2


@dataclass
class Patched:
    """One way from an old file to a new one."""

    who: str
    what: str  # image or tar
    make: Sequence[str]  # with {old}, {new}, {patch}, {out}
    apply: Sequence[str]
    made: Optional[lib.Run] = None
    applied: Optional[lib.Run] = None
    problem: Optional[str] = None

    @property
    def patch_bytes(self) -> int:
        """Length of the patch; 0 if there is none."""
        return self.made.image_bytes if self.made and not self.problem else 0


@dataclass
class Pair:
    """Two versions of a tree, packed by two presets."""

    old: Path
    new: Path
    presets: Sequence[str]
    pack: Optional[lib.Run] = None
    ways: List[Patched] = field(default_factory=list)


def peer(name: str) -> Optional[str]:
    """The path of a program that makes patches."""
    below = Path(os.environ.get("PEERS") or Path.home() / "peers")
    folder = "bsdiff" if name == "bspatch" else name
    found = below / folder / "usr/bin" / name
    return str(found) if found.exists() else shutil.which(name)


def ways(what: str, skip_bsdiff: bool) -> List[Patched]:
    """The peers that exist on this machine."""
    listed = []
    if zstd := peer("zstd"):
        options = [zstd, "-q", "-f", "--long=31", "--patch-from={old}"]
        listed.append(Patched("zstd -19", what, [*options, "-19", "{new}", "-o", "{patch}"],
                              [*options, "-d", "{patch}", "-o", "{out}"]))
    if xdelta := peer("xdelta3"):
        listed.append(Patched("xdelta3 -9", what, [xdelta, "-e", "-f", "-9", "-B", "2147483648", "-s", "{old}", "{new}", "{patch}"],
                              [xdelta, "-d", "-f", "-B", "2147483648", "-s", "{old}", "{patch}", "{out}"]))
    if (bsdiff := peer("bsdiff")) and (bspatch := peer("bspatch")) and not skip_bsdiff:
        listed.append(Patched("bsdiff", what, [bsdiff, "{old}", "{new}", "{patch}"], [bspatch, "{old}", "{out}", "{patch}"]))
    return listed


def measure(way: Patched, old: Path, new: Path, folder: Path) -> None:
    """Make the patch, apply it, compare. A failure is kept in `way.problem`."""
    files = {"old": str(old), "new": str(new), "patch": str(folder / "patch"), "out": str(folder / "out")}
    for name in ("patch", "out"):
        (folder / name).unlink(missing_ok=True)
    way.made = lib.measure([word.format(**files) for word in way.make], folder / "patch")
    if way.made.ok:
        way.applied = lib.measure([word.format(**files) for word in way.apply], folder / "out")
    for run in (way.made, way.applied):
        if run is None or not run.ok:
            way.problem = f"exit {run.exit_code}: {run.stderr_tail}" if run else "not applied"
            break
    else:
        if not filecmp.cmp(folder / "out", new, shallow=False):
            way.problem = "other bytes than those of the new file"
    lib.say(f"  {way.who} on {way.what}: {way.problem or lib.mb(way.patch_bytes) + ' MB'}")
    for name in ("patch", "out"):
        (folder / name).unlink(missing_ok=True)


def run_pair(pair: Pair, kiln: packers.Packer, folder: Path, skip_bsdiff: bool) -> None:
    """Pack both trees, and measure each way between them."""
    images = [folder / "old.erofs", folder / "new.erofs"]
    for image, tree, preset in zip(images, (pair.old, pair.new), pair.presets):
        image.unlink(missing_ok=True)
        lib.warm(tree)
        pair.pack = lib.measure([str(kiln.path), "pack", "-q", "--preset", preset, str(tree), str(image)], image)
        if not pair.pack.ok:
            raise RuntimeError(pair.pack.stderr_tail)
    apply = [str(kiln.path), "patch", "apply", "-q", "{old}", "{patch}", "{out}"]
    for options in ([], ["--portable"]):
        name = " ".join(["kiln patch make", *options])
        pair.ways.append(Patched(name, "image", [str(kiln.path), "patch", "make", "-q", *options, "{old}", "{new}", "{patch}"], apply))
    pair.ways.extend(ways("image", skip_bsdiff))
    for way in pair.ways:
        measure(way, *images, folder)
    tars = [folder / "old.tar", folder / "new.tar"]
    for tar, tree in zip(tars, (pair.old, pair.new)):
        subprocess.run(["tar", "--sort=name", "--mtime=@0", "-C", str(tree), "-cf", str(tar), "."], check=True)
    on_tars = ways("tar", skip_bsdiff)
    for way in on_tars:
        measure(way, *tars, folder)
    pair.ways.extend(on_tars)
    for path in (*images, *tars):
        path.unlink(missing_ok=True)


def best(pair: Pair, what: str) -> int:
    """The shortest patch of a peer."""
    lens = [way.patch_bytes for way in pair.ways if way.what == what and not way.who.startswith("kiln") and way.patch_bytes]
    return min(lens, default=0)


def row(pair: Pair, way: Patched) -> List[str]:
    """One line of the table."""
    name = f"{pair.old.name} → {pair.new.name}, {' → '.join(dict.fromkeys(pair.presets))}"
    if way.problem or not way.made or not way.applied or not pair.pack:
        return [name, way.who, way.what, "failed", *["-"] * 5]
    share = f"{way.applied.cpu_s / pair.pack.cpu_s:.2f}" if way.who.startswith("kiln") and pair.pack.cpu_s else "-"
    return [name, way.who, way.what, lib.mb(way.patch_bytes), f"{way.made.cpu_s:.2f}", lib.mib(way.made.peak_rss_bytes),
            f"{way.applied.cpu_s:.2f}", f"{way.applied.wall_s:.2f}", share]


def bars(pair: Pair) -> List[str]:
    """Return the results of the bars."""
    ours = next((way for way in pair.ways if way.who == "kiln patch make" and way.patch_bytes), None)
    if not ours or not ours.applied or not pair.pack:
        return []
    lines = []
    for what, bar in (("image", IMAGE_BAR), ("tar", TAR_BAR)):
        if peers := best(pair, what):
            share = ours.patch_bytes / peers
            lines.append(f"{share:.2f} of the best peer on {what}s (bar {bar}): {'kept' if share <= bar else 'MISSED'}")
    bar = APPLY_BAR if len(set(pair.presets)) == 1 else ACROSS_BAR
    share = ours.applied.cpu_s / max(pair.pack.cpu_s, 0.01)
    lines.append(f"apply takes {share:.2f} of the CPU time of packing (bar {bar}): {'kept' if share <= bar else 'MISSED'}")
    return lines


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs="+", help="OLD NEW [OLD NEW ...]")
    parser.add_argument("--preset", action="append", metavar="NAME[:NAME]", help="preset of both images, or of each (default balanced)")
    parser.add_argument("--no-bsdiff", action="store_true", help="leave bsdiff out: it takes 9 to 17 times a file's length of memory")
    parser.add_argument("--tmp", type=Path, help="directory for images and patches (default: here)")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write all numbers here")
    arguments = parser.parse_args()
    if len(arguments.trees) % 2:
        parser.error("trees come in pairs")
    return arguments


def main() -> int:
    """Exit code 1 if anything failed, 2 if there was nothing to do."""
    arguments = parse_arguments()
    kiln = packers.find_packers(("kiln",)).get("kiln")
    if not kiln:
        lib.say("nothing to do: kiln is needed")
        return 2
    pairs = []
    for old, new in zip(arguments.trees[::2], arguments.trees[1::2]):
        for presets in arguments.preset or ["balanced"]:
            both = (presets.split(":") * 2)[:2]
            pairs.append(Pair(old.resolve(), new.resolve(), both))
    problems: List[str] = []
    with lib.scratch(arguments.tmp) as folder:
        for pair in pairs:
            lib.say(f"{pair.old.name} → {pair.new.name}, {' → '.join(pair.presets)}")
            try:
                run_pair(pair, kiln, folder, arguments.no_bsdiff)
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                problems.append(f"{pair.new}: {error}")
            problems.extend(f"{pair.new}: {way.who}: {way.problem}" for way in pair.ways if way.problem)
    head = ["trees", "program", "of", "patch MB", "make CPU s", "MiB", "apply CPU s", "wall s", "of packing's CPU"]
    print(lib.markdown_table(head, (row(pair, way) for pair in pairs for way in pair.ways)))
    for pair in pairs:
        print(f"\n{pair.old.name} → {pair.new.name}, {' → '.join(pair.presets)}:\n")
        for line in bars(pair):
            print(f"* {line}")
    for problem in problems:
        lib.say(problem)
    results: List[Dict[str, Any]] = [
        {"old": str(pair.old), "new": str(pair.new), "presets": list(pair.presets), "pack": asdict(pair.pack) if pair.pack else None,
         "ways": [asdict(way) for way in pair.ways]} for pair in pairs
    ]
    return lib.end(arguments.out, "delta", problems, results)


if __name__ == "__main__":
    sys.exit(main())
