//! Files that no kind of source recognises: their likely format, and advice.

use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::input::disk::{partitions, tell};

/// Advice for images of virtual machines.
const ATTACH: &str = "attach it, for example with qemu-nbd, and pack the mount points of its partitions";

/// Offset of magic bytes, the bytes, name of the format, and advice.
const KNOWN: &[(usize, &[u8], &str, &str)] = &[
    (32769, b"CD001", "an ISO 9660 image", "mount it and pack the mount point"),
    (0, b"!<arch>\n", "an ar archive or a Debian package", "unpack it first, for example with ar x or dpkg-deb -x"),
    (0, b"\xED\xAB\xEE\xDB", "an RPM package", "unpack it first, for example with rpm2cpio and cpio -id"),
    (0, b"7z\xBC\xAF\x27\x1C", "a 7z archive", "unpack it first, for example with 7z x -o"),
    (0, b"Rar!\x1A\x07", "a RAR archive", "unpack it first, for example with unrar x"),
    (0, b"XFSB", "an XFS image", "mount it and pack the mount point"),
    (
        0,
        b"\x89HDF\r\n\x1A\n",
        "an HDF5 file",
        "it has no files: export its datasets to files first, for example with h5py",
    ),
    // The first page of an LMDB file has a header of 16 bytes, then magic number and version.
    (16, b"\xDE\xC0\xEF\xBE", "an LMDB environment", "it has keys and no files: export each value to a file first"),
    (0, b"SQLite format 3\0", "an SQLite database", "it has no files: export its contents first"),
    (0, b"xar!", "a xar archive", "unpack it first, for example with bsdtar -xf"),
    (
        0,
        b"PK\x07\x08",
        "the first part of a split zip archive",
        "join its parts first, for example with zip -s 0 SPLIT.zip --out WHOLE.zip",
    ),
    (0, b"\x1F\x9D", "a file compressed by compress (.Z)", "decompress it first, for example with gzip -dc"),
    (0, b"\x89LZO\0\r\n\x1A\n", "a file compressed by lzop", "decompress it first, for example with lzop -dc"),
    (0, b"QFI\xFB", "a QCOW2 image", ATTACH),
    (0, b"KDMV", "a VMDK image", ATTACH),
    (0, b"vhdxfile", "a VHDX image", ATTACH),
    (0, b"conectix", "a VHD image", ATTACH),
    (64, b"\x7F\x10\xDA\xBE", "a VDI image", ATTACH),
    (0, b"\x3A\xFF\x26\xED", "an Android sparse image", "convert it to a raw image first, for example with simg2img"),
];

/// Offset of the last bytes of a boot sector, and these bytes.
const BOOT_SECTOR_END: (usize, &[u8]) = (510, b"\x55\xAA");

/// First bytes of programs, which may have a zip archive appended, and their names.
const PROGRAMS: &[(&[u8], &str)] = &[(b"#!", "a script"), (b"MZ", "a program for Windows"), (b"\x7FELF", "a program")];

/// Returns the error for a file of unknown kind.
pub(crate) fn refusal(candidate: &Candidate<'_>) -> SourceError {
    let known = KNOWN.iter().find(|(at, magic, ..)| candidate.holds(*at, magic));
    let reason = match (known, candidate.compression()) {
        (Some((_, _, what, advice)), _) => format!("this is {what}: {advice}"),
        (None, Some(compression)) => {
            format!(
                "it is compressed with {}, but its contents are not an archive or image that kiln supports",
                compression.name()
            )
        }
        (None, None) => plain_reason(candidate),
    };
    SourceError::Unknown { path: candidate.path().to_owned(), reason }
}

/// Describes a candidate that is not compressed and has no known magic bytes.
fn plain_reason(candidate: &Candidate<'_>) -> String {
    if let Some(partitions) = candidate.bytes().and_then(|disk| partitions(disk).ok()?) {
        return format!("this is a disk; choose a partition with --partition: {}", tell(&partitions));
    }
    let (at, end) = BOOT_SECTOR_END;
    if candidate.holds(at, end) {
        return "this is a disk with a boot sector; attach it, for example with losetup -P, and pack one of its partitions"
            .into();
    }
    match PROGRAMS.iter().find(|(front, _)| candidate.holds(0, front)) {
        Some((_, what)) => {
            format!("this is {what} without a zip archive appended (which can only be detected in a file)")
        }
        None if candidate.head().is_empty() => "the file is empty".into(),
        None => "it is not a directory, archive or image that kiln supports".into(),
    }
}
