//! Making of hash trees.

use crate::control::Control;
use crate::error::{Part, VerityError};
use crate::open::read_superblock;
use crate::shape::{Shape, tree_off};
use crate::superblock::{Parameters, Superblock, uuid_of};
use kiln_digest::{BlockHasher, Digest};
use kiln_output::{Output, write_all_at};
use kiln_parallel::ordered::{self, Costed};
use kiln_parallel::{Threads, unordered};
use kiln_read::ReadAt;
use std::io::{self, Write};
use std::ops::Range;
use uuid::Uuid;

/// Data that one thread reads and hashes at once: they stay in its cache between.
const READ_LEN: u64 = 256 << 10;

/// Hash blocks that one thread hashes at once, in bytes.
const HASH_LEN: usize = 256 << 10;

/// A complete hash tree, in memory: 8 MiB for each GiB of data with blocks of 4096 bytes and SHA-256.
#[derive(Clone, Debug)]
pub struct Tree {
    parameters: Parameters,
    root_hash: Digest,
    /// All levels as stored, the last one first.
    blocks: Vec<u8>,
}

impl Tree {
    /// Makes the tree of data that are read from `data`, on all of the threads.
    ///
    /// # Errors
    /// Parameters that the format does not allow; data that are too short or cannot be read; a stop.
    pub fn of_data(data: &dyn ReadAt, parameters: &Parameters, control: &Control<'_>) -> Result<Self, VerityError> {
        parameters.check(0)?;
        let read = |source| VerityError::Read { part: Part::Data, off: 0, source };
        let (len, needed) = (data.len().map_err(read)?, parameters.data_len());
        if len < needed {
            return Err(VerityError::TooShort { part: Part::Data, len, needed });
        }
        let mut leaves = LeafHasher::of(parameters)?;
        let whole = 0..needed;
        leaves.read(data, std::slice::from_ref(&whole), control)?;
        Self::of_leaves(leaves, parameters, control.threads)
    }

    /// Makes the tree of data of which this tree is still right, but for the bytes in `changed` and those behind the
    /// data of this tree. Only these are read: other data that have rotten since keep their old digests.
    ///
    /// # Errors
    /// As [`Tree::of_data`].
    pub fn updated(
        &self,
        data: &dyn ReadAt,
        changed: &[Range<u64>],
        control: &Control<'_>,
    ) -> Result<Self, VerityError> {
        let read = |source| VerityError::Read { part: Part::Data, off: 0, source };
        let block_size = u64::from(self.parameters.data_block_size);
        let data_blocks = data.len().map_err(read)?.div_ceil(block_size);
        let parameters = Parameters { data_blocks, ..self.parameters.clone() };
        parameters.check(0)?;
        let old_blocks = self.parameters.data_blocks.min(data_blocks);
        let mut leaves = LeafHasher::of(&parameters)?;
        leaves.put_digests(0, &self.leaves()[..old_blocks as usize * parameters.algorithm.digest_len()]);
        let new = old_blocks * block_size..data_blocks * block_size;
        let ranges: Vec<_> = changed.iter().cloned().chain([new]).collect();
        leaves.read(data, &ranges, control)?;
        Self::of_leaves(leaves, &parameters, control.threads)
    }

