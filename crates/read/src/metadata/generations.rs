//! Generations of an image that was updated in place: a chain of records from the last one back to the image as it was built.

use crate::error::ReadError;
use crate::source::devices::Devices;
use crate::source::read_at::{RangeMut, ReadAt};
use crate::stats::Counters;
use kiln_format::generation::{END_LEN, GenerationEnd, GenerationRecord, HEAD_LEN, RECORD_LEN};
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use std::io;
use std::sync::Arc;

/// One of the trees that an image has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number: 0 is the image as it was built, and the highest one is what the kernel mounts.
    pub number: u32,
    /// The generation whose tree it shows again, if it was made by going back.
    pub restored: Option<u32>,
    /// When the update that made it began, in seconds since 1970; nothing says so of generation 0.
    pub time: Option<i64>,
    /// What made it, for people.
    pub label: String,
    /// Byte of the image where that begins which it has added.
    pub start: u64,
    /// Byte behind it.
    pub end: u64,
    /// Its superblock.
    pub superblock: Superblock,
    /// Bytes of the image from [`SUPERBLOCK_OFF`] on while it was the last one.
    pub head: [u8; HEAD_LEN],
}

/// The generations of the image in `source`, the oldest first.
///
/// # Errors
/// Not an image; a chain of records that is damaged; a failing source.
pub fn generations(source: &Arc<dyn ReadAt>) -> Result<Vec<Generation>, ReadError> {
    let devices = Devices::primary(source.clone(), Arc::<Counters>::default())?;
    let mut head = [0; HEAD_LEN];
    let have = devices.primary_len().saturating_sub(SUPERBLOCK_OFF).min(HEAD_LEN as u64) as usize;
    if have == 0 {
        return Err(ReadError::corrupt("erofs_super_block", SUPERBLOCK_OFF, "magic", 0, "not an EROFS image"));
    }
    devices.read(0, &mut head[..have], SUPERBLOCK_OFF)?;
    let mut list = Vec::new();
    // What the record before, which is that of the later generation, says of the next one.
    let mut expected: Option<(u32, Option<u64>, u64)> = None;
    loop {
        let superblock = Superblock::decode(&head)?;
        let end = end_of(&superblock);
        let found = match expected {
            Some((0, ..)) => None,
            _ => read_end(&devices, end)?,
        };
        if let Some((number, position, limit)) = expected {
            let says = found.map_or((0, None), |found| (found.number, Some(found.position)));
            if says != (number, position) || end > limit {
                let (record, field) = ("kiln_generation_end", "number");
                let reason = "is not the generation before that of the next record";
                return Err(ReadError::corrupt(record, end, field, says.0.into(), reason));
            }
        }
        let Some(found) = found else {
            let label = String::new();
            list.push(Generation { number: 0, restored: None, time: None, label, start: 0, end, superblock, head });
            list.reverse();
            return Ok(list);
        };
        let record = read_record(&devices, &found)?;
        expected = Some((record.number - 1, record.previous, record.position));
        list.push(Generation {
            number: record.number,
            restored: record.restored,
            time: Some(record.time),
            label: record.label,
            start: record.position,
            end,
            superblock,
            head,
        });
        head = record.head;
    }
}

/// Byte behind the blocks that a superblock counts.
fn end_of(superblock: &Superblock) -> u64 {
    superblock.blocks.saturating_mul(superblock.block_bits.len())
}

/// What the generation that ends at byte `end` ends with, if an update made it.
fn read_end(devices: &Devices, end: u64) -> Result<Option<GenerationEnd>, ReadError> {
    let mut bytes = [0; END_LEN];
    let Some(at) = end.checked_sub(END_LEN as u64).filter(|_| end <= devices.primary_len()) else { return Ok(None) };
    devices.read(0, &mut bytes, at)?;
    Ok(GenerationEnd::decode(&bytes, end)?)
}

