//! Headers of members.

use kiln_format::inode::Rdev;
use kiln_tree::Metadata;

/// Bytes of the magic number that begins each header.
pub(super) const MAGIC_LEN: usize = 6;

/// The form of a header. Each member has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// 8 hexadecimal digits for each number; names and data end at multiples of 4 bytes.
    Newc,
    /// As newc, with the sum of a file's bytes.
    Crc,
    /// 6 or 11 octal digits for each number (POSIX.1-1988).
    Odc,
}

impl Format {
    /// The format of a header that begins so, if it is one.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        match head.get(..MAGIC_LEN)? {
            b"070701" => Some(Format::Newc),
            b"070702" => Some(Format::Crc),
            b"070707" => Some(Format::Odc),
            _ => None,
        }
    }

    /// Bytes of a header behind its magic number.
    pub(super) fn fields_len(self) -> u64 {
        match self {
            Format::Newc | Format::Crc => 13 * 8,
            Format::Odc => 8 * 6 + 2 * 11,
        }
    }

    /// Names and data end at a multiple of so many bytes.
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

/// What a header says.
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
    /// Bytes of data.
    pub(super) size: u64,
    pub(super) rdev: Rdev,
    /// Bytes of the name with the zero that ends it.
    pub(super) name_len: u64,
    /// The sum of all bytes of a file's data, in [`Format::Crc`].
    pub(super) check: u32,
}

impl Header {
    /// From the [`Format::fields_len`] bytes behind the magic number.
    ///
    /// # Errors
    /// The field that is no number.
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

    /// As a tree has it. Times have no sign.
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            permissions: (self.mode & 0o7777) as u16,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime as i64,
            mtime_nsec: 0,
        }
    }

    /// The bits of the mode that say what it is.
    pub(super) fn file_type(&self) -> u32 {
        self.mode & 0o170_000
    }
}

/// The number of a device as systems of the time had it.
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

    /// The next field, of `len` digits and nothing else.
    fn number(&mut self, name: &str, len: usize) -> Result<u64, String> {
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let number = digits.iter().try_fold(0, |number: u64, &digit| {
            let digit = char::from(digit).to_digit(self.radix)?;
            Some(number * u64::from(self.radix) + u64::from(digit))
        });
        let kind = if self.radix == 16 { "hexadecimal" } else { "octal" };
        number.ok_or_else(|| format!("{name} = \"{}\": no {kind} number", digits.escape_ascii()))
    }
}
