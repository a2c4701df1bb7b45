//! Generations of an image that was updated in place: a chain of records from the last one back to
//! the image as it was built.

use crate::error::ReadError;
use crate::source::devices::Devices;
use crate::source::read_at::ReadAt;
use crate::stats::Counters;
use kiln_format::generation::{END_LEN, GenerationEnd, GenerationRecord, HEAD_LEN, RECORD_LEN};
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use std::sync::Arc;

/// One of the trees that an image has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number: 0 is the image as it was built, and the highest one is what the kernel mounts.
    pub number: u32,
    /// The generation whose tree it shows again, if it was made by going back.
    pub restored: Option<u32>,
    /// Start time of the update that made it, in seconds since 1970; unknown for generation 0.
    pub time: Option<i64>,
    /// Description of the update that made it.
    pub label: String,
    /// First byte of the image that it added.
    pub start: u64,
    /// Byte behind it.
    pub end: u64,
    /// Its superblock.
    pub superblock: Superblock,
    /// Bytes of the image from [`SUPERBLOCK_OFF`] on while it was the last one.
    pub head: [u8; HEAD_LEN],
}

/// Returns the generations of the image in `source`, the oldest first.
///
/// # Errors
/// Not an image; a chain of records that is damaged; a failing source.
pub fn generations(source: &Arc<dyn ReadAt>) -> Result<Vec<Generation>, ReadError> {
    let devices = Devices::primary(source.clone(), Arc::<Counters>::default())?;
    let mut head = read_head(&devices)?;
    let mut list = Vec::new();
    // Claims of the record before, that of the later generation, about the next one.
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

/// Returns the sector that updates replace.
pub(super) fn read_head(devices: &Devices) -> Result<[u8; HEAD_LEN], ReadError> {
    let mut head = [0; HEAD_LEN];
    let have = devices.primary_len().saturating_sub(SUPERBLOCK_OFF).min(HEAD_LEN as u64) as usize;
    if have == 0 {
        return Err(ReadError::corrupt("erofs_super_block", SUPERBLOCK_OFF, "magic", 0, "not an EROFS image"));
    }
    devices.read(0, &mut head[..have], SUPERBLOCK_OFF)?;
    Ok(head)
}

/// Returns the byte behind the blocks that a superblock counts.
pub(super) fn end_of(superblock: &Superblock) -> u64 {
    superblock.blocks.saturating_mul(superblock.block_bits.len())
}

/// Reads the record at the end of the generation that ends at byte `end`, if an update made it.
pub(super) fn read_end(devices: &Devices, end: u64) -> Result<Option<GenerationEnd>, ReadError> {
    let mut bytes = [0; END_LEN];
    let Some(at) = end.checked_sub(END_LEN as u64).filter(|_| end <= devices.primary_len()) else { return Ok(None) };
    devices.read(0, &mut bytes, at)?;
    Ok(GenerationEnd::decode(&bytes, end)?)
}

/// Returns the record to which an end leads.
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
