//! The partition table of a master boot record: four entries, of which one can be an extended
//! partition with a chain of others.

use kiln_read::ReadAt;
use std::io;
use std::ops::Range;

use super::{Partition, SECTOR_LENS, invalid, read, u32_at};

const SECTOR_LEN: u64 = SECTOR_LENS[0];
/// Offset of the first entry, and length of each, in bytes.
const ENTRIES_OFF: usize = 446;
const ENTRY_LEN: usize = 16;
const SIGNATURE: [u8; 2] = [0x55, 0xAA];
/// Types of extended partitions, which contain others.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
/// Type of the entry that replaces the partitions on a disk with a GPT.
const PROTECTIVE: u8 = 0xEE;
/// Number of the first partition within an extended one.
const FIRST_LOGICAL: u32 = 5;
/// Maximum number of tables in a chain. Linux supports 256 partitions on a disk.
const LINKS_MAX: usize = 256;

/// An entry in use.
struct Entry {
    kind: u8,
    /// First sector, relative to a base that depends on the table.
    start: u32,
    sectors: u32,
}

impl Entry {
    /// Returns the range on the disk in bytes, relative to the sector `base`.
    fn range(&self, base: u64) -> Range<u64> {
        // No overflow: sectors have 32 bits, and a base is the sum of two of them.
        let start = base + u64::from(self.start);
        start * SECTOR_LEN..(start + u64::from(self.sectors)) * SECTOR_LEN
    }
}

/// Returns true if the table has partitions, and is not the protective table of a GPT.
///
/// # Errors
/// Read errors.
pub(super) fn has_own_partitions(disk: &dyn ReadAt) -> io::Result<bool> {
    let Some(entries) = entries(disk, 0)? else { return Ok(false) };
    let mut used = entries.iter().flatten().peekable();
    Ok(used.peek().is_some() && used.all(|entry| entry.kind != PROTECTIVE))
}

/// Returns the partitions of `disk`, or `None` if it has no such table.
///
/// # Errors
/// Read errors; a damaged chain of partitions; a protective table without a GPT.
pub(super) fn partitions(disk: &dyn ReadAt) -> io::Result<Option<Vec<Partition>>> {
    // The boot sectors of filesystems end with the same two bytes.
    let Some(entries) = entries(disk, 0)? else { return Ok(None) };
    if entries.iter().all(Option::is_none) {
        return Ok(None);
    }
    if entries.iter().flatten().any(|entry| entry.kind == PROTECTIVE) {
        return Err(invalid("its MBR is that of a disk with a GPT, but there is neither a GPT nor its backup".into()));
    }
    let mut partitions = Vec::new();
    for (entry, number) in entries.iter().zip(1..) {
        let Some(entry) = entry.as_ref().filter(|entry| !EXTENDED.contains(&entry.kind)) else { continue };
        partitions.push(Partition { number, label: String::new(), range: entry.range(0) });
    }
    for entry in entries.iter().flatten().filter(|entry| EXTENDED.contains(&entry.kind)) {
        logical(disk, entry.start.into(), &mut partitions)?;
    }
    Ok(Some(partitions))
}

/// Adds the partitions in the extended one that begins at sector `first`.
fn logical(disk: &dyn ReadAt, first: u64, partitions: &mut Vec<Partition>) -> io::Result<()> {
    let mut at = first;
    for _ in 0..LINKS_MAX {
        let off = at * SECTOR_LEN;
        let Some(entries) = entries(disk, off)? else {
            return Err(invalid(format!("there is no table of an extended partition at byte {off}")));
        };
        for entry in entries.iter().flatten().filter(|entry| !EXTENDED.contains(&entry.kind)) {
            let before = partitions.iter().filter(|partition| partition.number >= FIRST_LOGICAL).count() as u32;
            partitions.push(Partition { number: FIRST_LOGICAL + before, label: String::new(), range: entry.range(at) });
        }
        match entries.iter().flatten().find(|entry| EXTENDED.contains(&entry.kind)) {
            Some(next) => at = first + u64::from(next.start),
            None => return Ok(()),
        }
    }
    Err(invalid(format!("an extended partition is a chain of more than {LINKS_MAX} tables")))
}

/// Returns the entries of the table in the sector at byte `off`, with `None` for unused ones.
/// Returns `None` if there is no table.
fn entries(disk: &dyn ReadAt, off: u64) -> io::Result<Option<[Option<Entry>; 4]>> {
    let Some(sector) = read::<{ SECTOR_LEN as usize }>(disk, off)? else { return Ok(None) };
    let entry = |at: usize| &sector[ENTRIES_OFF + at * ENTRY_LEN..][..ENTRY_LEN];
    // The status of a partition is either active (0x80) or inactive (0).
    if !sector.ends_with(&SIGNATURE) || (0..4).any(|at| entry(at)[0] & 0x7F != 0) {
        return Ok(None);
    }
    Ok(Some(std::array::from_fn(|at| {
        let (kind, start, sectors) = (entry(at)[4], u32_at(entry(at), 8), u32_at(entry(at), 12));
        (kind != 0 && sectors != 0).then_some(Entry { kind, start, sectors })
    })))
}