/// The record to which an end leads.
fn read_record(devices: &Devices, end: &GenerationEnd) -> Result<GenerationRecord, ReadError> {
    let GenerationEnd { number, position, end: behind } = *end;
    let lies_before = position.checked_add(RECORD_LEN as u64).is_some_and(|record_end| record_end <= behind);
    if !lies_before || position < SUPERBLOCK_OFF + HEAD_LEN as u64 {
        return Err(end.corrupt("position", position, "does not lie before").into());
    }
    let mut bytes = [0; RECORD_LEN];
    devices.read(0, &mut bytes, position)?;
    let record = GenerationRecord::decode(&bytes, position)?;
    match record.number == number {
        true => Ok(record),
        false => Err(end.corrupt("number", number.into(), "is not that of the record").into()),
    }
}

/// The image of `source` as it was in the generation `number`.
///
/// # Errors
/// As [`generations`]; a generation that the image does not have.
pub(crate) fn as_of(source: Arc<dyn ReadAt>, number: u32) -> Result<Arc<dyn ReadAt>, ReadError> {
    let list = generations(&source)?;
    let last = list.last().map_or(0, |generation| generation.number);
    let found = list.into_iter().find(|generation| generation.number == number);
    let Some(Generation { superblock, end, head, .. }) = found else {
        return Err(ReadError::NoGeneration { number, last });
    };
    // Extra devices may follow behind the blocks.
    if superblock.extra_devices > 0 {
        return Ok(source);
    }
    let source_len = source.len().map_err(|error| ReadError::io(0, 0, error))?;
    Ok(Arc::new(GenerationSource { inner: source, head, len: end.min(source_len) }))
}

/// An image as it was in a generation: its first blocks, with the sector of the superblock as that was.
struct GenerationSource {
    inner: Arc<dyn ReadAt>,
    head: [u8; HEAD_LEN],
    len: u64,
}

impl GenerationSource {
    fn check(&self, off: u64, len: usize) -> io::Result<()> {
        match off.checked_add(len as u64).is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether a range has bytes of the sector that was changed since.
    fn has_head(&self, off: u64, len: u64) -> bool {
        off < SUPERBLOCK_OFF + HEAD_LEN as u64 && off.saturating_add(len) > SUPERBLOCK_OFF
    }

    /// Put what the sector was into `buf`, which was read from byte `off` on.
    fn put_head(&self, buf: &mut [u8], off: u64) {
        let end = off + buf.len() as u64;
        let (start, stop) = (off.max(SUPERBLOCK_OFF), end.min(SUPERBLOCK_OFF + HEAD_LEN as u64));
        if start < stop {
            let part = &self.head[(start - SUPERBLOCK_OFF) as usize..(stop - SUPERBLOCK_OFF) as usize];
            buf[(start - off) as usize..(stop - off) as usize].copy_from_slice(part);
        }
    }
}

impl ReadAt for GenerationSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.check(off, buf.len())?;
        self.inner.read_exact_at(buf, off)?;
        self.put_head(buf, off);
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter().try_for_each(|range| self.check(range.off, range.buf.len()))?;
        self.inner.read_ranges(ranges)?;
        ranges.iter_mut().for_each(|range| self.put_head(range.buf, range.off));
        Ok(())
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.check(off, len).ok()?;
        if self.has_head(off, len as u64) { None } else { self.inner.borrow(off, len) }
    }

    fn will_need(&self, off: u64, len: u64) {
        if off < self.len {
            self.inner.will_need(off, len.min(self.len - off));
        }
    }

    fn fetch_max_len(&self) -> usize {
        self.inner.fetch_max_len()
    }

    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        if off < self.len { self.inner.is_resident(off, len.min(self.len - off)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::conformance::assert_conforms;
    use crate::source::memory::MemorySource;

    #[test]
    fn a_generation_is_a_source_like_others() {
        let bytes: Vec<u8> = (0..9000).map(|at| (at / 5) as u8).collect();
        for len in [1024, 1200, 1536, 4096, 9000] {
            let head = std::array::from_fn(|at| !(at as u8));
            let mut expected = bytes[..len].to_vec();
            let end = len.min(1024 + HEAD_LEN);
            expected[1024..end].copy_from_slice(&head[..end - 1024]);
            let inner = Arc::new(MemorySource::new(bytes.clone()));
            assert_conforms(&GenerationSource { inner, head, len: len as u64 }, &expected);
        }
    }
}
