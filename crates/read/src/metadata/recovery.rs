//! Generations of an image that is damaged: cut off, without its front, or with records that cannot
//! be read.
//!
//! The record with which a generation begins has the superblock of the one before, which ends where
//! the record lies. So what lies in front of a record is a generation that is whole, whatever
//! became of the rest. Where the chain of records does not lead to all of them, they are looked for
//! by their magic, from the end of the image to its front: only those count that go before the ones
//! that were found.

use crate::error::ReadError;
use crate::metadata::generations::{Generation, end_of, generations, read_end, read_head};
use crate::source::devices::Devices;
use crate::source::read_at::ReadAt;
use crate::stats::Counters;
use kiln_format::generation::{GenerationRecord, HEAD_LEN, RECORD_LEN, RECORD_MAGIC};
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock};
use std::fmt;
use std::sync::Arc;

/// Records lie at multiples of the least block size.
const SECTOR_LEN: usize = 512;
/// Bytes that are looked through at a time.
const PIECE_LEN: u64 = 1 << 20;

/// The generations of an image that may be damaged.
#[derive(Clone, Debug)]
pub struct FoundGenerations {
    /// Those of which all bytes are there, the oldest first. Whether these are right, only a check
    /// of each can tell.
    pub whole: Vec<Generation>,
    /// Why these may not be all; `None`: they are.
    pub damage: Option<GenerationDamage>,
}

/// Why generations of an image are missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GenerationDamage {
    /// The image ends before its last generation does.
    Cut {
        /// Bytes that are there.
        len: u64,
        /// Bytes that the superblock counts.
        blocks_len: u64,
    },
    /// There is no superblock.
    NoSuperblock(ReadError),
    /// A record that cannot be read.
    Record(ReadError),
}

impl fmt::Display for GenerationDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { len, blocks_len } => {
                write!(f, "cut off at byte {len}: its superblock counts {blocks_len} bytes (blocks)")
            }
            Self::NoSuperblock(error) => write!(f, "its superblock is lost: {error}"),
            Self::Record(error) => write!(f, "{error}"),
        }
    }
}

/// Returns the generations of the image in `source` that are whole. Where it is damaged, all of it
/// is read.
///
/// # Errors
/// A source that is not an image, or that fails; records of a later version.
pub fn find_generations(source: &Arc<dyn ReadAt>) -> Result<FoundGenerations, ReadError> {
    let listed = generations(source);
    let devices = Devices::primary(source.clone(), Arc::<Counters>::default())?;
    let len = devices.primary_len();
    let error = match listed {
        Ok(list) => match list.last().map_or(0, |last| last.end) {
            blocks_len if blocks_len > len => {
                let damage = Some(GenerationDamage::Cut { len, blocks_len });
                return Ok(FoundGenerations { whole: whole_before(&records_before(&devices, len)?), damage });
            }
            _ => return Ok(FoundGenerations { whole: list, damage: None }),
        },
        Err(error) if error.is_corrupt() => error,
        Err(error) => return Err(error),
    };
    let head = read_head(&devices)?;
    let Ok(superblock) = Superblock::decode(&head) else {
        let records = records_before(&devices, len)?;
        return match records.is_empty() {
            true => Err(error),
            false => {
                let damage = Some(GenerationDamage::NoSuperblock(error));
                Ok(FoundGenerations { whole: whole_before(&records), damage })
            }
        };
    };
    let end = end_of(&superblock).min(len);
    let records = records_before(&devices, end)?;
    let mut whole = whole_before(&records);
    // Only its end tells the number of the last one.
    if let Ok(Some(found)) = read_end(&devices, end)
        && whole.last().is_none_or(|before| before.number < found.number)
    {
        let own = records.first().filter(|own| own.record.number == found.number);
        whole.push(generation(found.number, own, found.position, Shown { head, superblock, end }));
    }
    Ok(FoundGenerations { whole, damage: Some(GenerationDamage::Record(error)) })
}

/// A record, and the superblock in it.
struct Found {
    record: GenerationRecord,
    /// Of the generation before.
    superblock: Superblock,
}

/// State of an image in a generation.
struct Shown {
    head: [u8; HEAD_LEN],
    superblock: Superblock,
    end: u64,
}

/// Returns the generations in front of these records, of which the last one is the first.
fn whole_before(records: &[Found]) -> Vec<Generation> {
    let whole = records.iter().enumerate().rev().map(|(idx, Found { record, superblock })| {
        let number = record.number - 1;
        let own = records.get(idx + 1).filter(|own| own.record.number == number);
        let shown = Shown { head: record.head, superblock: superblock.clone(), end: record.position };
        generation(number, own, record.previous.unwrap_or(0), shown)
    });
    whole.collect()
}

/// Returns a generation that begins at byte `start`; `own` is its record, if that was found.
fn generation(number: u32, own: Option<&Found>, start: u64, Shown { head, superblock, end }: Shown) -> Generation {
    let record = own.map(|own| &own.record);
    Generation {
        number,
        restored: record.and_then(|record| record.restored),
        time: record.map(|record| record.time),
        label: record.map_or_else(String::new, |record| record.label.clone()),
        start,
        end,
        superblock,
        head,
    }
}

/// Returns the records in front of byte `end` that belong together, the last one first.
fn records_before(devices: &Devices, end: u64) -> Result<Vec<Found>, ReadError> {
    let (mut found, mut piece) = (Vec::<Found>::new(), vec![0; PIECE_LEN as usize]);
    let mut piece_end = end.min(devices.primary_len());
    while piece_end > 0 {
        let start = piece_end.saturating_sub(1) / PIECE_LEN * PIECE_LEN;
        let piece = &mut piece[..(piece_end - start) as usize];
        devices.read(0, piece, start)?;
        for (idx, sector) in piece.chunks(SECTOR_LEN).enumerate().rev() {
            if sector.starts_with(&RECORD_MAGIC) {
                found.extend(record_at(devices, start + (idx * SECTOR_LEN) as u64, found.last())?);
            }
        }
        piece_end = start;
    }
    Ok(found)
}

/// Returns the record at byte `at`, if one is there that leads to a generation which ends there,
/// and goes before the record `later`.
fn record_at(devices: &Devices, at: u64, later: Option<&Found>) -> Result<Option<Found>, ReadError> {
    let mut bytes = [0; RECORD_LEN];
    let is_inside = at.checked_add(RECORD_LEN as u64).is_some_and(|end| end <= devices.primary_len());
    if !is_inside || at < SUPERBLOCK_OFF + HEAD_LEN as u64 {
        return Ok(None);
    }
    devices.read(0, &mut bytes, at)?;
    let Ok(record) = GenerationRecord::decode(&bytes, at) else { return Ok(None) };
    let Ok(superblock) = Superblock::decode(&record.head) else { return Ok(None) };
    let goes_before = later.is_none_or(|Found { record: later, superblock: shown }| {
        let (number, next) = (record.number, later.number - 1);
        match later.previous {
            Some(previous) if previous == at => number == next,
            // The records in between are lost.
            Some(previous) => at < previous && number < next && superblock.uuid == shown.uuid,
            None => false,
        }
    });
    Ok((goes_before && end_of(&superblock) == at).then_some(Found { record, superblock }))
}
