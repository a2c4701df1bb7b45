//! Tables: records of equal length in metadata blocks, whose places are listed.

use super::blocks::Blocks;
use super::metadata::{BLOCK_LEN, Metadata, Ref};
use super::problem::{Problem, corrupt};

/// A table of records of `N` bytes, a divisor of 8 KiB.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    /// Its name in messages.
    what: &'static str,
    count: u32,
    /// Where its metadata blocks lie in the image.
    places: Box<[u64]>,
    list_off: u64,
}

impl<const N: usize> Table<N> {
    /// The table of `count` records whose list of blocks begins at byte `list_off` of the image.
    ///
    /// # Errors
    /// A list that is not in the image.
    pub(super) fn new(blocks: &Blocks, what: &'static str, list_off: u64, count: u32) -> Result<Self, Problem> {
        let len = (u64::from(count) * N as u64).div_ceil(BLOCK_LEN as u64) * 8;
        if list_off.checked_add(len).is_none_or(|end| end > blocks.len()) {
            return Err(corrupt(list_off, format!("{what}: {count} records, with bytes_used = {}", blocks.len())));
        }
        let mut list = vec![0; len as usize];
        blocks.read(&mut list, list_off, what)?;
        let (places, _) = list.as_chunks();
        Ok(Self { what, count, places: places.iter().map(|place| u64::from_le_bytes(*place)).collect(), list_off })
    }

    /// The record `idx`.
    ///
    /// # Errors
    /// A record that is not in the table; a block that is not there or damaged.
    pub(super) fn record(&self, metadata: &Metadata, idx: u32) -> Result<[u8; N], Problem> {
        if idx >= self.count {
            return Err(corrupt(self.list_off, format!("{}: record {idx} of {}", self.what, self.count)));
        }
        let (at, block_len) = (u64::from(idx) * N as u64, BLOCK_LEN as u64);
        metadata.cursor(self.places[(at / block_len) as usize], Ref(at % block_len))?.array()
    }
}
