//! Places of the blocks of a tree.

use crate::superblock::{Parameters, SUPERBLOCK_LEN};
use kiln_read::FormatError;
use std::ops::Range;

/// Levels of a tree. Level 0 has the digests of the data; the last level is one block, which is stored first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    levels: Vec<Level>,
    data_block_size: u64,
    data_blocks: u64,
    hash_block_size: u64,
    digest_len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// Digests in the level.
    digests: u64,
    /// Blocks of the level.
    blocks: u64,
    /// Byte offset of its first block in the tree.
    off: u64,
    /// Blocks of data below one block.
    span: u64,
}

impl Shape {
    /// Returns the shape of a tree.
    ///
    /// # Errors
    /// Parameters that the format does not allow.
    pub fn new(parameters: &Parameters) -> Result<Self, FormatError> {
        parameters.check(0)?;
        let hash_block_size = u64::from(parameters.hash_block_size);
        let digest_len = parameters.algorithm.digest_len() as u64;
        let per_block = hash_block_size / digest_len;
        let mut levels = Vec::new();
        let (mut digests, mut span) = (parameters.data_blocks, 1u64);
        // A block holds 8 digests at least, and there are fewer than 2^54 blocks of data: at most 18 levels.
        while digests > 1 {
            let blocks = digests.div_ceil(per_block);
            span = span.saturating_mul(per_block);
            levels.push(Level { digests, blocks, off: 0, span });
            digests = blocks;
        }
        let mut off = 0;
        for level in levels.iter_mut().rev() {
            level.off = off;
            off += level.blocks * hash_block_size;
        }
        let (data_block_size, data_blocks) = (parameters.data_block_size.into(), parameters.data_blocks);
        Ok(Self { levels, data_block_size, data_blocks, hash_block_size, digest_len })
    }

    /// Returns the number of levels: none for a single block of data, whose digest is the root hash.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Returns the number of blocks in a level.
    pub fn blocks(&self, level: usize) -> u64 {
        self.levels[level].blocks
    }

    /// Returns the byte offset of a hash block, from the first block of the tree on.
    pub fn off(&self, level: usize, idx: u64) -> u64 {
        self.levels[level].off + idx * self.hash_block_size
    }

    /// Returns the length of the tree in bytes, without its superblock.
    pub fn tree_len(&self) -> u64 {
        self.levels.iter().map(|level| level.blocks * self.hash_block_size).sum()
    }

    /// Returns the number of digests in a hash block: all blocks of a level but the last are full.
    pub fn digests(&self, level: usize, idx: u64) -> u64 {
        (self.levels[level].digests - idx * self.per_block()).min(self.per_block())
    }

    /// Returns the bytes of data below a hash block.
    pub fn covers(&self, level: usize, idx: u64) -> Range<u64> {
        let span = self.levels[level].span;
        let block = |idx: u64| idx.saturating_mul(span).min(self.data_blocks) * self.data_block_size;
        block(idx)..block(idx + 1)
    }

    /// Returns the number of digests in a full hash block.
    pub fn per_block(&self) -> u64 {
        self.hash_block_size / self.digest_len
    }

    /// Returns the place of a digest in the hash block that has it.
    pub fn slot(&self, digest: u64) -> Range<usize> {
        // Less than a block, which is 64 KiB at most.
        let start = (digest % self.per_block() * self.digest_len) as usize;
        start..start + self.digest_len as usize
    }
}

/// Returns the byte offset of the first hash block behind a superblock at `hash_off`, which is followed by zeros up to
/// there. `None` if there is no such offset.
pub fn tree_off(hash_off: u64, hash_block_size: u32) -> Option<u64> {
    hash_off.checked_add(SUPERBLOCK_LEN as u64)?.checked_next_multiple_of(hash_block_size.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_digest::Algorithm;

    #[test]
    fn levels_end_in_one_block_which_comes_first() {
        for (data_blocks, expected) in [(1, &[][..]), (2, &[1]), (128, &[1]), (129, &[2, 1]), (16385, &[129, 2, 1])] {
            let shape = Shape::new(&Parameters::new(data_blocks)).unwrap();
            let blocks: Vec<_> = (0..shape.levels()).map(|level| shape.blocks(level)).collect();
            assert_eq!(blocks, expected, "{data_blocks}");
            assert_eq!(shape.tree_len(), expected.iter().sum::<u64>() * 4096);
        }
        let shape = Shape::new(&Parameters::new(16385)).unwrap();
        assert_eq!([shape.off(2, 0), shape.off(1, 1), shape.off(0, 0)], [0, 8192, 3 * 4096]);
        assert_eq!((shape.digests(0, 128), shape.digests(1, 1), shape.digests(2, 0)), (1, 1, 2));
        assert_eq!(shape.covers(0, 128), 16384 * 4096..16385 * 4096);
        assert_eq!(shape.covers(2, 0), 0..16385 * 4096);
    }

    #[test]
    fn the_largest_trees_have_a_shape() {
        for algorithm in Algorithm::ALL {
            for (data_block_size, hash_block_size) in [(512, 512), (512, 65536), (65536, 512), (65536, 65536)] {
                let data_blocks = i64::MAX as u64 / u64::from(data_block_size);
                let salt = Vec::new();
                let shape = Shape::new(&Parameters { algorithm, data_block_size, hash_block_size, data_blocks, salt });
                let shape = shape.unwrap();
                assert!(shape.levels() <= 18);
                assert_eq!(shape.covers(shape.levels() - 1, 0).end, data_blocks * u64::from(data_block_size));
                assert!(shape.tree_len() < i64::MAX as u64);
            }
        }
    }

    #[test]
    fn the_tree_begins_at_a_hash_block() {
        assert_eq!(tree_off(0, 4096), Some(4096));
        assert_eq!(tree_off(300 * 4096 + 512, 4096), Some(301 * 4096));
        assert_eq!(tree_off(512, 512), Some(1024));
        assert_eq!(tree_off(u64::MAX - 511, 4096), None);
    }
}
