//! Partition tables.

use kiln_read::MemorySource;
use kiln_source::disk::partitions as table;

/// Input: a disk. It is read as it is, and with valid GPT checksums, because otherwise the code
/// after them would not be reached.
pub fn partitions(data: &[u8]) {
    look(data.to_vec());
    let mut summed = data.to_vec();
    for sector_len in [512, 4096] {
        let _ = set_checksums(&mut summed, sector_len);
    }
    look(summed);
}

fn look(disk: Vec<u8>) {
    let disk = MemorySource::new(disk);
    let (found, again) = (table(&disk), table(&disk));
    let Ok(Some(found)) = found else { return };
    assert_eq!(again.expect("a table that was read"), Some(found.clone()));
    for pair in found.windows(2) {
        assert!(pair[0].number < pair[1].number || pair[1].number >= 5, "{pair:?}");
    }
    assert!(found.iter().all(|one| one.number > 0 && one.range.start <= one.range.end), "{found:?}");
}

/// Sets the checksums of the header in the second sector of `sector_len` bytes; returns `None` if
/// there is no header.
fn set_checksums(disk: &mut [u8], sector_len: usize) -> Option<()> {
    let header = disk.get(sector_len..2 * sector_len)?.to_vec();
    let field = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte])) as usize;
    let (header_len, first) = (field(12), field(72).checked_mul(sector_len)?);
    let entries = disk.get(first..first.checked_add(field(80).checked_mul(field(84))?)?)?;
    let entries_crc = crc(entries).to_le_bytes();
    let header = &mut disk[sector_len..2 * sector_len];
    header[88..92].copy_from_slice(&entries_crc);
    header[16..20].fill(0);
    let own = crc(header.get(..header_len)?).to_le_bytes();
    header[16..20].copy_from_slice(&own);
    Some(())
}

/// Returns the CRC-32 of IEEE 802.3, computed bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}
