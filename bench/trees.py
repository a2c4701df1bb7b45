"""Trees as text that can be compared: of a directory, of a mounted image, of a tar archive. And trees that are generated.

The benchmarks use these instead of `kiln diff`, so that what is measured does not also judge.
"""
from __future__ import annotations

import hashlib
import itertools
import os
import stat
import tarfile
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import lib

# Path, kind, permissions, owner, group, seconds, target or device, attributes, digest of contents.
Record = Tuple[str, str, int, int, int, int, str, Tuple[Tuple[str, str], ...], str]
TREE_TIME = 1_700_000_000
FILES_A_DIRECTORY = 1000
ACL = "system.posix_acl_access"


def tree_of(root: Path) -> List[Record]:
    """Names, metadata and contents of the tree below `root`, sorted. Fractions of seconds do not count: SquashFS has none."""
    return sorted(_records_of_directory(root))


def tree_of_tar(stream: BinaryIO) -> List[Record]:
    """The same of the tree in a tar archive with a member for each directory."""
    return sorted(_records_of_tar(stream))


def difference(found: Sequence[Record], expected: Sequence[Record]) -> Optional[str]:
    """Return the first record of one tree that is not in the other, if there is one."""
    for one, other in itertools.zip_longest(found, expected):
        if one != other:
            return f"{one}, not {other}"
    return None


def _records_of_directory(root: Path) -> Iterator[Record]:
    for path in _walk(os.fspath(root)):
        about = os.lstat(path)
        name = os.path.relpath(path, root)
        kind, mode = stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode)
        target, contents = "", ""
        if kind == stat.S_IFLNK:
            target = os.readlink(path)
        elif kind == stat.S_IFREG:
            with open(path, "rb", buffering=0) as file:
                contents = _contents(file)
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            target = f"{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}"
        names = sorted(os.listxattr(path, follow_symlinks=False))
        xattrs = tuple((key, repr(os.getxattr(path, key, follow_symlinks=False))) for key in names)
        yield name, _kind_name(kind), mode, about.st_uid, about.st_gid, int(about.st_mtime), target, xattrs, contents


def _walk(root: str) -> Iterator[str]:
    yield root
    for folder, directories, names in os.walk(root):
        yield from (os.path.join(folder, name) for name in [*directories, *names])


def _kind_name(kind: int) -> str:
    names = {stat.S_IFLNK: "symlink", stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFCHR: "char",
             stat.S_IFBLK: "block", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
    return names[kind]


def _records_of_tar(stream: BinaryIO) -> Iterator[Record]:
    kinds = {tarfile.SYMTYPE: "symlink", tarfile.DIRTYPE: "directory", tarfile.CHRTYPE: "char", tarfile.BLKTYPE: "block",
             tarfile.FIFOTYPE: "fifo"}
    digests: Dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            name = os.path.normpath(member.name)
            kind = kinds.get(member.type, "file")
            target, contents = "", ""
            if kind == "symlink":
                target = member.linkname
            elif kind in ("char", "block"):
                target = f"{member.devmajor}:{member.devminor}"
            elif member.islnk():
                contents = digests[os.path.normpath(member.linkname)]
            elif kind == "file":
                contents = _contents(archive.extractfile(member))
                digests[name] = contents
            mode = 0o777 if kind == "symlink" else member.mode
            yield name, kind, mode, member.uid, member.gid, int(member.mtime), target, _xattrs(member.pax_headers), contents


def _xattrs(headers: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    prefix = "SCHILY.xattr."
    found = {key[len(prefix):]: value.encode(errors="surrogateescape") for key, value in headers.items() if key.startswith(prefix)}
    return tuple((key, repr(found[key])) for key in sorted(found))


def _contents(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(lib.MIB):
        digest.update(piece)
    return digest.hexdigest()


def make_oddities(root: Path) -> None:
    """A small tree of what only extended headers of tar archives can say: attributes, ACLs, holes; and links and devices."""
    root.mkdir()
    for number in range(200):
        path = root / f"plain{number:03}"
        path.write_bytes(b"%d of many\n" % number * (number * 7))
        os.setxattr(path, "user.number", b"%d" % number)
    # One entry for a user beside the three of the permissions, and the mask: version 2, then tag, permissions, id.
    entries = [(1, 6, 2**32 - 1), (2, 5, 1234), (4, 4, 2**32 - 1), (16, 5, 2**32 - 1), (32, 4, 2**32 - 1)]
    packed = b"\2\0\0\0" + b"".join(t.to_bytes(2, "little") + p.to_bytes(2, "little") + i.to_bytes(4, "little") for t, p, i in entries)
    with_acl = root / "acl"
    with_acl.write_bytes(b"may be read by one more\n")
    os.setxattr(with_acl, ACL, packed)
    for number, length in enumerate([1 << 20, 5 << 20, 300 << 20]):
        with open(root / f"sparse{number}", "wb") as file:
            for at in range(0, length, length // 5):
                file.seek(at)
                file.write(b"island %d " % at * 900)
            file.truncate(length)
    os.link(root / "plain007", root / "link")
    os.symlink("plain008", root / "symlink")
    (root / ("long" * 60)).write_bytes(b"a name that ustar cannot hold\n")
    os.mknod(root / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mkfifo(root / "fifo")


def many_contents(number: int) -> bytes:
    """Return the contents of file `number` of a tree of many; every second is empty."""
    return b"" if number % 2 else b"%d\n" % number


def many_name(number: int) -> str:
    """Its path."""
    return f"d{number // FILES_A_DIRECTORY:05}/f{number:07}"


def make_many(root: Path, count: int) -> None:
    """A tree of `count` empty or tiny files."""
    root.mkdir(mode=0o755)
    folders: List[Path] = [root]
    for number in range(count):
        path = root / many_name(number)
        if number % FILES_A_DIRECTORY == 0:
            path.parent.mkdir(mode=0o755)
            folders.append(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, many_contents(number))
        os.close(fd)
        os.utime(path, (TREE_TIME, TREE_TIME))
    for folder in folders:
        os.utime(folder, (TREE_TIME, TREE_TIME))


def make_many_tar(path: Path, count: int) -> None:
    """The same tree as a tar archive, members in the order of a walk."""
    with open(path, "wb", buffering=lib.MIB) as out:
        out.write(_ustar("./", 0o755, b"5", 0))
        for number in range(count):
            name, contents = many_name(number), many_contents(number)
            if number % FILES_A_DIRECTORY == 0:
                out.write(_ustar(f"./{name.split('/')[0]}/", 0o755, b"5", 0))
            out.write(_ustar(f"./{name}", 0o644, b"0", len(contents)))
            out.write(contents + bytes(-len(contents) % 512))
        out.write(bytes(1024))


def _ustar(name: str, mode: int, kind: bytes, length: int) -> bytes:
    owner, group = os.getuid(), os.getgid()
    front = name.encode().ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, owner, group, length, TREE_TIME)
    behind = kind + bytes(100) + b"ustar\00000" + bytes(80) + bytes(167)
    total = sum(front) + sum(behind) + 8 * ord(" ")
    return front + b"%06o\0 " % total + behind
