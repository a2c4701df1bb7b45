//! Parser of central directory records: metadata and location of a member.

use kiln_format::inode::FileType;
use kiln_tree::{ContentError, Metadata};
use rawzip::time::{UtcDateTime, ZipDateTimeKind};
use rawzip::{CreatorSystem, RangeReader, ZipFileHeaderRecord};
use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;

use super::bytes::{Archive, Bytes};
use super::cp437::to_utf8;
use super::extra::{owners, owners_are_in_the_local_header, unicode_path};
use super::method::Method;
use crate::archive::decoded::Plain;
use crate::fields::Fields;

/// MS-DOS attribute of directories, which archives of all systems set.
const DOS_DIRECTORY: u32 = 0x10;
/// Maximum length in bytes of name and extra fields of a local header.
pub(super) const LOCAL_FIELDS_MAX_LEN: usize = 2 * u16::MAX as usize;

/// A member of an archive.
pub(super) struct Member {
    /// Offset of its central directory record in bytes.
    pub record_off: u64,
    /// Path of the member.
    pub name: Box<[u8]>,
    pub file_type: FileType,
    pub meta: Metadata,
    /// Offset of its local header in bytes.
    pub header_off: u64,
    pub data: PackedData,
}

/// Location and format of a member's data.
#[derive(Clone, Debug)]
pub(crate) struct PackedData {
    /// Range in bytes of the archive.
    pub(super) stored: Range<u64>,
    pub(super) method: Method,
    pub(super) plain: Plain,
}

impl PackedData {
    /// Length in bytes of [`PackedData::to_bytes`].
    pub(crate) const LEN: usize = 29;

    /// Returns a decoder at the start of the plain text.
    ///
    /// # Errors
    /// A decoder that cannot be created; errors of the archive.
    pub(super) fn decoder(&self, bytes: &Bytes) -> io::Result<Box<dyn Read + Send>> {
        let packed = RangeReader::new(bytes.clone(), self.stored.clone());
        self.method.decoder(Box::new(packed), self.plain.len)
    }

    /// Returns it as bytes: start, end, length, CRC-32, method.
    pub(crate) fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.stored.start.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stored.end.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.plain.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.plain.crc.to_le_bytes());
        bytes[28] = self.method.number();
        bytes
    }

    /// Returns what [`PackedData::to_bytes`] has returned.
    ///
    /// # Errors
    /// Bytes that are no such data.
    pub(crate) fn read_from(fields: &mut Fields<'_>) -> io::Result<Self> {
        let (start, end) = (fields.u64("start")?, fields.u64("end")?);
        if start > end {
            return Err(fields.invalid("end", end));
        }
        let plain = Plain { len: fields.u64("length of the text")?, crc: fields.u32("CRC-32")? };
        let [number] = fields.array("method")?;
        let method = Method::of_number(number).ok_or_else(|| fields.invalid("method", number.into()))?;
        Ok(Self { stored: start..end, method, plain })
    }
}

/// Returns the path of the member of `record`.
pub(super) fn name<'a>(record: &'a ZipFileHeaderRecord<'a>) -> Cow<'a, [u8]> {
    let raw: &[u8] = record.file_path().as_bytes();
    match record.flags().is_utf8() {
        true => Cow::Borrowed(raw),
        false => unicode_path(record.extra_fields(), raw).map_or_else(|| to_utf8(raw), Cow::Borrowed),
    }
}

/// Reads the member of `record` of `archive`, which is `len` bytes long. `fields` has
/// [`LOCAL_FIELDS_MAX_LEN`] bytes for its local header.
///
/// # Errors
/// A member that is encrypted or compressed with an unsupported method; data beyond the end of the
/// archive; read errors.
pub(super) fn member(
    record: &ZipFileHeaderRecord<'_>,
    archive: &Archive,
    len: u64,
    fields: &mut [u8],
) -> io::Result<Member> {
    let flags = record.flags();
    if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() {
        let reason = "it is encrypted; unpack the archive with its password and pack the result";
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    let method = Method::of(record.compression_method(), flags.bits())?;
    let entry = archive.get_entry(record.wayfinder()).map_err(|error| {
        invalid(format!("its local header at byte {} cannot be read: {error}", record.local_header_offset()))
    })?;
    let (start, end) = entry.compressed_data_range();
    if end > len {
        return Err(invalid(format!("its data end at byte {end}, but the archive has {len} bytes")));
    }
    let plain = Plain { len: record.uncompressed_size_hint(), crc: record.crc32() };
    if method == Method::Stored && plain.len != end - start {
        return Err(invalid(format!(
            "it is not compressed, but its {} bytes are stored in {}",
            plain.len,
            end - start
        )));
    }
    let (file_type, permissions) = mode(record);
    let mut owner = owners(record.extra_fields());
    if owner.is_none() && owners_are_in_the_local_header(record.extra_fields()) {
        let header = entry.local_header(fields).map_err(|error| invalid(error.to_string()))?;
        owner = owners(header.extra_fields());
    }
    let (uid, gid) = owner.unwrap_or_default();
    let (mtime, mtime_nsec) = mtime(record);
    Ok(Member {
        record_off: record.central_directory_offset(),
        name: name(record).into_owned().into(),
        file_type,
        meta: Metadata { permissions, uid, gid, mtime, mtime_nsec },
        header_off: record.local_header_offset(),
        data: PackedData { stored: start..end, method, plain },
    })
}

/// Returns file type and permissions.
fn mode(record: &ZipFileHeaderRecord<'_>) -> (FileType, u16) {
    let attributes = record.external_attributes();
    let by_unix = matches!(record.version_made_by().creator_system(), CreatorSystem::UNIX | CreatorSystem::MACOS);
    // Programs without modes write zero.
    let mode = Some((attributes >> 16) as u16).filter(|&mode| by_unix && mode != 0);
    let named_directory = name(record).ends_with(b"/");
    let file_type = match mode.and_then(FileType::from_mode) {
        _ if named_directory => FileType::Directory,
        Some(file_type) => file_type,
        None if attributes & DOS_DIRECTORY != 0 => FileType::Directory,
        None => FileType::Regular,
    };
    let default = if file_type == FileType::Directory { 0o755 } else { 0o644 };
    (file_type, mode.map_or(default, |mode| mode & 0o7777))
}

/// Returns seconds since 1970, and nanoseconds.
fn mtime(record: &ZipFileHeaderRecord<'_>) -> (i64, u32) {
    match record.last_modified() {
        ZipDateTimeKind::Utc(time) => (time.to_unix(), time.nanosecond()),
        ZipDateTimeKind::Local(time) => {
            let (year, month, day) = (time.year(), time.month(), time.day());
            let utc = UtcDateTime::from_components(year, month, day, time.hour(), time.minute(), time.second(), 0);
            (utc.map_or(0, |utc| utc.to_unix()), 0)
        }
    }
}

/// Returns the error of a member whose data start at byte `start` of the archive.
pub(super) fn at_byte(start: u64, error: &io::Error) -> ContentError {
    io::Error::new(error.kind(), format!("its data at byte {start} of the archive: {error}")).into()
}

pub(super) fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
