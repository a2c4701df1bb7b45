//! What to do with a source that is no directory: told by its first bytes.

use crate::exit::Failure;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// First bytes that are looked at: the magic of tar lies at 257, that of EROFS at 1024, of ISO 9660 at 32769.
const HEAD_LEN: u64 = 33 << 10;

/// Where magic bytes lie, which, what they are of, and how to get a directory from it.
const KINDS: [(usize, &[u8], &str, &str); 14] = [
    (1024, b"\xE2\xE1\xF5\xE0", "an EROFS image", "extract it first, as with kiln extract"),
    (0, b"hsqs", "a squashfs image", "extract it first, as with unsquashfs -d"),
    (1080, b"\x53\xEF", "an ext2, ext3 or ext4 image", "mount it first, and pack where it is mounted"),
    (32769, b"CD001", "an ISO 9660 image", "mount it first, and pack where it is mounted"),
    (257, b"ustar", "a tar archive", "unpack it first, as with tar -xf FILE -C DIR"),
    (0, b"PK\x03\x04", "a zip archive", "unpack it first, as with unzip -d"),
    (0, b"7z\xBC\xAF\x27\x1C", "a 7z archive", "unpack it first, as with 7z x -o"),
    (0, b"070701", "a cpio archive", "unpack it first, as with cpio -id"),
    (0, b"!<arch>\n", "an ar archive or Debian package", "unpack it first, as with ar x or dpkg-deb -x"),
    (0, b"\xED\xAB\xEE\xDB", "an RPM package", "unpack it first, as with rpm2cpio and cpio -id"),
    (0, b"\x1F\x8B", "compressed by gzip", "if it is an archive, unpack it first, as with tar -xf FILE -C DIR"),
    (0, b"\x28\xB5\x2F\xFD", "compressed by zstd", "if it is an archive, unpack it first, as with tar -xf FILE -C DIR"),
    (0, b"\xFD7zXZ\0", "compressed by xz", "if it is an archive, unpack it first, as with tar -xf FILE -C DIR"),
    (0, b"BZh", "compressed by bzip2", "if it is an archive, unpack it first, as with tar -xf FILE -C DIR"),
];

/// Refuse `src` if it is a file: say what it is and what to do.
///
/// # Errors
/// That it is one. What else may be wrong with it is found by those that read it.
pub fn refuse(src: &Path) -> Result<(), Failure> {
    if !src.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    let mut head = Vec::new();
    // What cannot be read is no archive that we know.
    let _ = File::open(src).and_then(|file| file.take(HEAD_LEN).read_to_end(&mut head));
    let has =
        |(at, magic, ..): &&(usize, &[u8], &str, &str)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic));
    let src = src.display();
    Err(Failure::Usage(match KINDS.iter().find(has) {
        Some((_, _, kind, advice)) => format!("{src}: SRC is a directory, but this is {kind}: {advice}"),
        None => format!("{src}: SRC is a directory, but this is a file: name the directory that holds it"),
    }))
}