    /// Reads the tree whose superblock is at byte `hash_off` of `tree`, and checks that its levels fit each other. The
    /// result has no tree if the data are one block: its digest, the root hash, is not stored.
    ///
    /// # Errors
    /// A superblock that cannot be used; bytes that cannot be read; [`VerityError::Inconsistent`].
    pub fn stored(
        tree: &dyn ReadAt,
        hash_off: u64,
        threads: Threads,
    ) -> Result<(Superblock, Option<Self>), VerityError> {
        let superblock = read_superblock(tree, hash_off)?;
        let shape = Shape::new(&superblock.parameters)?;
        let off = tree_off(hash_off, superblock.parameters.hash_block_size).unwrap_or(u64::MAX);
        let read = |source| VerityError::Read { part: Part::Tree, off, source };
        let (len, needed) = (tree.len().map_err(read)?, off.saturating_add(shape.tree_len()));
        if len < needed {
            return Err(VerityError::TooShort { part: Part::Tree, len, needed });
        }
        if shape.levels() == 0 {
            return Ok((superblock, None));
        }
        let mut blocks = vec![0; shape.tree_len() as usize]; // no longer than the source
        tree.read_exact_at(&mut blocks, off).map_err(read)?;
        let mut leaves = LeafHasher::of(&superblock.parameters)?;
        leaves.put_digests(0, stored_leaves(&blocks, &superblock.parameters));
        let made = Self::of_leaves(leaves, &superblock.parameters, threads)?;
        if made.blocks == blocks { Ok((superblock, Some(made))) } else { Err(VerityError::Inconsistent) }
    }

    /// Returns the digests of the blocks of data.
    fn leaves(&self) -> &[u8] {
        match self.blocks.is_empty() {
            true => self.root_hash.as_bytes(),
            false => stored_leaves(&self.blocks, &self.parameters),
        }
    }

    /// Makes the tree of data whose blocks have been hashed.
    ///
    /// # Errors
    /// A block that was not hashed; parameters that the format does not allow.
    ///
    /// # Panics
    /// If the blocks were hashed with another algorithm or block size.
    pub fn of_leaves(leaves: LeafHasher, parameters: &Parameters, threads: Threads) -> Result<Self, VerityError> {
        let shape = Shape::new(parameters)?;
        assert_eq!(leaves.hasher.algorithm(), parameters.algorithm, "the algorithm of the tree");
        assert_eq!(leaves.block_size, parameters.data_block_size as usize, "the block size of the tree");
        if let Some(block) = leaves.first_missing(parameters.data_blocks) {
            return Err(VerityError::MissingBlock { block });
        }
        let digest_len = parameters.algorithm.digest_len();
        let leaf_len = parameters.data_blocks as usize * digest_len; // they are in memory
        let LeafHasher { hasher, digests: mut below, .. } = leaves;
        below.truncate(leaf_len);
        let len = shape.tree_len();
        let memory = || VerityError::Memory { len };
        let tree_len = usize::try_from(len).map_err(|_| memory())?;
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(tree_len).map_err(|_| memory())?;
        blocks.resize(tree_len, 0);
        let hash_block_size = parameters.hash_block_size as usize; // 16 bits
        for level in 0..shape.levels() {
            let start = shape.off(level, 0) as usize; // less than `tree_len`
            blocks[start..start + below.len()].copy_from_slice(&below);
            let stored = &blocks[start..start + shape.blocks(level) as usize * hash_block_size];
            below = vec![0; stored.len() / hash_block_size * digest_len];
            hash_all(&hasher, stored, hash_block_size, &mut below, threads);
        }
        let root_hash = Digest::from_bytes(&below).unwrap_or_else(|| unreachable!("one digest of the algorithm"));
        Ok(Self { parameters: parameters.clone(), root_hash, blocks })
    }

    /// Returns the root hash.
    pub fn root_hash(&self) -> &Digest {
        &self.root_hash
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns the digest of a block of data.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn leaf(&self, block: u64) -> &[u8] {
        let len = self.parameters.algorithm.digest_len();
        &self.leaves()[block as usize * len..][..len] // they are in memory
    }

    /// Returns the hash blocks as stored.
    pub fn blocks(&self) -> &[u8] {
        &self.blocks
    }

    /// Returns the length of superblock and tree, for a superblock at `hash_off`.
    pub fn stored_len(&self, hash_off: u64) -> u64 {
        let tree = tree_off(hash_off, self.parameters.hash_block_size).unwrap_or(u64::MAX);
        (tree - hash_off).saturating_add(self.blocks.len() as u64)
    }

    /// Returns the superblock with the UUID that follows from the root hash, or with `uuid`.
    pub fn superblock(&self, uuid: Option<Uuid>) -> Superblock {
        Superblock { uuid: uuid.unwrap_or_else(|| uuid_of(&self.root_hash)), parameters: self.parameters.clone() }
    }

    /// Writes superblock and tree, which begin at byte `hash_off` of their file, from front to back.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&self, superblock: &Superblock, hash_off: u64, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.head(superblock, hash_off)?)?;
        out.write_all(&self.blocks)
    }

