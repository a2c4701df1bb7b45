//! Archive formats and their file name suffixes.

use super::stream_compression::StreamCompression;

/// An archive format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// POSIX tar: `ustar` headers, and PAX records for values that do not fit.
    Tar,
    /// ZIP with Unix extra fields, and with ZIP64 records if necessary.
    Zip,
    /// cpio in the `newc` format, which initramfs images use.
    Cpio,
    /// A specification for mtree(5): metadata, with digests in place of contents.
    Mtree,
    /// Pseudo file definitions for `mksquashfs -pf`, including contents.
    SquashfsPseudo,
}

/// File name suffixes with their formats and compressions, longer ones first.
const SUFFIXES: [(&str, Format, Option<StreamCompression>); 12] = [
    ("tgz", Format::Tar, Some(StreamCompression::Gzip)),
    ("tzst", Format::Tar, Some(StreamCompression::Zstd)),
    ("txz", Format::Tar, Some(StreamCompression::Xz)),
    ("tbz2", Format::Tar, Some(StreamCompression::Bzip2)),
    ("tbz", Format::Tar, Some(StreamCompression::Bzip2)),
    ("tar", Format::Tar, None),
    ("zip", Format::Zip, None),
    ("cpio", Format::Cpio, None),
    ("mtree", Format::Mtree, None),
    ("squashfs-pseudo", Format::SquashfsPseudo, None),
    ("pseudo", Format::SquashfsPseudo, None),
    ("pf", Format::SquashfsPseudo, None),
];

impl Format {
    /// Returns the format and the compression that the suffix of a file name stands for, such as
    /// `.tar` or `.cpio.gz`.
    pub fn of_name(name: &[u8]) -> Option<(Format, Option<StreamCompression>)> {
        let name = name.to_ascii_lowercase();
        let (stem, ending) = split_suffix(&name)?;
        if let Some(compression) = StreamCompression::of_suffix(ending) {
            let (format, inner) = of_suffix(split_suffix(stem)?.1)?;
            let is_possible = inner.is_none() && format.can_be_compressed();
            return is_possible.then_some((format, Some(compression)));
        }
        of_suffix(ending)
    }

    /// Returns true if the archive can be compressed as a whole. ZIP compresses its members one by
    /// one.
    pub fn can_be_compressed(self) -> bool {
        self != Format::Zip
    }
}

fn of_suffix(ending: &[u8]) -> Option<(Format, Option<StreamCompression>)> {
    let found = SUFFIXES.iter().find(|(suffix, ..)| suffix.as_bytes() == ending)?;
    Some((found.1, found.2))
}

/// Splits a name at its last dot.
fn split_suffix(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    Some((&name[..dot], &name[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_format_and_compression() {
        let of = |name: &str| Format::of_name(name.as_bytes());
        assert_eq!(of("a.tar"), Some((Format::Tar, None)));
        assert_eq!(of("dir.d/a.b.TAR.ZST"), Some((Format::Tar, Some(StreamCompression::Zstd))));
        assert_eq!(of("a.tgz"), Some((Format::Tar, Some(StreamCompression::Gzip))));
        assert_eq!(of("a.cpio.lz4"), Some((Format::Cpio, Some(StreamCompression::Lz4))));
        assert_eq!(of(".mtree"), Some((Format::Mtree, None)));
        assert_eq!(of("x.pseudo.bz2"), Some((Format::SquashfsPseudo, Some(StreamCompression::Bzip2))));
        for none in ["tar", "a.gz", "a.zip.gz", "a.tgz.xz", "a.tar.", "", "a.rar"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
