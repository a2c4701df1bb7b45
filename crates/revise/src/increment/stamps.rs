//! Stamps of files, stored beside an image, which later show if the files are still those of the
//! image.
//!
//! The text has a line `#kiln-stamp 1 IMAGE`, and a line `STAMP PATH` for each file. IMAGE
//! identifies the image, in hexadecimal digits. STAMP, 32 hexadecimal digits, depends on inode
//! number, size, mtime and ctime. Paths are escaped as in [hot lists](kiln_read::hotlist::path).

use kiln_format::Hex;
use kiln_read::hotlist::path::{self, Octal};
use kiln_source::{FileStamps, SourceError, Unreadable};
use kiln_tree::{FileError, Kind, SyntaxError, Tree};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Start of the first line.
const MAGIC: &[u8] = b"#kiln-stamp 1 ";
/// Maximum length in bytes, more than tens of millions of files need. It protects the memory from
/// files that are not stamps.
const LEN_MAX: u64 = 4 << 30;
/// Number of hexadecimal digits of a stamp.
const STAMP_DIGITS: usize = 32;

/// Stamps of files when an image of them was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    by_path: HashMap<Box<[u8]>, u128>,
}

impl Stamps {
    /// Returns the path of the stamps for the image at `image`.
    pub fn path(image: &Path) -> PathBuf {
        let mut name = image.as_os_str().to_owned();
        name.push(".stamp");
        name.into()
    }

    /// Reads the stamps of the image with this identity. Returns `None` if there are none at
    /// `path`, or if they belong to another image.
    ///
    /// # Errors
    /// Those of [`Stamps::parse`]; a file that cannot be read, or is too long.
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

    /// Parses the stamps in a file called `name`. Returns `None` if they do not belong to the image
    /// with this identity.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &[u8], name: &str, identity: &[u8]) -> Result<Option<Self>, FileError> {
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let Some(image) = first.strip_prefix(MAGIC) else {
            let reason = "expected `#kiln-stamp 1 IMAGE`; these are not stamps, or of a later version";
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
            let stamp = stamp.ok_or_else(|| wrong("stamp", digits, "expected 32 hexadecimal digits"))?;
            let escaped = path.strip_prefix(b" ").ok_or_else(|| wrong("path", path, "expected a space before it"))?;
            let path = path::parse(escaped).map_err(|reason| wrong("path", escaped, reason))?;
            by_path.insert(path.into(), stamp);
        }
        Ok(Some(Self { by_path }))
    }

    /// Writes the stamps of the regular files of `tree`, for the image with this identity. Leaves
    /// out files that may have changed after the scan without a change of their times.
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

    /// Returns true if the file at `path` had this stamp.
    pub(super) fn has(&self, path: &[u8], stamp: Option<u128>) -> bool {
        stamp.is_some() && self.of(path) == stamp
    }

    /// Returns the stamp that the file at `path` had.
    pub(super) fn of(&self, path: &[u8]) -> Option<u128> {
        self.by_path.get(path).copied()
    }
}

/// Returns the part of a stamp that depends only on the inode number.
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
                "s, line 1: first line ``: expected `#kiln-stamp 1 IMAGE`; these are not stamps, or of a later version",
            ),
            ("#kiln-stamp 1 00\n12 a\n", "s, line 2: stamp `12 a`: expected 32 hexadecimal digits"),
            (
                "#kiln-stamp 1 00\n\n000102030405060708090a0b0c0d0e0fa\n",
                "s, line 3: path `a`: expected a space before it",
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
