//! Records of a journal: bytes of the new image, their offset, and digests of the bytes that they
//! replace.
//!
//! A record has an offset and a length, the first 8 bytes of the BLAKE3 digest of each sector of
//! 512 bytes that it replaces, and the new bytes. Sectors have their own digests because a disk may
//! write only some of the sectors of a block when the power fails.

use kiln_output::{Output, write_all_at};
use std::ops::Range;

use crate::error::DeltaError;
use crate::in_place::read::{read_all, read_failed, write_failed};

/// Offset of the records in the journal, in bytes.
pub(super) const RECORDS_OFF: u64 = 4096;
/// Alignment in bytes of records in the target; a record ends at a multiple, or with the new image.
pub(super) const BLOCK_LEN: usize = 4096;
/// Maximum number of bytes in a record.
const RECORD_MAX_LEN: usize = 1 << 20;
/// Length in bytes of a record's offset and length fields.
const RECORD_HEAD_LEN: usize = 16;
/// Number of bytes that a disk writes atomically, and that have one digest.
const SECTOR_LEN: usize = 512;
/// Number of bytes of a sector's BLAKE3 digest that are stored.
const DIGEST_LEN: usize = 8;

/// A contiguous range of bytes that are replaced.
pub(super) struct Record<'a> {
    /// Offset in the target, in bytes.
    pub off: u64,
    digests: &'a [u8],
    /// Bytes of the new image.
    pub bytes: &'a [u8],
}

/// A sector of a record.
pub(super) struct Sector<'a> {
    /// Range in the bytes of the record.
    pub range: Range<usize>,
    digest: &'a [u8],
}

impl Record<'_> {
    pub(super) fn end(&self) -> u64 {
        self.off + self.bytes.len() as u64
    }

    pub(super) fn sectors(&self) -> impl Iterator<Item = Sector<'_>> {
        let len = self.bytes.len();
        let starts = (0..len).step_by(SECTOR_LEN);
        starts
            .zip(self.digests.chunks_exact(DIGEST_LEN))
            .map(move |(start, digest)| Sector { range: start..len.min(start + SECTOR_LEN), digest })
    }
}

impl Sector<'_> {
    /// Returns true if `bytes` match the digest of the old image's sector.
    pub(super) fn is_old(&self, bytes: &[u8]) -> bool {
        blake3::hash(bytes).as_bytes()[..DIGEST_LEN] == *self.digest
    }
}

/// Length and BLAKE3 digest of all records.
#[derive(Clone, Copy)]
pub(super) struct RecordsSeal {
    pub len: u64,
    pub digest: [u8; 32],
}

/// Writer of records, front to back.
pub(super) struct RecordsWriter<'a> {
    journal: &'a dyn Output,
    at: u64,
    hasher: blake3::Hasher,
    /// Current record: its offset in the target, its digests, its bytes.
    start: u64,
    digests: Vec<u8>,
    bytes: Vec<u8>,
}

impl<'a> RecordsWriter<'a> {
    pub(super) fn new(journal: &'a dyn Output) -> Self {
        let (digests, bytes) = (Vec::new(), Vec::new());
        Self { journal, at: RECORDS_OFF, hasher: blake3::Hasher::new(), start: 0, digests, bytes }
    }

    /// Adds the block `bytes` at `off`, which replaces the equally long block `there`.
    pub(super) fn add(&mut self, off: u64, bytes: &[u8], there: &[u8]) -> Result<(), DeltaError> {
        let follows = self.start + self.bytes.len() as u64 == off;
        if !follows || self.bytes.len() + bytes.len() > RECORD_MAX_LEN {
            self.flush()?;
            self.start = off;
        }
        for sector in there.chunks(SECTOR_LEN) {
            self.digests.extend(&blake3::hash(sector).as_bytes()[..DIGEST_LEN]);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeltaError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let mut record = Vec::with_capacity(RECORD_HEAD_LEN + self.digests.len() + self.bytes.len());
        record.extend(self.start.to_le_bytes());
        record.extend((self.bytes.len() as u64).to_le_bytes());
        record.append(&mut self.digests);
        record.append(&mut self.bytes);
        self.hasher.update(&record);
        write_all_at(self.journal, &record, self.at).map_err(write_failed)?;
        self.at += record.len() as u64;
        Ok(())
    }

    /// Writes the last record, and syncs.
    pub(super) fn finish(mut self) -> Result<RecordsSeal, DeltaError> {
        self.flush()?;
        self.journal.sync().map_err(write_failed)?;
        Ok(RecordsSeal { len: self.at - RECORDS_OFF, digest: *self.hasher.finalize().as_bytes() })
    }
}

/// Calls `take` with the records of an image of `new_len` bytes, in ascending order of offsets. What is between them is
/// in the target, which had `target_len` bytes.
///
/// # Errors
/// Records that do not match `seal`, which is detected after the last; records that overlap or exceed the new image;
/// bytes of the new image that neither a record nor the target has; errors of `take`.
pub(super) fn read_records(
    journal: &dyn Output,
    seal: &RecordsSeal,
    new_len: u64,
    target_len: u64,
    take: &mut dyn FnMut(&Record<'_>) -> Result<(), DeltaError>,
) -> Result<(), DeltaError> {
    let damaged = |at: u64, reason| DeltaError::Journal { what: format!("is damaged: record at byte {at}: {reason}") };
    let end = RECORDS_OFF.saturating_add(seal.len);
    let (mut hasher, mut at, mut free) = (blake3::Hasher::new(), RECORDS_OFF, 0);
    let mut body = Vec::new();
    while at < end {
        let mut head = [0; RECORD_HEAD_LEN];
        if !read_all(journal, &mut head, at).map_err(read_failed)? {
            return Err(damaged(at, "the journal ends before it"));
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let (off, len) = (number(&head[..8]), number(&head[8..]));
        let is_aligned = |number: u64| number.is_multiple_of(BLOCK_LEN as u64);
        if len == 0 || len > RECORD_MAX_LEN as u64 {
            return Err(damaged(at, "its length is not between 1 and 1048576"));
        }
        let record_end = off.checked_add(len).filter(|end| *end <= new_len);
        let Some(record_end) = record_end.filter(|end| is_aligned(off) && (is_aligned(*end) || *end == new_len)) else {
            return Err(damaged(at, "it does not consist of whole blocks of the new image"));
        };
        if off < free || free == 0 && off != 0 {
            return Err(damaged(at, "it does not follow the one before, or the first block of the image is missing"));
        }
        if off > free.max(target_len) {
            return Err(damaged(at, "the blocks before it are neither in a record nor in the target"));
        }
        let digests_len = (len as usize).div_ceil(SECTOR_LEN) * DIGEST_LEN;
        body.resize(digests_len + len as usize, 0);
        if !read_all(journal, &mut body, at + RECORD_HEAD_LEN as u64).map_err(read_failed)? {
            return Err(damaged(at, "the journal ends within it"));
        }
        hasher.update(&head).update(&body);
        let (digests, bytes) = body.split_at(digests_len);
        take(&Record { off, digests, bytes })?;
        at += (RECORD_HEAD_LEN + body.len()) as u64;
        free = record_end;
    }
    if new_len > free.max(target_len) {
        return Err(damaged(at, "the new image goes on behind the last one, but the target does not"));
    }
    if free == 0 || at != end || *hasher.finalize().as_bytes() != seal.digest {
        return Err(DeltaError::Journal { what: "is damaged (BLAKE3 of its records differs)".to_owned() });
    }
    Ok(())
}
