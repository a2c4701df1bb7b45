//! The GUID partition table: a header in the second sector, entries after it, and a copy of both at
//! the end of the disk.

use flate2::Crc;
use kiln_read::ReadAt;
use std::io;

use super::{Partition, SECTOR_LENS, invalid, read, u32_at, u64_at};

const SIGNATURE: &[u8; 8] = b"EFI PART";
/// Length in bytes of the fields of a header. A header may be longer.
const HEADER_LEN: usize = 92;
/// Length in bytes of the fields of an entry. Entries may be longer.
const ENTRY_LEN: usize = 128;
const ENTRY_MAX_LEN: u32 = 4096;
/// Maximum total length in bytes of entries, for 8192 of them. Disks usually have 128.
const ENTRIES_MAX_LEN: u64 = 1 << 20;

/// Returns the partitions of `disk`, or `None` if it has no GPT.
///
/// # Errors
/// Read errors; a table that is damaged, if its backup is damaged, too.
pub(super) fn partitions(disk: &dyn ReadAt) -> io::Result<Option<Vec<Partition>>> {
    let mut wrong = None;
    for sector_len in SECTOR_LENS {
        let sectors = disk.len()? / sector_len;
        for (name, lba) in [("GPT", 1), ("backup of the GPT", sectors.saturating_sub(1))] {
            match table(disk, sector_len, lba)? {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Some(found)),
                Err(reason) => drop(wrong.get_or_insert(format!("the {name} at byte {}: {reason}", lba * sector_len))),
            }
        }
    }
    wrong.map_or(Ok(None), |wrong| Err(invalid(wrong)))
}

/// Returns the table with its header in sector `lba`, or `None` if there is none. The inner error
/// is the damage.
fn table(disk: &dyn ReadAt, sector_len: u64, lba: u64) -> io::Result<Result<Option<Vec<Partition>>, String>> {
    let off = lba * sector_len;
    let Some(fields) = read::<HEADER_LEN>(disk, off)? else { return Ok(Ok(None)) };
    if !fields.starts_with(SIGNATURE) {
        return Ok(Ok(None));
    }
    let wrong = |reason: String| Ok(Err(reason));
    let header_len = u32_at(&fields, 12);
    if !(HEADER_LEN as u64..=sector_len).contains(&header_len.into()) {
        return wrong(format!("HeaderSize = {header_len}"));
    }
    let mut header = vec![0; header_len as usize];
    disk.read_exact_at(&mut header, off)?;
    let told = u32_at(&header, 16);
    header[16..20].fill(0);
    let found = crc(&header);
    if told != found {
        return wrong(format!("HeaderCRC32 = {told:08x}, but that of the header is {found:08x}"));
    }
    if u64_at(&header, 24) != lba {
        return wrong(format!("MyLBA = {}, but it is in sector {lba}", u64_at(&header, 24)));
    }
    let (count, entry_len) = (u32_at(&header, 80), u32_at(&header, 84));
    let entries_len = u64::from(count) * u64::from(entry_len);
    let is_long = !(ENTRY_LEN as u32..=ENTRY_MAX_LEN).contains(&entry_len);
    if is_long || entries_len > ENTRIES_MAX_LEN {
        return wrong(format!("NumberOfPartitionEntries = {count}, SizeOfPartitionEntry = {entry_len}"));
    }
    let entries_off = u64_at(&header, 72).checked_mul(sector_len);
    let Some(entries_off) = entries_off
        .filter(|off| off.checked_add(entries_len).is_some_and(|end| disk.len().is_ok_and(|len| end <= len)))
    else {
        return wrong(format!("PartitionEntryLBA = {}: beyond the end of the disk", u64_at(&header, 72)));
    };
    let mut entries = vec![0; entries_len as usize];
    disk.read_exact_at(&mut entries, entries_off)?;
    let (told, found) = (u32_at(&header, 88), crc(&entries));
    if told != found {
        return wrong(format!("PartitionEntryArrayCRC32 = {told:08x}, but that of the entries is {found:08x}"));
    }
    let mut partitions = Vec::new();
    for (entry, number) in entries.chunks_exact(entry_len as usize).zip(1..) {
        let is_used = entry[..16].iter().any(|&byte| byte != 0);
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        if !is_used {
            continue;
        }
        let range = first.checked_mul(sector_len).zip(last.checked_add(1).and_then(|end| end.checked_mul(sector_len)));
        match range {
            Some((start, end)) if first <= last => {
                partitions.push(Partition { number, label: label(entry), range: start..end })
            }
            _ => return wrong(format!("partition {number}: StartingLBA = {first}, EndingLBA = {last}")),
        }
    }
    Ok(Ok(Some(partitions)))
}

/// Returns the name of a partition: UTF-16, up to a zero.
fn label(entry: &[u8]) -> String {
    let units = entry[56..ENTRY_LEN].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    String::from_utf16_lossy(&units)
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
