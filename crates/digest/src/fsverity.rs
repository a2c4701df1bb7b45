//! fs-verity digests: what the kernel measures of a file, here without its help. Blocks of 4096 bytes, no salt.
//!
//! The digest is the hash of a descriptor with the file's size and the root of a tree of hashes.

use crate::hash::{Algorithm, BlockHasher, Digest};
use std::io::{self, Write};

/// Length of a block in bytes.
pub const BLOCK_LEN: usize = 4096;
/// log2 of [`BLOCK_LEN`].
const BLOCK_BITS: u8 = 12;
const DESCRIPTOR_LEN: usize = 256;
/// Length of the longest digest in bytes.
const DIGEST_MAX_LEN: usize = 64;

/// Computes the fs-verity digest of a file that is given from front to back, in pieces of any length. It keeps one
/// block of hashes for each level of the tree: 36 KiB at most.
///
/// ```
/// use kiln_digest::{Algorithm, fsverity::FsVerity};
///
/// let mut file = FsVerity::new(Algorithm::Sha256);
/// file.update(b"some ");
/// file.update(b"bytes");
/// assert_eq!(file.len(), 10);
/// println!("sha256:{}", file.finish());
/// ```
#[derive(Clone)]
pub struct FsVerity {
    hasher: BlockHasher,
    /// Bytes of the file behind its last whole block.
    rest: Vec<u8>,
    /// Hashes of each level that are in no whole block yet, lowest level first.
    levels: Vec<Vec<u8>>,
    len: u64,
}

impl FsVerity {
    /// Starts with an empty file.
    pub fn new(algorithm: Algorithm) -> Self {
        Self { hasher: BlockHasher::new(algorithm, &[]), rest: Vec::new(), levels: Vec::new(), len: 0 }
    }

    /// Returns the number of bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Adds bytes to the end of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        if !self.rest.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_LEN - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() < BLOCK_LEN {
                return;
            }
            let mut block = std::mem::take(&mut self.rest);
            self.add_block(0, &block);
            block.clear();
            self.rest = block;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
        blocks.iter().for_each(|block| self.add_block(0, block));
        self.rest.extend_from_slice(rest);
    }

    /// Adds the hash of a block to a level. A block of hashes is hashed when the hash behind it comes: the last block
    /// of all is the root.
    fn add_block(&mut self, level: usize, block: &[u8]) {
        let digest_len = self.hasher.algorithm().digest_len();
        let mut hash = [0; DIGEST_MAX_LEN];
        self.hasher.digest_into(block, &mut hash[..digest_len]);
        if level == self.levels.len() {
            self.levels.push(Vec::with_capacity(BLOCK_LEN));
        }
        if self.levels[level].len() == BLOCK_LEN {
            let mut full = std::mem::take(&mut self.levels[level]);
            self.add_block(level + 1, &full);
            full.clear();
            self.levels[level] = full;
        }
        self.levels[level].extend_from_slice(&hash[..digest_len]);
    }

    /// Returns the digest of the file.
    pub fn finish(mut self) -> Digest {
        let algorithm = self.hasher.algorithm();
        if !self.rest.is_empty() {
            let mut block = std::mem::take(&mut self.rest);
            block.resize(BLOCK_LEN, 0);
            self.add_block(0, &block);
        }
        let mut level = 0;
        // The levels may grow while their last blocks move up.
        while level < self.levels.len() {
            let is_top = level + 1 == self.levels.len();
            if is_top && self.levels[level].len() == algorithm.digest_len() {
                break;
            }
            let mut block = std::mem::take(&mut self.levels[level]);
            block.resize(BLOCK_LEN, 0);
            self.add_block(level + 1, &block);
            level += 1;
        }
        let root = self.levels.last().map_or(&[][..], |root| root);
        let mut descriptor = [0; DESCRIPTOR_LEN];
        descriptor[0] = 1; // version
        descriptor[1] = algorithm.fsverity_number();
        descriptor[2] = BLOCK_BITS;
        descriptor[8..16].copy_from_slice(&self.len.to_le_bytes());
        descriptor[16..16 + root.len()].copy_from_slice(root);
        self.hasher.digest(&descriptor)
    }
}

/// Adds what is written.
impl Write for FsVerity {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.update(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the digest of a file with these contents.
pub fn digest(algorithm: Algorithm, contents: &[u8]) -> Digest {
    let mut file = FsVerity::new(algorithm);
    file.update(contents);
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256, Sha512};

    /// The definition, with all blocks in memory.
    fn plain(algorithm: Algorithm, contents: &[u8]) -> Vec<u8> {
        let hash = |bytes: &[u8]| match algorithm {
            Algorithm::Sha256 => Sha256::digest(bytes).to_vec(),
            Algorithm::Sha512 => Sha512::digest(bytes).to_vec(),
        };
        let level = |bytes: &[u8]| -> Vec<u8> {
            let padded = |block: &[u8]| [block, &vec![0; BLOCK_LEN - block.len()]].concat();
            bytes.chunks(BLOCK_LEN).flat_map(|block| hash(&padded(block))).collect()
        };
        let mut root = level(contents);
        while root.len() > algorithm.digest_len() {
            root = level(&root);
        }
        root.resize(64, 0);
        let head = [1, algorithm.fsverity_number(), 12, 0, 0, 0, 0, 0];
        hash(&[&head[..], &(contents.len() as u64).to_le_bytes(), &root, &[0; 176]].concat())
    }

    #[test]
    fn digests_are_those_of_the_definition() {
        let contents: Vec<u8> = (0..BLOCK_LEN as u32 * 130 + 5).map(|at| ((at * 31) >> 7) as u8).collect();
        for algorithm in Algorithm::ALL {
            let per_block = BLOCK_LEN / algorithm.digest_len();
            let edges = [1, 2, per_block, per_block + 1].map(|blocks| blocks * BLOCK_LEN);
            let lens = edges.into_iter().flat_map(|len| [len - 1, len, len + 1]).chain([0, 1]);
            for len in lens {
                let expected = plain(algorithm, &contents[..len]);
                assert_eq!(digest(algorithm, &contents[..len]).as_bytes(), expected, "{algorithm} {len}");
                let mut hasher = FsVerity::new(algorithm);
                contents[..len].chunks(1000).for_each(|piece| hasher.update(piece));
                assert_eq!(hasher.finish().as_bytes(), expected, "{algorithm} {len}, in pieces");
            }
        }
    }

    #[test]
    fn three_levels_are_hashed() {
        let contents = vec![7; BLOCK_LEN * (64 * 64 + 1)];
        assert_eq!(digest(Algorithm::Sha512, &contents).as_bytes(), plain(Algorithm::Sha512, &contents));
    }

    /// From the `fsverity` program.
    #[test]
    fn empty_files_have_the_digests_of_the_kernel() {
        let start = |algorithm| digest(algorithm, b"").to_string()[..8].to_owned();
        assert_eq!(Algorithm::ALL.map(start), ["3d248ca5", "ccf9e5ae"]);
    }
}