    /// Writes superblock and tree from byte `hash_off` of an output on. The superblock is written last, behind a sync:
    /// a tree with a superblock is complete.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_at(&self, superblock: &Superblock, hash_off: u64, out: &dyn Output) -> io::Result<()> {
        let head = self.head(superblock, hash_off)?;
        write_all_at(out, &self.blocks, hash_off + head.len() as u64)?;
        out.sync()?;
        write_all_at(out, &head, hash_off)?;
        out.sync()
    }

    /// Returns the bytes in front of the tree.
    fn head(&self, superblock: &Superblock, hash_off: u64) -> io::Result<Vec<u8>> {
        let mut head = superblock.encode().map_err(io::Error::other)?.to_vec();
        let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
        let tree = tree_off(hash_off, self.parameters.hash_block_size).ok_or_else(too_large)?;
        head.resize((tree - hash_off) as usize, 0); // a block and 512 bytes at most
        Ok(head)
    }
}

/// Returns the digests of the blocks of data, of which there are several, in a tree as it is stored.
fn stored_leaves<'a>(blocks: &'a [u8], parameters: &Parameters) -> &'a [u8] {
    let len = parameters.data_blocks as usize * parameters.algorithm.digest_len(); // they are in memory
    // Level 0 comes last.
    let start = blocks.len() - len.next_multiple_of(parameters.hash_block_size as usize);
    &blocks[start..start + len]
}

/// Hashes adjacent blocks on several threads.
fn hash_all(hasher: &BlockHasher, blocks: &[u8], block_size: usize, digests: &mut [u8], threads: Threads) {
    let digest_len = hasher.algorithm().digest_len();
    let parts = blocks.chunks(HASH_LEN).zip(digests.chunks_mut(HASH_LEN / block_size * digest_len));
    unordered::run(threads, parts.collect(), || {
        |(blocks, digests): (&[u8], &mut [u8])| hasher.digests_into(blocks, block_size, digests)
    });
}

/// Digests of blocks of data, which come in any order: for a program that writes an image and its tree at once. It
/// takes 32 or 64 bytes a block.
pub struct LeafHasher {
    hasher: BlockHasher,
    block_size: usize,
    /// Digests of all blocks up to the last one that came.
    digests: Vec<u8>,
    /// Bit set of the blocks that came.
    known: Vec<u64>,
}

impl LeafHasher {
    /// Creates a collection of digests of blocks of `block_size` bytes.
    pub fn new(hasher: BlockHasher, block_size: usize) -> Self {
        Self { hasher, block_size, digests: Vec::new(), known: Vec::new() }
    }

    /// Returns the hasher, for threads that hash blocks themselves and put the digests.
    pub fn hasher(&self) -> &BlockHasher {
        &self.hasher
    }

    /// Hashes whole blocks of data, the first of which is number `first`. Blocks may come again: the last ones count.
    ///
    /// # Panics
    /// If `data` ends within a block.
    pub fn put(&mut self, first: u64, data: &[u8]) {
        assert!(data.len().is_multiple_of(self.block_size), "whole blocks");
        let mut digests = vec![0; data.len() / self.block_size * self.hasher.algorithm().digest_len()];
        self.hasher.digests_into(data, self.block_size, &mut digests);
        self.put_digests(first, &digests);
    }

