"""Trees as records that can be compared: of a directory, of a mounted image, of a tar archive. Trees that are made.

The suites use these instead of `kiln diff`, so that what is measured does not also judge.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from lib.images import PIECE
from lib.suite import Wrong

# Path, kind, permissions, owner, group, seconds, target or device, attributes, digest of contents.
Record = tuple[str, str, int, int, int, int, str, tuple[tuple[str, str], ...], str]
KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
MEMBERS = {
    tarfile.SYMTYPE: "symlink",
    tarfile.DIRTYPE: "directory",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
    tarfile.FIFOTYPE: "fifo",
}
XATTR = "SCHILY.xattr."
ACL = "system.posix_acl_access"
MANY_TIME = 1_700_000_000
MANY_IN_FOLDER = 1000


class Same:
    """Compares what all contestants have made with the first one's."""

    def __init__(self) -> None:
        self.first: object = None

    def __call__(self, found: object) -> None:
        """Raises Wrong if something else was found before."""
        self.first = found if self.first is None else self.first
        if found != self.first:
            raise Wrong(f"{str(found)[:80]} instead of {str(self.first)[:80]}")


def digest(path: Path) -> str:
    """Returns the digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_of(root: Path) -> list[Record]:
    """Returns names, metadata and contents of a tree, sorted. Fractions of seconds do not count: SquashFS has none."""
    return sorted(_of_directory(os.fspath(root)))


def tree_of_tar(stream: IO[bytes]) -> list[Record]:
    """Returns the same of a tar archive with a member for each directory."""
    return sorted(_of_tar(stream))


def compare(found: Sequence[Record], expected: Sequence[Record]) -> None:
    """Compares two trees. Raises Wrong with the first record that differs."""
    for one, other in itertools.zip_longest(found, expected):
        if one != other:
            raise Wrong(f"{one}, not {other}")


def _of_directory(root: str) -> Iterator[Record]:
    below = (os.path.join(folder, name) for folder, folders, names in os.walk(root) for name in [*folders, *names])
    for path in itertools.chain([root], below):
        about = os.lstat(path)
        kind = KINDS[stat.S_IFMT(about.st_mode)]
        target, contents = "", ""
        if kind == "symlink":
            target = os.readlink(path)
        elif kind == "file":
            with open(path, "rb", buffering=0) as file:
                contents = _digest(file)
        elif kind in ("char", "block"):
            target = f"{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}"
        names = sorted(os.listxattr(path, follow_symlinks=False))
        xattrs = tuple((key, repr(os.getxattr(path, key, follow_symlinks=False))) for key in names)
        owner, seconds = (about.st_uid, about.st_gid), int(about.st_mtime)
        yield os.path.relpath(path, root), kind, stat.S_IMODE(about.st_mode), *owner, seconds, target, xattrs, contents


def _of_tar(stream: IO[bytes]) -> Iterator[Record]:
    digests: dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            name, kind = os.path.normpath(member.name), MEMBERS.get(member.type, "file")
            target, contents = "", ""
            if kind == "symlink":
                target = member.linkname
            elif kind in ("char", "block"):
                target = f"{member.devmajor}:{member.devminor}"
            elif member.islnk():
                contents = digests[os.path.normpath(member.linkname)]
            elif kind == "file":
                file = archive.extractfile(member)
                contents = digests[name] = _digest(file) if file else ""
            mode = 0o777 if kind == "symlink" else member.mode
            about = (member.uid, member.gid, int(member.mtime), target)
            yield name, kind, mode, *about, _xattrs(member.pax_headers), contents


def _xattrs(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {key.removeprefix(XATTR): value for key, value in headers.items() if key.startswith(XATTR)}
    return tuple((key, repr(found[key].encode(errors="surrogateescape"))) for key in sorted(found))


def _digest(file: IO[bytes]) -> str:
    found = hashlib.sha256()
    while piece := file.read(PIECE):
        found.update(piece)
    return found.hexdigest()


def make_oddities(root: Path, longest: int) -> None:
    """Makes what only extended headers of tar archives can say: attributes, ACLs, holes; and links and devices."""
    for number in range(200):
        path = root / f"plain{number:03}"
        path.write_bytes(b"%d of many\n" % number * (number * 7))
        os.setxattr(path, "user.number", b"%d" % number)
    # One entry for a user beside the three of the permissions, and the mask: version 2, then tag, permissions, id.
    entries = [(1, 6, 2**32 - 1), (2, 5, 1234), (4, 4, 2**32 - 1), (16, 5, 2**32 - 1), (32, 4, 2**32 - 1)]
    words = [
        tag.to_bytes(2, "little") + mode.to_bytes(2, "little") + who.to_bytes(4, "little") for tag, mode, who in entries
    ]
    (root / "acl").write_bytes(b"may be read by one more\n")
    os.setxattr(root / "acl", ACL, b"\2\0\0\0" + b"".join(words))
    for number, length in enumerate([1 << 20, 5 << 20, longest]):
        with (root / f"sparse{number}").open("wb") as file:
            for at in range(0, length, length // 5):
                file.seek(at)
                file.write(b"island %d " % at * 900)
            file.truncate(length)
    (root / "link").hardlink_to(root / "plain007")
    (root / "symlink").symlink_to("plain008")
    (root / ("long" * 60)).write_bytes(b"a name that ustar cannot hold\n")
    os.mknod(root / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mkfifo(root / "fifo")


def many_file(number: int) -> tuple[str, bytes]:
    """Returns path and contents of a file of a tree of many; every second is empty."""
    path = f"d{number // MANY_IN_FOLDER:05}/f{number:07}"
    return path, b"" if number % 2 else b"%d\n" % number


def make_many(root: Path, count: int) -> None:
    """Makes a tree of `count` empty or tiny files."""
    folders = [root, *(root / f"d{number:05}" for number in range(-(-count // MANY_IN_FOLDER)))]
    for folder in folders:
        folder.mkdir(mode=0o755)
    for number in range(count):
        name, contents = many_file(number)
        path = f"{root}/{name}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, contents)
        os.close(fd)
        os.utime(path, (MANY_TIME, MANY_TIME))
    for folder in folders:
        os.utime(folder, (MANY_TIME, MANY_TIME))


def make_many_tar(path: Path, count: int) -> None:
    """Makes the same tree as a tar archive, members in the order of a walk."""
    with path.open("wb", buffering=1 << 20) as out:
        out.write(ustar("./", 0o755, b"5", 0))
        for number in range(count):
            name, contents = many_file(number)
            if number % MANY_IN_FOLDER == 0:
                out.write(ustar(f"./{name.split('/')[0]}/", 0o755, b"5", 0))
            out.write(ustar(f"./{name}", 0o644, b"0", len(contents)))
            out.write(contents + bytes(-len(contents) % 512))
        out.write(bytes(1024))


def ustar(name: str, mode: int, kind: bytes, length: int) -> bytes:
    """Returns the header of a member."""
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, os.getuid(), os.getgid(), length, MANY_TIME)
    front, behind = name.encode().ljust(100, b"\0") + numbers, kind + bytes(100) + b"ustar\00000" + bytes(247)
    return front + b"%06o\0 " % (sum(front) + sum(behind) + 8 * ord(" ")) + behind
