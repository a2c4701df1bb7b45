//! fs-verity digests: what the kernel computes for a file, here without its help.

use crate::digest::{Algorithm, BlockHasher, Digest};

const BLOCK_LEN: usize = 4096;
const DESCRIPTOR_LEN: usize = 256;

/// Computes the fs-verity digest of a file that is given from front to back: blocks of 4096 bytes, no salt. It keeps
/// one block a level.
///
/// ```
/// use kiln_verity::{Algorithm, fsverity::FsVerity};
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
    /// Bytes of the file's last block.
    block: Vec<u8>,
    /// Digests of each level that are not hashed yet.
    levels: Vec<Vec<u8>>,
    len: u64,
}

impl FsVerity {
    /// Starts with an empty file.
    pub fn new(algorithm: Algorithm) -> Self {
        Self { hasher: BlockHasher::new(algorithm, &[]), block: Vec::new(), levels: Vec::new(), len: 0 }
    }

    /// Returns the number of bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Adds bytes to the end of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            // A full block waits until more follows: the last one may be the only one.
            if self.block.len() == BLOCK_LEN {
                let digest = self.hasher.digest(&self.block);
                self.block.clear();
                self.push(0, digest);
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_LEN - self.block.len()));
            if now.len() == BLOCK_LEN && !later.is_empty() {
                let digest = self.hasher.digest(now);
                self.push(0, digest);
            } else {
                self.block.extend_from_slice(now);
            }
            bytes = later;
        }
    }

    /// Adds a digest to a level. A full block of a level becomes a digest of the next one when another digest comes.
    fn push(&mut self, level: usize, digest: Digest) {
        if level == self.levels.len() {
            self.levels.push(Vec::with_capacity(BLOCK_LEN));
        }
        if self.levels[level].len() == BLOCK_LEN {
            let above = self.hasher.digest(&self.levels[level]);
            self.levels[level].clear();
            self.push(level + 1, above);
        }
        self.levels[level].extend_from_slice(digest.as_bytes());
    }

    /// Returns the digest of the file.
    pub fn finish(mut self) -> Digest {
        let algorithm = self.hasher.algorithm();
        let mut root = [0; 64];
        if self.len > 0 {
            let mut top = self.padded_digest(&self.block);
            for level in 0.. {
                if level == self.levels.len() {
                    break;
                }
                self.push(level, top);
                top = self.padded_digest(&self.levels[level]);
            }
            root[..top.as_bytes().len()].copy_from_slice(top.as_bytes());
        }
        let mut descriptor = [0; DESCRIPTOR_LEN];
        descriptor[0] = 1; // version
        descriptor[1] = match algorithm {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        };
        descriptor[2] = 12; // log2 of the block size
        descriptor[8..16].copy_from_slice(&self.len.to_le_bytes());
        descriptor[16..80].copy_from_slice(&root);
        self.hasher.digest(&descriptor)
    }

    fn padded_digest(&self, bytes: &[u8]) -> Digest {
        let mut block = [0; BLOCK_LEN];
        block[..bytes.len()].copy_from_slice(bytes);
        self.hasher.digest(&block)
    }
}
