//! Room in the metadata zone: places for inodes and for the blocks of directories.

use kiln_format::BlockBits;
use kiln_format::addr::SLOT_LEN;

/// Returns the bytes of the last, partly filled block that go beside the inode; `None` if there is no such block or
/// if inode and tail do not fit into one block together. (The format would allow an inode in the block before; one
/// read would become two.)
pub(crate) fn inline_tail_len(len: u64, inode_len: usize, block_bits: BlockBits) -> Option<usize> {
    let tail = block_bits.within(len) as usize;
    (tail > 0 && inode_len + tail <= block_bits.len() as usize).then_some(tail)
}

/// Allocates places in sequence, and places for small regions in gaps that large ones left not far before.
pub(crate) struct MetadataAllocator {
    block_bits: BlockBits,
    end: u64,
    /// Start and length, oldest first.
    gaps: Vec<(u64, u64)>,
}

/// Gaps remembered: enough to fill nearly all, few enough that an inode stays near its neighbours.
const GAPS_MAX: usize = 64;

impl MetadataAllocator {
    /// Creates an empty zone; positions count from its start, which is a block boundary.
    pub(crate) fn new(block_bits: BlockBits) -> Self {
        Self { block_bits, end: 0, gaps: Vec::new() }
    }

    /// Returns the bytes in use.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns a place for `len` bytes that may cross block boundaries, except the first `whole_len`: Linux 5.4
    /// reads no inode that lies in two blocks.
    pub(crate) fn inode(&mut self, len: u64, whole_len: u64) -> u64 {
        let len = len.next_multiple_of(SLOT_LEN);
        if let Some(pos) = self.best_gap(len) {
            return pos;
        }
        if self.block_bits.within(self.end) + whole_len > self.block_bits.len() {
            self.skip_to_block();
        }
        self.append(len)
    }

    /// Returns a place inside one block for an inode of at most a block.
    pub(crate) fn inode_in_block(&mut self, len: u64) -> u64 {
        let len = len.next_multiple_of(SLOT_LEN);
        if let Some(pos) = self.best_gap(len) {
            return pos;
        }
        if self.block_bits.within(self.end) + len > self.block_bits.len() {
            self.skip_to_block();
        }
        self.append(len)
    }

    /// Returns a place at a block boundary for `len` bytes.
    pub(crate) fn blocks(&mut self, len: u64) -> u64 {
        self.skip_to_block();
        self.append(len)
    }

    fn append(&mut self, len: u64) -> u64 {
        let pos = self.end;
        self.end += len;
        pos
    }

    fn skip_to_block(&mut self) {
        let next = self.end.next_multiple_of(self.block_bits.len());
        if next > self.end {
            if self.gaps.len() == GAPS_MAX {
                self.gaps.remove(0);
            }
            self.gaps.push((self.end, next - self.end));
        }
        self.end = next;
    }

    /// Takes `len` bytes from the smallest gap that has them. No gap crosses a block boundary.
    fn best_gap(&mut self, len: u64) -> Option<u64> {
        let fits = self.gaps.iter().enumerate().filter(|(_, (_, room))| *room >= len);
        let (idx, _) = fits.min_by_key(|(_, (_, room))| *room)?;
        let (pos, room) = self.gaps[idx];
        if room == len {
            self.gaps.remove(idx);
        } else {
            self.gaps[idx] = (pos + len, room - len);
        }
        Some(pos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_share_a_block_with_their_inode() {
        let bits = BlockBits::DEFAULT;
        assert_eq!(inline_tail_len(0, 32, bits), None);
        assert_eq!(inline_tail_len(4096, 32, bits), None);
        assert_eq!(inline_tail_len(4097, 32, bits), Some(1));
        assert_eq!(inline_tail_len(4064, 32, bits), Some(4064));
        assert_eq!(inline_tail_len(4065, 32, bits), None);
    }

    #[test]
    fn nothing_overlaps_and_gaps_are_used() {
        let mut zone = MetadataAllocator::new(BlockBits::DEFAULT);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut wanted = 0;
        for step in 0..3000u64 {
            let len = 32 + step * 7919 % 3900;
            let in_block = step % 3 != 0;
            let pos = if in_block { zone.inode_in_block(len) } else { zone.inode(len, 64.min(len)) };
            assert!(pos.is_multiple_of(SLOT_LEN) && pos % 4096 <= 4096 - 64.min(len));
            assert!(!in_block || pos / 4096 == (pos + len - 1) / 4096);
            taken.push((pos, pos + len));
            wanted += len;
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|w| w[0].1 <= w[1].0));
        assert!(zone.end() < wanted * 115 / 100, "{} for {wanted}", zone.end());
    }
}
