//! Parser of directory entries.

use std::io;

use super::fields::{Fields, invalid};
use super::inode::{Inode, Map};
use super::map::runs;
use super::volume::Volume;

/// Length in bytes of inode number, record length, name length and type.
const HEAD_LEN: usize = 8;
/// Length in bytes of the parent's inode number, which precedes inline entries.
const PARENT_LEN: u64 = 4;

/// An entry of a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Box<[u8]>,
    pub ino: u32,
}

/// Returns the entries of the directory `inode`, except `.` and `..`. The indexes of large
/// directories look like unused entries.
///
/// # Errors
/// Unreadable blocks; damaged records.
pub(super) fn entries(volume: &Volume, inode: &Inode) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let has_file_types = volume.superblock.has_file_types;
    for run in runs(volume, inode)? {
        if let Map::Inline = inode.map() {
            let skipped = if run.la == 0 { PARENT_LEN.min(run.len) } else { 0 };
            let bytes = volume.read(run.pa + skipped, (run.len - skipped) as usize)?;
            decode(&bytes, has_file_types, &mut entries)?;
            continue;
        }
        let bits = volume.superblock.block_bits;
        for block in 0..run.len.div_ceil(volume.superblock.block_len()) {
            decode(&volume.visit((run.pa >> bits) + block)?, has_file_types, &mut entries)?;
        }
    }
    Ok(entries)
}

/// Parses the entries of one block.
fn decode(block: &[u8], has_file_types: bool, entries: &mut Vec<Entry>) -> io::Result<()> {
    let fields = Fields(block);
    let mut at = 0;
    while at + HEAD_LEN <= block.len() {
        let record_len = match fields.u16(at + 4)? {
            // Encodings of 65536 in 16 bits.
            0 | u16::MAX if block.len() == 1 << 16 => block.len(),
            len => len.into(),
        };
        if record_len < HEAD_LEN || record_len > block.len() - at {
            return Err(invalid(format!(
                "rec_len = {record_len} at byte {at} of a directory block of {} bytes",
                block.len()
            )));
        }
        let ino = fields.u32(at)?;
        if ino != 0 {
            let name_len = if has_file_types { fields.u8(at + 6)?.into() } else { usize::from(fields.u16(at + 6)?) };
            if name_len > record_len - HEAD_LEN {
                return Err(invalid(format!("name_len = {name_len} in a record of {record_len} bytes at {at}")));
            }
            let name = fields.bytes(at + HEAD_LEN, name_len)?;
            if name != b"." && name != b".." {
                entries.push(Entry { name: name.into(), ino });
            }
        }
        at += record_len;
    }
    Ok(())
}
