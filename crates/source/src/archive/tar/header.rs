//! Parser of a member's header: a record of 512 bytes.
//!
//! All dialects have the fields of v7 at the same offsets. POSIX ustar adds the owners' names,
//! device numbers and a prefix of the path; star has a shorter prefix; GNU tar has a sparse map in
//! place of the prefix.

use super::number::number;

/// Length of a record in bytes; all parts of an archive are padded to it.
pub(super) const RECORD_LEN: usize = 512;

/// A record that may be a header.
pub(super) type Record = [u8; RECORD_LEN];

/// Position of a field, with its name in the descriptions of the format.
#[derive(Clone, Copy)]
pub(super) struct Field {
    name: &'static str,
    at: usize,
    len: usize,
}

const NAME: Field = Field { name: "name", at: 0, len: 100 };
pub(super) const MODE: Field = Field { name: "mode", at: 100, len: 8 };
pub(super) const UID: Field = Field { name: "uid", at: 108, len: 8 };
pub(super) const GID: Field = Field { name: "gid", at: 116, len: 8 };
pub(super) const SIZE: Field = Field { name: "size", at: 124, len: 12 };
pub(super) const MTIME: Field = Field { name: "mtime", at: 136, len: 12 };
const CHECKSUM: Field = Field { name: "chksum", at: 148, len: 8 };
const TYPE_FLAG_AT: usize = 156;
const LINK_NAME: Field = Field { name: "linkname", at: 157, len: 100 };
const MAGIC_AT: usize = 257;
const UNAME: Field = Field { name: "uname", at: 265, len: 32 };
const GNAME: Field = Field { name: "gname", at: 297, len: 32 };
pub(super) const DEV_MAJOR: Field = Field { name: "devmajor", at: 329, len: 8 };
pub(super) const DEV_MINOR: Field = Field { name: "devminor", at: 337, len: 8 };
const PREFIX: Field = Field { name: "prefix", at: 345, len: 155 };
const STAR_PREFIX: Field = Field { len: 131, ..PREFIX };
/// Last bytes of star's headers.
const STAR_MAGIC: &[u8] = b"tar\0";

/// Set of fields after those of v7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// No more fields.
    V7,
    /// Fields of POSIX.
    Ustar,
    /// Fields of star: access and change times take the end of the prefix.
    Star,
    /// Fields of GNU tar before it wrote POSIX archives.
    Gnu,
}

/// A header with a valid checksum.
pub(super) struct Header<'a> {
    record: &'a Record,
    pub(super) dialect: Dialect,
}

impl<'a> Header<'a> {
    /// Parses `record`.
    ///
    /// # Errors
    /// A wrong checksum.
    pub(super) fn new(record: &'a Record) -> Result<Self, String> {
        let expected = number_at(record, CHECKSUM)?;
        let field = CHECKSUM.at..CHECKSUM.at + CHECKSUM.len;
        // The sum is of unsigned bytes, with spaces in place of the checksum field. Old programs
        // summed signed bytes.
        let spaces = CHECKSUM.len as i64 * i64::from(b' ');
        let unsigned = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let found = i64::from(unsigned(record) - unsigned(&record[field.clone()])) + spaces;
        let signed = |bytes: &[u8]| bytes.iter().map(|&byte| i64::from(byte as i8)).sum::<i64>();
        if found != expected && signed(record) - signed(&record[field]) + spaces != expected {
            return Err(format!("chksum = {expected}, but the sum of the header's bytes is {found}"));
        }
        let dialect = match &record[MAGIC_AT..MAGIC_AT + 8] {
            b"ustar  \0" => Dialect::Gnu,
            magic if magic.starts_with(b"ustar\0") && record.ends_with(STAR_MAGIC) => Dialect::Star,
            magic if magic.starts_with(b"ustar\0") => Dialect::Ustar,
            _ => Dialect::V7,
        };
        Ok(Self { record, dialect })
    }

    /// Returns the raw record.
    pub(super) fn record(&self) -> &'a Record {
        self.record
    }

    /// Returns the type of the member.
    pub(super) fn type_flag(&self) -> u8 {
        self.record[TYPE_FLAG_AT]
    }

    /// Returns the path of the member: prefix and name.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(self.record, NAME);
        let prefix = match self.dialect {
            Dialect::Ustar => text(self.record, PREFIX),
            Dialect::Star => text(self.record, STAR_PREFIX),
            Dialect::V7 | Dialect::Gnu => b"",
        };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    /// Returns the target of a link.
    pub(super) fn link_name(&self) -> &'a [u8] {
        text(self.record, LINK_NAME)
    }

    /// Returns the owner's name, or an empty slice if there is none.
    pub(super) fn user_name(&self) -> &'a [u8] {
        if self.dialect == Dialect::V7 { b"" } else { text(self.record, UNAME) }
    }

    /// Returns the group's name, or an empty slice if there is none.
    pub(super) fn group_name(&self) -> &'a [u8] {
        if self.dialect == Dialect::V7 { b"" } else { text(self.record, GNAME) }
    }

    /// Returns the number in `field`.
    ///
    /// # Errors
    /// A field that is not a number.
    pub(super) fn number(&self, field: Field) -> Result<i64, String> {
        number_at(self.record, field)
    }

    /// Returns the number in `field` as type `N`.
    ///
    /// # Errors
    /// A field that is not a number, or is out of range for `N`.
    pub(super) fn number_as<N: TryFrom<i64>>(&self, field: Field) -> Result<N, String> {
        let number = self.number(field)?;
        N::try_from(number).map_err(|_| format!("{} = {number}: out of range", field.name))
    }
}

/// Returns true if `record` is a header at which an archive can begin: the checksum is right and
/// the fields common to all dialects are valid.
pub(super) fn is_header(record: &Record) -> bool {
    Header::new(record).is_ok_and(|header| {
        let numbers = [MODE, UID, GID, MTIME].into_iter().all(|field| header.number(field).is_ok());
        let is_type = matches!(header.type_flag(), 0 | b'0'..=b'7' | b'A'..=b'Z' | b'g' | b'x');
        // The checksum of a record of zeros except for the checksum field would be right, too.
        let has_name = record[NAME.at] != 0 || header.dialect != Dialect::V7;
        numbers && is_type && has_name && header.number_as::<u64>(SIZE).is_ok()
    })
}

fn number_at(record: &Record, Field { name, at, len }: Field) -> Result<i64, String> {
    let bytes = &record[at..at + len];
    number(bytes).ok_or_else(|| format!("{name} = \"{}\": not a number", bytes.escape_ascii()))
}

fn text(record: &Record, Field { at, len, .. }: Field) -> &[u8] {
    until_zero(&record[at..at + len])
}

/// Returns the bytes before the first zero byte.
pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}
