//! The first 4 KiB of an image that overwrites something else. They are written last, so that no
//! program takes an incomplete image for a valid one.
//!
//! Disks write a sector of 512 bytes atomically, but not a block. So the sector of the superblock
//! is cleared first, written last, and synced alone: after a power cut, no superblock is next to an
//! incomplete rest.

use kiln_output::{Output, write_all_at};
use std::io;
use std::ops::Range;

/// Number of bytes that are written last.
pub const LEN: usize = 4096;
/// Byte range of the sector that begins with the superblock.
const SUPERBLOCK_SECTOR: Range<usize> = 1024..1536;

/// Returns how many bytes of an image of `image_len` bytes are written last.
pub fn len_in(image_len: u64) -> usize {
    image_len.min(LEN as u64) as usize
}

/// Overwrites the first `len` bytes with zeros. On return, the superblock is gone from the disk;
/// the other zeros are synced with the next write.
///
/// # Errors
/// Those of the output.
pub fn blank(output: &dyn Output, len: usize) -> io::Result<()> {
    let sector = sector(len);
    write_all_at(output, &[0; LEN][sector.clone()], sector.start as u64)?;
    output.sync()?;
    write_all_at(output, &[0; LEN][..len.min(LEN)], 0)
}

/// Writes and syncs the first `bytes` of an image whose other bytes are synced already.
///
/// # Errors
/// Those of the output.
pub fn write(output: &dyn Output, bytes: &[u8]) -> io::Result<()> {
    let sector = sector(bytes.len());
    write_all_at(output, &bytes[..sector.start], 0)?;
    write_all_at(output, &bytes[sector.end..], sector.end as u64)?;
    output.sync()?;
    write_all_at(output, &bytes[sector.clone()], sector.start as u64)?;
    output.sync()
}

fn sector(len: usize) -> Range<usize> {
    SUPERBLOCK_SECTOR.start.min(len)..SUPERBLOCK_SECTOR.end.min(len)
}
