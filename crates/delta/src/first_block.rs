//! The first 4 KiB of an image that is written over something: written last, so that nothing takes what is not whole
//! for an image.
//!
//! Disks write a sector of 512 bytes as a whole, but not a block. So the sector of the superblock goes first and comes
//! last, and is synced alone: no power cut leaves a superblock beside a half of the rest.

use kiln_output::{Output, write_all_at};
use std::io;
use std::ops::Range;

/// Bytes that are written last.
pub const LEN: usize = 4096;
/// The sector that begins with the superblock.
const SUPERBLOCK_SECTOR: Range<usize> = 1024..1536;

/// Bytes of an image of `image_len` bytes that are written last.
pub fn len_in(image_len: u64) -> usize {
    image_len.min(LEN as u64) as usize
}

/// Make the first `len` bytes zeros. When this returns, no superblock is there any more; the other zeros are synced
/// with what is written next.
///
/// # Errors
/// Those of the output.
pub fn blank(output: &dyn Output, len: usize) -> io::Result<()> {
    let sector = sector(len);
    write_all_at(output, &[0; LEN][sector.clone()], sector.start as u64)?;
    output.sync()?;
    write_all_at(output, &[0; LEN][..len.min(LEN)], 0)
}

/// Write the first `bytes` of an image whose other bytes are synced, and sync them.
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
