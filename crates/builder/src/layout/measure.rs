//! How long a directory is: entries go to a block while they fit.

use kiln_format::BlockBits;
use kiln_format::dirent;

/// Fills directory blocks: entries go to a block while they fit.
pub(crate) struct BlockFiller {
    block_len: u64,
    /// Bytes of the current block in use.
    pub used: u64,
}

impl BlockFiller {
    /// Before the first entry.
    pub(crate) fn new(block_bits: BlockBits) -> Self {
        Self { block_len: block_bits.len(), used: 0 }
    }

    /// Take the next entry. Whether it starts a block and another one lies before it.
    pub(crate) fn starts_block(&mut self, name_len: usize) -> bool {
        let len = dirent::entry_len(name_len) as u64;
        let starts = self.used + len > self.block_len;
        self.used = if starts { len } else { self.used + len };
        starts
    }
}

/// Bytes of a directory of these names, dot entries included, in the order of their bytes.
pub(crate) fn directory_len(names: &[&[u8]], block_bits: BlockBits) -> u64 {
    let mut filler = BlockFiller::new(block_bits);
    let full_blocks = names.iter().filter(|name| filler.starts_block(name.len())).count() as u64;
    full_blocks * block_bits.len() + filler.used
}
