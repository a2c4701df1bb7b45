//! Opening of a stored tree: everything that is known before a block is hashed.

use crate::error::{Mismatch, Part, VerityError};
use crate::shape::{Shape, tree_off};
use crate::superblock::{SUPERBLOCK_LEN, Superblock};
use kiln_digest::{BlockHasher, Digest};
use kiln_read::ReadAt;
use std::io;

/// Reads and decodes the superblock at byte `hash_off`.
///
/// # Errors
/// Bytes that cannot be read, or are no superblock.
pub fn read_superblock(tree: &dyn ReadAt, hash_off: u64) -> Result<Superblock, VerityError> {
    let failed = |source| VerityError::Read { part: Part::Tree, off: hash_off, source };
    let len = tree.len().map_err(failed)?;
    let needed = hash_off.saturating_add(SUPERBLOCK_LEN as u64);
    if len < needed {
        return Err(VerityError::TooShort { part: Part::Tree, len, needed });
    }
    let mut bytes = [0; SUPERBLOCK_LEN];
    tree.read_exact_at(&mut bytes, hash_off).map_err(failed)?;
    Ok(Superblock::decode(&bytes, hash_off)?)
}

/// A tree whose superblock and place are checked, and whose blocks are not.
pub(crate) struct Opened<D, T> {
    pub(crate) data: D,
    pub(crate) tree: T,
    pub(crate) superblock: Superblock,
    pub(crate) shape: Shape,
    pub(crate) hasher: BlockHasher,
    pub(crate) root_hash: Digest,
    /// Byte offset of the first hash block.
    pub(crate) tree_off: u64,
    pub(crate) data_block_size: usize,
    pub(crate) hash_block_size: usize,
}

/// Place of the data and of their tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The tree is in a file of its own.
    Beside {
        /// Byte offset of the superblock in the source of the tree.
        hash_off: u64,
    },
    /// Data and tree are in one file, the tree behind the data.
    Behind {
        /// Byte offset of the superblock in the file.
        hash_off: u64,
    },
}

impl Location {
    /// Returns the byte offset of the superblock in the source of the tree.
    pub fn hash_off(self) -> u64 {
        match self {
            Location::Beside { hash_off } | Location::Behind { hash_off } => hash_off,
        }
    }
}

impl<D: ReadAt, T: ReadAt> Opened<D, T> {
    /// Checks the superblock at its place in `tree` against both sources and the root hash.
    pub(crate) fn new(data: D, tree: T, location: Location, root_hash: Digest) -> Result<Self, VerityError> {
        let hash_off = location.hash_off();
        let superblock = read_superblock(&tree, hash_off)?;
        let parameters = &superblock.parameters;
        let shape = Shape::new(parameters)?;
        if root_hash.algorithm() != parameters.algorithm {
            let (name, expected) = (parameters.algorithm.name(), parameters.algorithm.digest_len());
            return Err(VerityError::RootHashLength { name, expected, given: root_hash.as_bytes().len() });
        }
        let data_len = parameters.data_len();
        if matches!(location, Location::Behind { .. }) && hash_off < data_len {
            return Err(VerityError::Overlap { tree_off: hash_off, data_len });
        }
        let tree_off = tree_off(hash_off, parameters.hash_block_size).unwrap_or(u64::MAX);
        let ends =
            [(Part::Data, data.len(), data_len), (Part::Tree, tree.len(), tree_off.saturating_add(shape.tree_len()))];
        for (part, len, needed) in ends {
            let len = len.map_err(|source| VerityError::Read { part, off: 0, source })?;
            // A tree without levels is a superblock; the rest of its block may be missing.
            if len < needed && (part == Part::Data || shape.levels() > 0) {
                return Err(VerityError::TooShort { part, len, needed });
            }
        }
        let hasher = BlockHasher::new(parameters.algorithm, &parameters.salt);
        // Both are 64 KiB at most.
        let sizes = (parameters.data_block_size as usize, parameters.hash_block_size as usize);
        let (data_block_size, hash_block_size) = sizes;
        Ok(Self { data, tree, superblock, shape, hasher, root_hash, tree_off, data_block_size, hash_block_size })
    }

    /// Returns the byte offset of a hash block in the source of the tree.
    pub(crate) fn hash_block_off(&self, level: usize, idx: u64) -> u64 {
        self.tree_off + self.shape.off(level, idx)
    }

    /// Returns the number of the last level, whose only block has the root hash; `None` for a single data block.
    pub(crate) fn top(&self) -> Option<usize> {
        self.shape.levels().checked_sub(1)
    }

    /// Compares a hash block with the digest that it must have.
    pub(crate) fn compare_hash_block(
        &self,
        level: usize,
        idx: u64,
        block: &[u8],
        expected: &[u8],
    ) -> Result<(), Box<Mismatch>> {
        let found = self.hasher.digest(block);
        if found.as_bytes() == expected {
            return Ok(());
        }
        let (off, covers) = (self.hash_block_off(level, idx), self.shape.covers(level, idx));
        Err(mismatch(Some(level as u32), off, covers, expected, found)) // 18 levels at most
    }

    /// Returns true if a hash block is zero behind its digests.
    pub(crate) fn is_spare_zero(&self, level: usize, idx: u64, block: &[u8]) -> bool {
        let len = self.shape.digests(level, idx) as usize * self.hasher.algorithm().digest_len(); // within a block
        block[len..].iter().all(|byte| *byte == 0)
    }

    /// Compares data block `idx` with the digest that it must have.
    pub(crate) fn compare_data_block(&self, idx: u64, block: &[u8], expected: &[u8]) -> Result<(), Box<Mismatch>> {
        let found = self.hasher.digest(block);
        if found.as_bytes() == expected {
            return Ok(());
        }
        let off = idx * self.data_block_size as u64;
        Err(mismatch(None, off, off..off + self.data_block_size as u64, expected, found))
    }

    /// Reads hash blocks of a level as they are.
    pub(crate) fn read_hash_blocks(&self, level: usize, first: u64, buf: &mut [u8]) -> io::Result<()> {
        self.tree.read_exact_at(buf, self.hash_block_off(level, first))
    }
}

fn mismatch(
    level: Option<u32>,
    off: u64,
    covers: std::ops::Range<u64>,
    expected: &[u8],
    found: Digest,
) -> Box<Mismatch> {
    // Both are digests of the same algorithm.
    let expected = Digest::from_bytes(expected).unwrap_or(found);
    Box::new(Mismatch { level, off, covers, expected, found })
}
