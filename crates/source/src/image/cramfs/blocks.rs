//! Blocks of a file.

use std::io;
use std::ops::Range;

use super::volume::{Volume, invalid};
use crate::image::inflate::inflate;

/// Plain length in bytes of a block.
pub(super) const BLOCK_LEN: usize = 4096;
/// Maximum compressed length in bytes of a block, even if it cannot be compressed.
const PACKED_MAX_LEN: u64 = 2 * BLOCK_LEN as u64;
const WORD_LEN: u64 = 4;

/// Returns the range of the block table of a file of `len` bytes; empty if it has no blocks.
pub(super) fn table_range(off: u64, len: u64) -> Range<u64> {
    off..off + WORD_LEN * len.div_ceil(BLOCK_LEN as u64)
}

/// Positions of a file's blocks.
pub(super) struct Table {
    /// Length of the contents in bytes.
    len: u64,
    /// Offset of the first block in bytes.
    start: u64,
    ends: Vec<u32>,
}

impl Table {
    /// Reads the table of a file of `len` bytes at byte `off`.
    ///
    /// # Errors
    /// Blocks outside the image, or longer than a block can be; read errors.
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
                let reason =
                    format!("block {idx} at bytes {start} to {end} of an image of {} bytes: {ADVICE}", volume.len);
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

    /// Returns the range of block `idx` in the image, in bytes.
    pub(super) fn packed(&self, idx: usize) -> Range<u64> {
        let start = if idx == 0 { self.start } else { self.ends[idx - 1].into() };
        start..self.ends[idx].into()
    }

    /// Returns the plain length of block `idx` in bytes.
    pub(super) fn plain_len(&self, idx: usize) -> usize {
        (self.len - (idx * BLOCK_LEN) as u64).min(BLOCK_LEN as u64) as usize
    }
}

const ADVICE: &str = "the image is damaged, or its block size is not 4096 bytes (mkfs.cramfs -b)";

/// Decodes `packed`, which is at byte `off` of the image, to fill `plain`.
///
/// # Errors
/// An invalid block, or one whose plain text is not `plain.len()` bytes long.
pub(super) fn decode(packed: &[u8], off: u64, plain: &mut [u8]) -> io::Result<()> {
    match inflate(packed, plain) {
        _ if packed.is_empty() => plain.fill(0),
        Some(len) if len == plain.len() => {}
        _ => {
            let (packed_len, len) = (packed.len(), plain.len());
            let what = format!("the block of {packed_len} bytes at byte {off} is not a zlib stream of {len} bytes");
            return Err(invalid(format!("{what}: {ADVICE}")));
        }
    }
    Ok(())
}
