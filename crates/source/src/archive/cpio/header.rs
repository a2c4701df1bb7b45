//! Parser of member headers.

use kiln_format::inode::Rdev;
use kiln_tree::Metadata;

/// Length in bytes of the magic number at the start of each header.
pub(super) const MAGIC_LEN: usize = 6;

/// Format of a header. Members of one archive may have different formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// 8 hexadecimal digits per number; names and data are padded to a multiple of 4 bytes.
    Newc,
    /// Like newc, with a checksum: the sum of the bytes of the file.
    Crc,
    /// 6 or 11 octal digits per number (POSIX.1-1988).
    Odc,
}

impl Format {
    /// Returns the format of the header that starts with `head`, or `None` if it is not one.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        match head.get(..MAGIC_LEN)? {
            b"070701" => Some(Format::Newc),
            b"070702" => Some(Format::Crc),
            b"070707" => Some(Format::Odc),
            _ => None,
        }
    }

    /// Returns the length in bytes of a header without its magic number.
    pub(super) fn fields_len(self) -> u64 {
        match self {
            Format::Newc | Format::Crc => 13 * 8,
            Format::Odc => 8 * 6 + 2 * 11,
        }
    }

    /// Returns the alignment in bytes to which names and data are padded.
    pub(super) fn alignment(self) -> u64 {
        match self {
            Format::Newc | Format::Crc => 4,
            Format::Odc => 1,
        }
    }

    fn radix(self) -> u32 {
        match self {
            Format::Newc | Format::Crc => 16,
            Format::Odc => 8,
        }
    }
}

/// Fields of a member's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) format: Format,
    pub(super) ino: u64,
    pub(super) dev: Rdev,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) mtime: u64,
    /// Length of the data in bytes.
    pub(super) size: u64,
    pub(super) rdev: Rdev,
    /// Length of the name in bytes, including the zero byte at its end.
    pub(super) name_len: u64,
    /// Sum of all bytes of the data; used by [`Format::Crc`] only.
    pub(super) check: u32,
}

impl Header {
    /// Parses the [`Format::fields_len`] bytes that follow the magic number.
    ///
    /// # Errors
    /// A message with the field that is not a number.
    pub(super) fn parse(format: Format, fields: &[u8]) -> Result<Self, String> {
        let mut fields = Fields { rest: fields, radix: format.radix() };
        match format {
            Format::Newc | Format::Crc => Ok(Self {
                format,
                ino: fields.hex("ino")?.into(),
                mode: fields.hex("mode")?,
                uid: fields.hex("uid")?,
                gid: fields.hex("gid")?,
                nlink: fields.hex("nlink")?,
                mtime: fields.hex("mtime")?.into(),
                size: fields.hex("filesize")?.into(),
                dev: Rdev { major: fields.hex("devmajor")?, minor: fields.hex("devminor")? },
                rdev: Rdev { major: fields.hex("rdevmajor")?, minor: fields.hex("rdevminor")? },
                name_len: fields.hex("namesize")?.into(),
                check: fields.hex("check")?,
            }),
            Format::Odc => Ok(Self {
                format,
                dev: short_rdev(fields.octal("dev")?),
                ino: fields.octal("ino")?.into(),
                mode: fields.octal("mode")?,
                uid: fields.octal("uid")?,
                gid: fields.octal("gid")?,
                nlink: fields.octal("nlink")?,
                rdev: short_rdev(fields.octal("rdev")?),
                mtime: fields.number("mtime", 11)?,
                name_len: fields.octal("namesize")?.into(),
                size: fields.number("filesize", 11)?,
                check: 0,
            }),
        }
    }

    /// Returns the metadata for the tree. Times in headers are unsigned.
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            permissions: (self.mode & 0o7777) as u16,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime as i64,
            mtime_nsec: 0,
        }
    }

    /// Returns the file type bits of the mode.
    pub(super) fn file_type(&self) -> u32 {
        self.mode & 0o170_000
    }
}

/// Splits a 16-bit device number: 8 bits for the major number, 8 for the minor.
fn short_rdev(number: u32) -> Rdev {
    Rdev { major: number >> 8, minor: number & 0xFF }
}

struct Fields<'f> {
    rest: &'f [u8],
    radix: u32,
}

impl Fields<'_> {
    fn hex(&mut self, name: &str) -> Result<u32, String> {
        self.number(name, 8).map(|number| number as u32)
    }

    fn octal(&mut self, name: &str) -> Result<u32, String> {
        self.number(name, 6).map(|number| number as u32)
    }

    /// Parses the next field, which must consist of `len` digits.
    fn number(&mut self, name: &str, len: usize) -> Result<u64, String> {
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let number = digits.iter().try_fold(0, |number: u64, &digit| {
            let digit = char::from(digit).to_digit(self.radix)?;
            Some(number * u64::from(self.radix) + u64::from(digit))
        });
        let kind = if self.radix == 16 { "a hexadecimal" } else { "an octal" };
        number.ok_or_else(|| format!("{name} = \"{}\": not {kind} number", digits.escape_ascii()))
    }
}
