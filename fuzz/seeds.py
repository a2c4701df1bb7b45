#!/usr/bin/env python3
"""Writes small inputs for the fuzz targets of sources to start from: fuzz/seeds.py DIR [FIXTURES].

`cargo run -p kiln-tests --bin fuzz-seeds DIR` writes the inputs of the other targets. SquashFS and
cramfs images come from FIXTURES (default: crates/source/tests); mkfs.ext4 makes an ext4 image if it
is installed.
"""
import bz2
import gzip
import hashlib
import io
import json
import lzma
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
TEXT = b"a small text, which is repeated. " * 20


def put(folder, name, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data)


def tar(format):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        def add(name, kind=tarfile.REGTYPE, data=b"", **fields):
            member = tarfile.TarInfo(name)
            member.type, member.size, member.mtime = kind, len(data), 1_700_000_000
            for field, value in fields.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(data))
        add("./", tarfile.DIRTYPE, mode=0o755)
        add("./dir", tarfile.DIRTYPE, mode=0o700, uid=1000)
        xattrs = {"SCHILY.xattr.user.a": "b", "SCHILY.acl.access": "user::rw-,user:7:r--,group::r--,mask::r--,other::---"}
        add("./dir/file", data=TEXT, pax_headers=xattrs if format == tarfile.PAX_FORMAT else {})
        add("./dir/" + "long" * (20 if format == tarfile.USTAR_FORMAT else 40), data=b"x")
        add("./link", tarfile.LNKTYPE, linkname="./dir/file")
        add("./symlink", tarfile.SYMTYPE, linkname="dir/file")
        add("./null", tarfile.CHRTYPE, devmajor=1, devminor=3)
        add("./fifo", tarfile.FIFOTYPE)
        sparse = {"GNU.sparse.map": "0,10,4096,5", "GNU.sparse.size": "9000", "GNU.sparse.major": "0", "GNU.sparse.minor": "1"}
        add("./sparse", data=b"0123456789abcde", pax_headers=sparse if format == tarfile.PAX_FORMAT else {})
    return out.getvalue().rstrip(b"\0") + bytes(1024)


def cpio(magic, mode_fields):
    out = bytearray()
    for number, (name, mode, data) in enumerate([(".", 0o40755, b""), ("dir", 0o40700, b""), ("dir/file", 0o100644, TEXT),
                                                  ("link", 0o120777, b"dir/file"), ("null", 0o20666, b""), ("TRAILER!!!", 0, b"")]):
        if mode_fields == "newc":
            check = sum(data) if magic == b"070702" else 0
            fields = [number, mode, 0, 0, 1, 1_700_000_000, len(data), 0, 0, 1, 3, len(name) + 1, check]
            out += magic + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
            out += bytes(-len(out) % 4) + data
            out += bytes(-len(out) % 4)
        else:
            out += magic + b"%06o%06o%06o%06o%06o%06o%06o%011o%06o%011o" % (1, number, mode, 0, 0, 1, 259, 1_700_000_000, len(name) + 1, len(data))
            out += name.encode() + b"\0" + data
    return bytes(out)


def zip_archive(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data, mode in [("dir/", b"", 0o40755), ("dir/file", TEXT, 0o100644), ("link", b"dir/file", 0o120777)]:
            about = zipfile.ZipInfo(name, (2023, 11, 14, 22, 13, 20))
            about.external_attr, about.create_system, about.compress_type = mode << 16, 3, method
            archive.writestr(about, data)
    return out.getvalue()


def oci(rootfs):
    layer = tar(tarfile.USTAR_FORMAT)
    digest = hashlib.sha256(layer).hexdigest()
    config = {"architecture": "amd64", "os": "linux"}
    if rootfs:
        config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    config = json.dumps(config).encode()
    index = json.dumps([{"Config": "config.json", "RepoTags": ["small:latest"], "Layers": ["layer.tar"]}]).encode()
    return b"\0".join([index, config, layer])


def gpt(labels):
    """Returns a disk of 40 sectors with these partitions of two sectors each, and a backup of its table."""
    sector, entries = 512, bytearray(4 * 128)
    for number, label in enumerate(labels):
        first = 10 + 2 * number
        name = label.encode("utf-16-le").ljust(72, b"\0")
        entries[128 * number:128 * (number + 1)] = bytes([number + 1]) * 32 + struct.pack("<QQQ", first, first + 1, 0) + name
    last = 39

    def header(own, other, table):
        fields = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 1 << 16, 92, 0, 0, own, other, 8, 30, bytes(16), table, 4, 128, zlib.crc32(entries))
        return fields[:16] + struct.pack("<I", zlib.crc32(fields)) + fields[20:]
    disk = bytearray(40 * sector)
    for at, data in [(1, header(1, last, 2)), (2, entries), (last, header(last, 1, last - 1)), (last - 1, entries)]:
        disk[at * sector:at * sector + len(data)] = data
    disk[446:512] = mbr_entries([(0xEE, 1, last)])
    return bytes(disk)


def mbr_entries(entries):
    table = b"".join(struct.pack("<B3xB3xII", 0, *entry) for entry in entries)
    return table.ljust(64, b"\0") + b"\x55\xaa"


def mbr():
    """Returns a disk with two partitions and an extended one that contains two."""
    disk = bytearray(40 * 512)
    for at, entries in [(0, [(0x83, 1, 4), (0x0C, 5, 5), (0x05, 20, 20)]), (20, [(0x83, 1, 3), (0x05, 8, 8)]), (28, [(0x83, 1, 5)])]:
        disk[at * 512 + 446:(at + 1) * 512] = mbr_entries(entries)
    return bytes(disk)


