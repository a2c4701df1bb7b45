//! Contents of members.

use flate2::Crc;
use kiln_read::ReadAt;
use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use super::bytes::Bytes;
use super::method::Method;
use super::record::{PackedData, at_byte};
use super::short_member::{self, ShortMember};
use crate::archive::decoded::{DecodedContents, Plain, Streams, wrong_crc};
use crate::input::spool::SpoolPlace;

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
pub(super) struct ZipContents(DecodedContents<PackedFiles>);

impl ZipContents {
    /// Creates the contents `files` of the archive `bytes`, by content id. Long ones are decoded
    /// into `spool_place`.
    pub(super) fn new(bytes: Bytes, files: Arc<[PackedData]>, spool_place: &SpoolPlace) -> Self {
        Self(DecodedContents::new(PackedFiles { bytes, files }, spool_place.clone()))
    }
}

impl PlainContents for ZipContents {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        let idx = id.0 as usize;
        let PackedFiles { bytes, files } = self.0.streams();
        let data @ PackedData { stored, method, plain } = &files[idx];
        if plain.len <= short_member::MAX_LEN {
            return Ok(Box::new(ShortMember::new(bytes.clone(), data.clone())));
        }
        match method {
            Method::Stored => Ok(Box::new(StoredMember {
                bytes: Arc::clone(&bytes.0),
                range: stored.clone(),
                expected: plain.crc,
                crc: Crc::new(),
                checked_len: 0,
            })),
            _ => self.0.open(idx).map_err(|error| at_byte(stored.start, &error)),
        }
    }
}

/// A long uncompressed member.
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
