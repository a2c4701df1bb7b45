//! The blocks of a file.

use std::io;
use std::ops::Range;

use super::volume::{Volume, invalid};
use crate::image::inflate::inflate;

/// Of what a block is made, in bytes.
pub(super) const BLOCK_LEN: usize = 4096;
/// No block has more bytes, however badly it can be compressed.
const PACKED_MAX_LEN: u64 = 2 * BLOCK_LEN as u64;
const WORD_LEN: u64 = 4;

/// Where the table of the blocks of a file of `len` bytes lies; empty: it has no blocks.
pub(super) fn table_range(off: u64, len: u64) -> Range<u64> {
    off..off + WORD_LEN * len.div_ceil(BLOCK_LEN as u64)
}

/// Where the blocks of a file lie.
pub(super) struct Table {
    /// Of the contents, in bytes.
    len: u64,
    /// Byte of the first block.
    start: u64,
    ends: Vec<u32>,
}

impl Table {
    /// Of a file of `len` bytes, whose table lies at byte `off`.
    ///
    /// # Errors
    /// Blocks that are not in the image, or longer than blocks are; errors of the system.
    pub(super) fn read(volume: &Volume, off: u64, len: u64) -> io::Result<Self> {
        let range = table_range(off, len);
        if range.is_empty() {
            return Ok(Self { len, start: off, ends: Vec::new() });
        }
        let bytes = volume.read_vec(off, range.end - off)?;
        let table = Self { len, start: range.end, ends: volume.order.words(&bytes).collect() };
        for idx in 0..table.block_count() {
            let Range { start, end } = table.packed(idx);
            if end < start || end > volume.len || end - start > PACKED_MAX_LEN {
                let reason = format!("block {idx}, of bytes {start} to {end} of an image of {}: {ADVICE}", volume.len);
                return Err(invalid(reason));
            }
        }
        Ok(table)
    }

    pub(super) fn block_count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn has_holes(&self) -> bool {
        (0..self.block_count()).any(|idx| self.is_hole(idx))
    }

    pub(super) fn is_hole(&self, idx: usize) -> bool {
        self.packed(idx).is_empty()
    }

    /// Where block `idx` lies in the image.
    pub(super) fn packed(&self, idx: usize) -> Range<u64> {
        let start = if idx == 0 { self.start } else { self.ends[idx - 1].into() };
        start..self.ends[idx].into()
    }

    /// Bytes of the file in block `idx`.
    pub(super) fn plain_len(&self, idx: usize) -> usize {
        (self.len - (idx * BLOCK_LEN) as u64).min(BLOCK_LEN as u64) as usize
    }
}

const ADVICE: &str =
    "the image is damaged, or its blocks have another length than 4096 bytes, as those of mkfs.cramfs -b";

/// Decode `packed`, which lies at byte `off`, to all of `plain`.
///
/// # Errors
/// It is no block, or one of other than `plain.len()` bytes.
pub(super) fn decode(packed: &[u8], off: u64, plain: &mut [u8]) -> io::Result<()> {
    match inflate(packed, plain) {
        _ if packed.is_empty() => plain.fill(0),
        Some(len) if len == plain.len() => {}
        _ => {
            let (packed_len, len) = (packed.len(), plain.len());
            let what = format!("a block of {packed_len} bytes at byte {off} is not what zlib makes of {len} bytes");
            return Err(invalid(format!("{what}: {ADVICE}")));
        }
    }
    Ok(())
}
