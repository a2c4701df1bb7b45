//! Contents of members.

use flate2::Crc;
use kiln_read::ReadAt;
use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use rawzip::RangeReader;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use super::bytes::Bytes;
use super::method::Method;
use super::record::PackedData;
use crate::archive::decoded::{DecodedContents, IN_MEMORY_MAX_LEN, Plain, Streams, wrong_crc};
use crate::in_memory::InMemory;
use crate::input::spool::SpoolPlace;

impl PackedData {
    /// Returns a decoder at the start of the plain text.
    ///
    /// # Errors
    /// A decoder that cannot be created; errors of the archive.
    pub(super) fn decoder(&self, bytes: &Bytes) -> io::Result<Box<dyn Read + Send>> {
        let packed = RangeReader::new(bytes.clone(), self.stored.clone());
        self.method.decoder(Box::new(packed), self.plain.len)
    }
}

/// Data of members, by content id.
struct PackedFiles {
    bytes: Bytes,
    files: Arc<[PackedData]>,
}

impl Streams for PackedFiles {
    fn count(&self) -> usize {
        self.files.len()
    }

    fn plain(&self, idx: usize) -> Plain {
        self.files[idx].plain
    }

    fn decoder(&self, idx: usize) -> io::Result<Box<dyn Read + Send + '_>> {
        self.files[idx].decoder(&self.bytes)
    }
}

/// Contents of an archive.
pub(super) struct ZipContents {
    bytes: Bytes,
    /// Range and checksum of each uncompressed member, by content id.
    stored: Vec<Option<(Range<u64>, u32)>>,
    /// Offset of each member's data, in bytes.
    starts: Vec<u64>,
    decoded: DecodedContents<PackedFiles>,
}

impl ZipContents {
    /// Creates the contents `files` of the archive `bytes`, by content id. Long ones are decoded
    /// into `spool_place`.
    pub(super) fn new(bytes: Bytes, files: Arc<[PackedData]>, spool_place: &SpoolPlace) -> Self {
        let in_place = |file: &PackedData| (file.stored.clone(), file.plain.crc);
        let stored = files.iter().map(|file| (file.method == Method::Stored).then(|| in_place(file))).collect();
        let starts = files.iter().map(|file| file.stored.start).collect();
        let decoded = DecodedContents::new(PackedFiles { bytes: bytes.clone(), files }, spool_place.clone());
        Self { bytes, stored, starts, decoded }
    }
}

impl PlainContents for ZipContents {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        let idx = id.0 as usize;
        match &self.stored[idx] {
            // Short ones are read whole, so that their CRC-32 is checked however they are read.
            Some((range, crc)) if range.end - range.start <= IN_MEMORY_MAX_LEN => {
                let text = read_whole(&*self.bytes.0, range, *crc).map_err(|error| at_byte(range.start, &error))?;
                Ok(Box::new(InMemory(text)))
            }
            Some((range, crc)) => Ok(Box::new(StoredMember {
                bytes: Arc::clone(&self.bytes.0),
                range: range.clone(),
                expected: *crc,
                crc: Crc::new(),
                checked_len: 0,
            })),
            None => self.decoded.open(idx).map_err(|error| at_byte(self.starts[idx], &error)),
        }
    }
}

/// Returns the bytes of an uncompressed member, whose CRC-32 is `expected`.
fn read_whole(bytes: &dyn ReadAt, range: &Range<u64>, expected: u32) -> io::Result<Vec<u8>> {
    let mut text = vec![0; (range.end - range.start) as usize];
    bytes.read_exact_at(&mut text, range.start)?;
    let mut crc = Crc::new();
    crc.update(&text);
    if crc.sum() == expected { Ok(text) } else { Err(wrong_crc(crc.sum(), expected)) }
}

/// Returns the error of a member whose data start at byte `start` of the archive.
fn at_byte(start: u64, error: &io::Error) -> ContentError {
    io::Error::new(error.kind(), format!("its data at byte {start} of the archive: {error}")).into()
}

/// An uncompressed member.
struct StoredMember {
    bytes: Arc<dyn ReadAt>,
    range: Range<u64>,
    /// CRC-32 that the archive states.
    expected: u32,
    /// CRC-32 of the first `checked_len` bytes.
    crc: Crc,
    checked_len: u64,
}

impl StoredMember {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Content for StoredMember {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        if off.checked_add(buf.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.bytes.read_exact_at(buf, self.range.start + off).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ContentError::Resized("the archive has become shorter"),
            _ => error.into(),
        })?;
        if off == self.checked_len && !buf.is_empty() {
            self.crc.update(buf);
            self.checked_len += buf.len() as u64;
        }
        // Once the CRC-32 is known to be wrong, every further read fails.
        if self.checked_len == self.len() && self.crc.sum() != self.expected {
            return Err(at_byte(self.range.start, &wrong_crc(self.crc.sum(), self.expected)));
        }
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok((off < self.len()).then_some(off..self.len()))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}