    /// Puts the digests of blocks, the first of which is number `first`.
    pub fn put_digests(&mut self, first: u64, digests: &[u8]) {
        let digest_len = self.hasher.algorithm().digest_len();
        let start = first as usize * digest_len; // larger ones would not be in memory
        if self.digests.len() < start + digests.len() {
            self.digests.resize(start + digests.len(), 0);
        }
        self.digests[start..start + digests.len()].copy_from_slice(digests);
        for block in first..first + (digests.len() / digest_len) as u64 {
            let word = (block / 64) as usize;
            if self.known.len() <= word {
                self.known.resize(word + 1, 0);
            }
            self.known[word] |= 1 << (block % 64);
        }
    }

    /// Puts the digest of zeros for all of the first `blocks` that did not come: for holes.
    pub fn fill_holes(&mut self, blocks: u64) {
        let zeros = self.hasher.digest(&vec![0; self.block_size]);
        for block in 0..blocks {
            let word = self.known.get((block / 64) as usize).copied().unwrap_or_default();
            if word >> (block % 64) & 1 == 0 {
                self.put_digests(block, zeros.as_bytes());
            }
        }
    }

    /// Creates a collection for a tree with room for all of its digests.
    fn of(parameters: &Parameters) -> Result<Self, VerityError> {
        let hasher = BlockHasher::new(parameters.algorithm, &parameters.salt);
        let mut leaves = Self::new(hasher, parameters.data_block_size as usize); // 16 bits
        leaves.reserve(parameters.data_blocks)?;
        Ok(leaves)
    }

    /// Reads and hashes all blocks that `ranges` of bytes touch, on all of the threads.
    fn read(&mut self, data: &dyn ReadAt, ranges: &[Range<u64>], control: &Control<'_>) -> Result<(), VerityError> {
        let block_size = self.block_size;
        let hasher = self.hasher.clone();
        let jobs = ranges.iter().filter(|range| !range.is_empty()).flat_map(|range| {
            let (start, end) = (range.start / block_size as u64, range.end.div_ceil(block_size as u64));
            let (start, end) = (start * block_size as u64, end * block_size as u64);
            (start..end).step_by(READ_LEN as usize).map(move |off| off..end.min(off + READ_LEN))
        });
        let jobs = jobs.map(|job| Costed { job, cost: 1 });
        let make_worker = || {
            let mut buf = Vec::new();
            let hasher = hasher.clone();
            Ok(move |Range { start, end }: Range<u64>| {
                if control.is_stopped() {
                    return Err(VerityError::Interrupted);
                }
                let len = (end - start) as usize; // at most READ_LEN
                buf.resize(len, 0);
                let failed = |source| VerityError::Read { part: Part::Data, off: start, source };
                data.read_exact_at(&mut buf, start).map_err(failed)?;
                let mut digests = vec![0; len / block_size * hasher.algorithm().digest_len()];
                hasher.digests_into(&buf, block_size, &mut digests);
                control.advance(len as u64);
                Ok((start, digests))
            })
        };
        let budget = 4 * control.threads.count() as u64;
        ordered::run(control.threads, budget, jobs, make_worker, |(off, digests): (u64, Vec<u8>)| {
            self.put_digests(off / block_size as u64, &digests);
            Ok(())
        })
    }

    /// Makes room for the digests of `blocks`.
    fn reserve(&mut self, blocks: u64) -> Result<(), VerityError> {
        let len = blocks.saturating_mul(self.hasher.algorithm().digest_len() as u64);
        let reserved = usize::try_from(len).ok().and_then(|len| self.digests.try_reserve_exact(len).ok());
        reserved.ok_or(VerityError::Memory { len })
    }

    /// Returns the first of `blocks` that did not come.
    fn first_missing(&self, blocks: u64) -> Option<u64> {
        let is_full = |word: &&u64| **word == u64::MAX;
        let word = self.known.iter().take_while(is_full).count();
        let bit = self.known.get(word).map_or(0, |word| word.trailing_ones());
        let missing = word as u64 * 64 + u64::from(bit);
        (missing < blocks).then_some(missing)
    }
}
