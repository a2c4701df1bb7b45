//! fs-verity digests of files and images: blocks of 4096 bytes, no salt.
//!
//! The digest is the hash of a descriptor with the file's size and the root of a tree of hashes. A
//! [`Hasher`] keeps one block of hashes for each level of the tree, so that it needs 36 KiB at most
//! for files of any size. This module knows nothing of composefs.

use kiln_format::Hex;
use sha2::digest::Output;
use sha2::{Sha256, Sha512};
use std::fmt;
use std::io::{self, Write};

/// Length of a block in bytes.
pub const BLOCK_LEN: usize = 4096;
/// log2 of [`BLOCK_LEN`], as descriptors and names of algorithms have it.
pub const BLOCK_BITS: u8 = 12;

/// Hash function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Returns the number that the kernel and composefs use.
    pub const fn number(self) -> u8 {
        match self {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        }
    }

    /// Returns the length of a digest in bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// Returns the algorithm whose digests have this length in bytes.
    pub const fn of_len(len: usize) -> Option<Self> {
        match len {
            32 => Some(Algorithm::Sha256),
            64 => Some(Algorithm::Sha512),
            _ => None,
        }
    }

    /// Returns composefs's name of the algorithm with this block size.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "fsverity-sha256-12",
            Algorithm::Sha512 => "fsverity-sha512-12",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Digest of a file. Displayed as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// The digest, and zeros up to the longest one.
    bytes: [u8; 64],
}

impl Digest {
    /// Returns the digest with these bytes; `None` if no algorithm makes digests of their length.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let algorithm = Algorithm::of_len(bytes.len())?;
        let mut padded = [0; 64];
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(Self { algorithm, bytes: padded })
    }

    /// Returns the digest with these hexadecimal digits, in upper or lower case; `None` if they are none.
    pub fn from_hex(digits: &[u8]) -> Option<Self> {
        let (pairs, []) = digits.as_chunks::<2>() else { return None };
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
        Self::new(&bytes?)
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the bytes, as many as the algorithm makes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_len()]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(self.as_bytes()).fmt(f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm)
    }
}

/// Digest of a file under construction: takes the contents in pieces of any size.
///
/// ```
/// use kiln_composefs::verity::{Algorithm, Hasher};
/// let mut hasher = Hasher::new(Algorithm::Sha256);
/// hasher.update(b"contents of a file");
/// assert_eq!(hasher.finish().to_string().len(), 64);
/// ```
#[derive(Clone)]
pub struct Hasher(Levels);

#[derive(Clone)]
enum Levels {
    Sha256(Tree<Sha256>),
    Sha512(Tree<Sha512>),
}

impl Hasher {
    /// Creates the hasher of an empty file.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => Levels::Sha256(Tree::new()),
            Algorithm::Sha512 => Levels::Sha512(Tree::new()),
        })
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Levels::Sha256(tree) => tree.update(bytes),
            Levels::Sha512(tree) => tree.update(bytes),
        }
    }

    /// Returns the digest of all bytes that were added.
    pub fn finish(self) -> Digest {
        match self.0 {
            Levels::Sha256(tree) => tree.finish(Algorithm::Sha256),
            Levels::Sha512(tree) => tree.finish(Algorithm::Sha512),
        }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

/// Adds what is written.
impl Write for Hasher {
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
    let mut hasher = Hasher::new(algorithm);
    hasher.update(contents);
    hasher.finish()
}

/// Tree of hashes, of which only the last block of each level is in memory.
#[derive(Clone)]
struct Tree<H> {
    /// Size of the file in bytes.
    len: u64,
    /// Bytes of the file behind its last whole block.
    rest: Vec<u8>,
    /// Hashes of each level that are in no whole block yet, lowest level first.
    levels: Vec<Vec<u8>>,
    hash: std::marker::PhantomData<H>,
}

impl<H: sha2::Digest> Tree<H> {
    fn new() -> Self {
        Self { len: 0, rest: Vec::new(), levels: Vec::new(), hash: std::marker::PhantomData }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        if !self.rest.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_LEN - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() < BLOCK_LEN {
                return;
            }
            let hash = H::digest(&self.rest);
            self.rest.clear();
            self.add(0, &hash);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
        for block in blocks {
            self.add(0, &H::digest(block));
        }
        self.rest.extend_from_slice(rest);
    }

    /// Adds a hash to a level. A block is hashed when the hash behind it comes: the last block of all
    /// is the root.
    fn add(&mut self, level: usize, hash: &Output<H>) {
        if level == self.levels.len() {
            self.levels.push(Vec::with_capacity(BLOCK_LEN));
        }
        if self.levels[level].len() == BLOCK_LEN {
            let of_block = H::digest(&self.levels[level]);
            self.levels[level].clear();
            self.add(level + 1, &of_block);
        }
        self.levels[level].extend_from_slice(hash);
    }

    fn finish(mut self, algorithm: Algorithm) -> Digest {
        if !self.rest.is_empty() {
            self.rest.resize(BLOCK_LEN, 0);
            let hash = H::digest(&self.rest);
            self.add(0, &hash);
        }
        let mut level = 0;
        // The levels may grow while their last blocks move up.
        while level < self.levels.len() {
            let is_top = level + 1 == self.levels.len();
            if is_top && self.levels[level].len() == algorithm.digest_len() {
                break;
            }
            self.levels[level].resize(BLOCK_LEN, 0);
            let hash = H::digest(&self.levels[level]);
            self.add(level + 1, &hash);
            level += 1;
        }
        let root = self.levels.last().map_or(&[][..], |root| root);
        let mut descriptor = [0; 256];
        descriptor[0] = 1;
        descriptor[1] = algorithm.number();
        descriptor[2] = BLOCK_BITS;
        descriptor[8..16].copy_from_slice(&self.len.to_le_bytes());
        descriptor[16..16 + root.len()].copy_from_slice(root);
        Digest::new(&H::digest(descriptor)).expect("the length of the algorithm's digests")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest as _;

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
        let head = [1, algorithm.number(), 12, 0, 0, 0, 0, 0];
        hash(&[&head[..], &(contents.len() as u64).to_le_bytes(), &root, &[0; 176]].concat())
    }

    #[test]
    fn digests_are_those_of_the_definition() {
        let contents: Vec<u8> = (0..BLOCK_LEN as u32 * 130 + 5).map(|at| ((at * 31) >> 7) as u8).collect();
        for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
            let per_block = BLOCK_LEN / algorithm.digest_len();
            let edges = [1, 2, per_block, per_block + 1].map(|blocks| blocks * BLOCK_LEN);
            let lens = edges.into_iter().flat_map(|len| [len - 1, len, len + 1]).chain([0, 1]);
            for len in lens {
                let expected = plain(algorithm, &contents[..len]);
                assert_eq!(digest(algorithm, &contents[..len]).as_bytes(), expected, "{algorithm} {len}");
                let mut hasher = Hasher::new(algorithm);
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
        assert_eq!([Algorithm::Sha256, Algorithm::Sha512].map(start), ["3d248ca5", "ccf9e5ae"]);
    }
}
