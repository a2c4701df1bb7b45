//! Stamps of files beside an image: what tells, the next time, that they are what the image has of them.
//!
//! The text has a line `#kiln-stamp 1 IMAGE`, and one of `STAMP PATH` for each file. IMAGE, in hexadecimal digits, tells the image from others.
//! STAMP, 32 hexadecimal digits, depends on inode number, size, and the times of the last change of the contents and of the inode. Paths are
//! written as in [hot lists](kiln_read::hotlist::path).

use kiln_format::Hex;
use kiln_read::hotlist::path::{self, Octal};
use kiln_tree::{Kind, Tree};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{SourceError, Unreadable};
use crate::filter::{FileError, SyntaxError};
use crate::source::FileStamps;

/// What the first line begins with.
const MAGIC: &[u8] = b"#kiln-stamp 1 ";
/// Longer than stamps of tens of millions of files: what are no stamps at all must not fill the memory.
const LEN_MAX: u64 = 4 << 30;
/// Hexadecimal digits of a stamp.
const STAMP_DIGITS: usize = 32;

/// What files were when an image was made of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    by_path: HashMap<Box<[u8]>, u128>,
}

impl Stamps {
    /// Where the stamps of the image at `image` lie.
    pub fn path(image: &Path) -> PathBuf {
        let mut name = image.as_os_str().to_owned();
        name.push(".stamp");
        name.into()
    }

    /// Read the stamps of the image with this identity. `None`: there are none at `path`, or those of another image.
    ///
    /// # Errors
    /// As [`Stamps::parse`]; what cannot be read, or is far too long.
    pub fn open(path: &Path, identity: &[u8]) -> Result<Option<Self>, SourceError> {
        let unreadable = |source| SourceError::Unreadable(Unreadable { path: path.to_owned(), source });
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(unreadable)?,
        };
        let mut text = Vec::new();
        file.take(LEN_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LEN_MAX {
            return Err(SourceError::TooLarge { path: path.to_owned(), limit: LEN_MAX });
        }
        Ok(Self::parse(&text, &path.to_string_lossy(), identity)?)
    }

    /// Parse the stamps, of a file with this name, of the image with this identity. `None`: they are of another image.
    ///
    /// # Errors
    /// The first line that is not as lines are.
    pub fn parse(text: &[u8], name: &str, identity: &[u8]) -> Result<Option<Self>, FileError> {
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let Some(image) = first.strip_prefix(MAGIC) else {
            let reason = "the first line of stamps is `#kiln-stamp 1 IMAGE`: these are none, or of a later version";
            return Err(SyntaxError::new("first line", first, reason).at(name, 0));
        };
        if image != Hex(identity).to_string().as_bytes() {
            return Ok(None);
        }
        let mut by_path = HashMap::new();
        for (idx, line) in (1..).zip(lines).filter(|(_, line)| !line.is_empty()) {
            let wrong = |field, value: &[u8], reason| SyntaxError::new(field, value, reason).at(name, idx);
            let (digits, path) = line.split_at(STAMP_DIGITS.min(line.len()));
            let stamp = str::from_utf8(digits).ok().and_then(|digits| u128::from_str_radix(digits, 16).ok());
            let stamp = stamp.filter(|_| digits.len() == STAMP_DIGITS);
            let stamp = stamp.ok_or_else(|| wrong("stamp", digits, "32 hexadecimal digits are expected"))?;
            let escaped =
                path.strip_prefix(b" ").ok_or_else(|| wrong("path", path, "a space is expected before it"))?;
            let path = path::parse(escaped).map_err(|reason| wrong("path", escaped, reason))?;
            by_path.insert(path.into(), stamp);
        }
        Ok(Some(Self { by_path }))
    }

    /// Write the stamps of the regular files of `tree`, which the image with this identity was made of. Those of files that may have changed
    /// after they were looked at, and still have the same times, are left out.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(out: &mut impl Write, identity: &[u8], tree: &Tree, stamps: &FileStamps) -> io::Result<()> {
        out.write_all(MAGIC)?;
        writeln!(out, "{}", Hex(identity))?;
        for (id, node) in tree.nodes() {
            if let Kind::File { content, .. } = node.kind
                && let Some(stamp) = stamps.of(content)
            {
                writeln!(out, "{stamp:032x} {}", Octal(&tree.path(id)))?;
            }
        }
        Ok(())
    }

    /// Whether the file at `path` had this stamp.
    pub(super) fn has(&self, path: &[u8], stamp: Option<u128>) -> bool {
        stamp.is_some() && self.of(path) == stamp
    }

    /// The stamp that the file at `path` had.
    pub(super) fn of(&self, path: &[u8]) -> Option<u128> {
        self.by_path.get(path).copied()
    }
}

/// The part of a stamp that depends on the inode number alone.
pub(super) fn inode_of(stamp: u128) -> u32 {
    (stamp >> 96) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_of_one_image() {
        let text =
            b"#kiln-stamp 1 0aff\n000102030405060708090a0b0c0d0e0f usr/a\\012b\nffffffffffffffffffffffffffffffff c\n";
        let stamps = Stamps::parse(text, "s", &[10, 255]).unwrap().unwrap();
        assert!(stamps.has(b"usr/a\nb", Some(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)));
        assert!(stamps.has(b"c", Some(u128::MAX)) && !stamps.has(b"c", Some(1)));
        assert!(!stamps.has(b"c", None) && !stamps.has(b"d", None) && !stamps.has(b"d", Some(0)));
        assert_eq!(Stamps::parse(text, "s", &[10, 254]), Ok(None));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, message) in [
            (
                "",
                "s, line 1: first line ``: the first line of stamps is `#kiln-stamp 1 IMAGE`: these are none, or of a later version",
            ),
            ("#kiln-stamp 1 00\n12 a\n", "s, line 2: stamp `12 a`: 32 hexadecimal digits are expected"),
            (
                "#kiln-stamp 1 00\n\n000102030405060708090a0b0c0d0e0fa\n",
                "s, line 3: path `a`: a space is expected before it",
            ),
            (
                "#kiln-stamp 1 00\n000102030405060708090a0b0c0d0e0f \\9\n",
                "s, line 2: path `\\9`: three octal digits, up to 377, follow a `\\`, which itself is `\\134`",
            ),
        ] {
            assert_eq!(Stamps::parse(text.as_bytes(), "s", &[0]).unwrap_err().to_string(), message);
        }
    }
}