def lz4_frame():
    return b"\x04\x22\x4d\x18\x60\x40\x82" + (5 | 1 << 31).to_bytes(4, "little") + b"plain" + bytes(4)


TEXTS = {
    "mtree": {
        "netbsd": b"#mtree\n/set type=file uid=0 gid=0 mode=0644\n. type=dir mode=0755\n    file size=3 time=1.5\n    dir type=dir\n        link type=link link=../file\n    ..\n    null type=char device=native,1,3\n..\n",
        "bsdtar": b"#mtree\n. type=dir mode=755\n./a\\040b type=file size=0 sha256digest=" + b"0" * 64 + b" nlink=2\n./c type=fifo uname=root\n",
    },
    "pseudo": {
        "tree": b"/ D 1700000000 755 0 0\ndir d 755 0 0\ndir/file R 1700000000 644 0 0 4 0 0\nlink s 777 0 0 dir/file\nnull c 666 0 0 1 3\nmore L dir/file\ndir x user.a=0x4142\n#\n# START OF DATA - DO NOT MODIFY\n#\ntext",
        "change": b"etc/passwd m 600 1 2\nbin/sh x security.capability=0sAAAA\nnew i 644 0 0 f\n",
    },
    "device-table": {
        "devices": b"/etc/passwd f 600 0 0 - - - - -\n/dev d 755 0 0 - - - - -\n/dev/tty c 666 0 5 4 0 0 1 8\n/bin r -1 0 0 - - - - -\n/bin/sh f 755 0 0 - - - - -\n|xattr cap_net_raw+ep\n",
    },
    "fs-config": {
        "list": b" 0 0 755\nsystem 0 0 755\nsystem/etc 0 0 755\nsystem/etc/passwd 0 0 644 capabilities=0x400\nsystem/bin 0 2000 751\nsystem/bin/sh 0 2000 755\n",
    },
}


def main():
    root = Path(sys.argv[1])
    fixtures = Path(sys.argv[2]) if len(sys.argv) > 2 else PROJECT / "crates/source/tests"
    for name, format in [("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("ustar", tarfile.USTAR_FORMAT)]:
        put(root / "tar", name, tar(format))
    put(root / "tar", "gz", gzip.compress(tar(tarfile.PAX_FORMAT), mtime=0))
    for name, magic, fields in [("newc", b"070701", "newc"), ("crc", b"070702", "newc"), ("odc", b"070707", "odc")]:
        put(root / "cpio", name, cpio(magic, fields))
    put(root / "cpio", "two", cpio(b"070701", "newc") + bytes(512 - 4) + gzip.compress(cpio(b"070701", "newc"), mtime=0))
    for name in ["STORED", "DEFLATED", "BZIP2", "LZMA"]:
        put(root / "zip", name.lower(), zip_archive(getattr(zipfile, f"ZIP_{name}")))
    for kind in ["squashfs", "cramfs"]:
        for path in sorted((fixtures / kind).glob(f"*.{kind}")):
            put(root / kind, path.stem, path.read_bytes())
    put(root / "oci", "docker", oci(True))
    # A changed layer is read if its digest is not recorded.
    put(root / "oci", "no-digests", oci(False))
    for name, disk in [("gpt", gpt(["EFI", "root"])), ("mbr", mbr())]:
        put(root / "partitions", name, disk)
    for target, texts in TEXTS.items():
        for name, text in texts.items():
            put(root / target, name, text)
    streams = {
        "gzip": gzip.compress(TEXT, mtime=0), "bzip2": bz2.compress(TEXT), "xz": lzma.compress(TEXT),
        "lzma": lzma.compress(TEXT, lzma.FORMAT_ALONE), "lz4": lz4_frame(), "lz4-legacy": b"\x02\x21\x4c\x18" + (7).to_bytes(4, "little") + b"\x50plain",
    }
    for program, name in [("zstd", "zstd"), ("lz4", "lz4-frames")]:
        if shutil.which(program):
            streams[name] = subprocess.run([program, "-qc"], input=TEXT, capture_output=True, check=True).stdout
    for name, stream in streams.items():
        put(root / "compressed", name, stream)
    if shutil.which("mkfs.ext4"):
        ext4(root)


def ext4(root):
    with tempfile.TemporaryDirectory() as folder:
        tree, image = Path(folder) / "tree", Path(folder) / "image"
        (tree / "dir").mkdir(parents=True)
        (tree / "dir/file").write_bytes(TEXT)
        (tree / "link").symlink_to("dir/file")
        (tree / "long").symlink_to("x" * 100)
        for name, options in [("extents", "^has_journal,^resize_inode"), ("blocks", "^extent,^64bit,^has_journal,^resize_inode"),
                              ("inline", "inline_data,^has_journal,^resize_inode,^metadata_csum")]:
            image.unlink(missing_ok=True)
            command = ["mkfs.ext4", "-q", "-b", "1024", "-N", "16", "-m", "0", "-O", options, "-U", "00000000-0000-0000-0000-000000000001",
                       "-E", "lazy_itable_init=0,hash_seed=00000000-0000-0000-0000-000000000002", "-d", str(tree), str(image), "60K"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            put(root / "ext4", name, image.read_bytes())


if __name__ == "__main__":
    main()
