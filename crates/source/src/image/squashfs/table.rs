//! Tables: records of equal length in metadata blocks, with a list of the blocks' offsets.

use super::blocks::Blocks;
use super::metadata::{BLOCK_LEN, Metadata, Ref};
use super::problem::{Problem, corrupt};

/// A table of records of `N` bytes, a divisor of 8 KiB.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    /// Name of the table in messages.
    what: &'static str,
    count: u32,
    /// Offsets of its metadata blocks in the image, in bytes.
    places: Box<[u64]>,
    list_off: u64,
}

impl<const N: usize> Table<N> {
    /// Opens the table of `count` records whose list of blocks is at byte `list_off` of the image.
    ///
    /// # Errors
    /// A list that is not in the image.
    pub(super) fn new(blocks: &Blocks, what: &'static str, list_off: u64, count: u32) -> Result<Self, Problem> {
        let len = (u64::from(count) * N as u64).div_ceil(BLOCK_LEN as u64) * 8;
        if list_off.checked_add(len).is_none_or(|end| end > blocks.len()) {
            return Err(corrupt(list_off, format!("{what}: {count} records are beyond bytes_used = {}", blocks.len())));
        }
        let mut list = vec![0; len as usize];
        blocks.read(&mut list, list_off, what)?;
        let (places, _) = list.as_chunks();
        Ok(Self { what, count, places: places.iter().map(|place| u64::from_le_bytes(*place)).collect(), list_off })
    }

    /// Reads record `idx`.
    ///
    /// # Errors
    /// An index out of range; a damaged or missing block.
    pub(super) fn record(&self, metadata: &Metadata, idx: u32) -> Result<[u8; N], Problem> {
        if idx >= self.count {
            return Err(corrupt(self.list_off, format!("{}: record {idx} of {}", self.what, self.count)));
        }
        let (at, block_len) = (u64::from(idx) * N as u64, BLOCK_LEN as u64);
        metadata.cursor(self.places[(at / block_len) as usize], Ref(at % block_len))?.array()
    }
}
