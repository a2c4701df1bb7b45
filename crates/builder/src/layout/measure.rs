//! The length of a directory: a block takes entries as long as they fit.

use kiln_format::BlockBits;
use kiln_format::dirent;

/// Fills directory blocks: a block takes entries as long as they fit.
pub(crate) struct BlockFiller {
    block_len: u64,
    /// Bytes in use in the current block.
    pub used: u64,
}

impl BlockFiller {
    /// Starts before the first entry.
    pub(crate) fn new(block_bits: BlockBits) -> Self {
        Self { block_len: block_bits.len(), used: 0 }
    }

    /// Takes the next entry. Returns whether it starts a block that is not the first.
    pub(crate) fn starts_block(&mut self, name_len: usize) -> bool {
        let len = dirent::entry_len(name_len) as u64;
        let starts = self.used + len > self.block_len;
        self.used = if starts { len } else { self.used + len };
        starts
    }
}

/// Returns the bytes of a directory with these names, dot entries included, in bytewise order.
pub(crate) fn directory_len(names: &[&[u8]], block_bits: BlockBits) -> u64 {
    let mut filler = BlockFiller::new(block_bits);
    let full_blocks = names.iter().filter(|name| filler.starts_block(name.len())).count() as u64;
    full_blocks * block_bits.len() + filler.used
}
