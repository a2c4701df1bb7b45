//! Reading of data that are verified on the way, block by block.

mod lru;

use crate::error::{Part, VerityError};
use crate::open::{Location, Opened};
use crate::superblock::Superblock;
use kiln_digest::Digest;
use kiln_parallel::locks::lock;
use kiln_read::{RangeMut, ReadAt};
use lru::Lru;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Data that are hashed at once: a multiple of the largest block.
const CHUNK_LEN: usize = 1 << 20;

/// Least length of whole blocks in a range that are hashed in the caller's buffer. For fewer, a read of its own would
/// cost more than a copy.
const WHOLE_MIN_LEN: u64 = 16 << 10;

/// Hash blocks of level 0 that are kept: those of 512 MiB of data, with blocks of 4096 bytes and SHA-256.
const LEVEL_0_LEN: usize = 4 << 20;

/// Buffers that are kept for later reads.
const BUFFERS_MAX: usize = 16;

/// Longest buffer that is kept.
const SPARE_MAX_LEN: usize = 1 << 20;

/// A source whose bytes are verified before they are handed out. Only blocks that are read are hashed, and the hash
/// blocks above them once.
///
/// * Each read is rounded to blocks, which are read into memory and hashed there: a file that changes meanwhile cannot
///   show bytes that were not hashed. Nothing is lent ([`ReadAt::borrow`]).
/// * A hash block is verified when it is read. Blocks of level 0 are kept in 4 MiB of memory, those above all the
///   time: 64 KiB for each GiB of data.
/// * A block with a wrong digest is read once more, for a fault of the transport; then the read fails with
///   [`io::ErrorKind::InvalidData`] and a [`Mismatch`](crate::Mismatch).
/// * The source ends with the data that the tree covers.
pub struct VerifiedSource<D, T> {
    opened: Opened<D, T>,
    len: u64,
    /// Verified hash blocks of level 0.
    level_0: Mutex<Lru>,
    /// Verified hash blocks of higher levels.
    upper: Mutex<HashBlocks>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// Verified hash blocks by level and number.
type HashBlocks = HashMap<(usize, u64), Arc<[u8]>>;

impl<D: ReadAt, T: ReadAt> VerifiedSource<D, T> {
    /// Opens data and the tree with a superblock at its place in `tree`, and verifies the first block of the tree.
    ///
    /// # Errors
    /// A superblock that is damaged or does not suit the sources; a root hash that is not that of the tree.
    pub fn open(data: D, tree: T, location: Location, root_hash: Digest) -> Result<Self, VerityError> {
        let opened = Opened::new(data, tree, location, root_hash)?;
        let len = opened.superblock.parameters.data_len();
        let level_0 = Mutex::new(Lru::new(LEVEL_0_LEN / opened.hash_block_size));
        let source = Self { opened, len, level_0, upper: Mutex::default(), buffers: Mutex::default() };
        if let Some(top) = source.opened.top() {
            source.hash_block(top, 0)?;
        }
        Ok(source)
    }

    /// Returns the superblock of the tree, of which only the parameters are proved by the root hash.
    pub fn superblock(&self) -> &Superblock {
        &self.opened.superblock
    }

    /// Returns a verified hash block.
    fn hash_block(&self, level: usize, idx: u64) -> Result<Arc<[u8]>, VerityError> {
        let kept = match level {
            0 => lock(&self.level_0).get(idx),
            _ => lock(&self.upper).get(&(level, idx)).cloned(),
        };
        match kept {
            Some(block) => Ok(block),
            None => self.load_hash_block(level, idx, None),
        }
    }

    /// Verifies a hash block that is not kept: the bytes `read`, if they are right, else those of the source.
    fn load_hash_block(&self, level: usize, idx: u64, read: Option<&[u8]>) -> Result<Arc<[u8]>, VerityError> {
        let opened = &self.opened;
        let above = match opened.top() {
            Some(top) if top == level => None,
            _ => Some(self.hash_block(level + 1, idx / opened.shape.per_block())?),
        };
        let expected = above.as_ref().map_or(opened.root_hash.as_bytes(), |block| &block[opened.shape.slot(idx)]);
        let mut block = vec![0; opened.hash_block_size];
        let fill = |block: &mut [u8]| {
            opened.read_hash_blocks(level, idx, block).map_err(|source| VerityError::Read {
                part: Part::Tree,
                off: opened.hash_block_off(level, idx),
                source,
            })
        };
        match read {
            Some(bytes) => block.copy_from_slice(bytes),
            None => fill(&mut block)?,
        }
        if opened.compare_hash_block(level, idx, &block, expected).is_err() {
            fill(&mut block)?;
            opened.compare_hash_block(level, idx, &block, expected).map_err(VerityError::Mismatch)?;
        }
        if !opened.is_spare_zero(level, idx, &block) {
            return Err(VerityError::Spare { level: level as u32, off: opened.hash_block_off(level, idx) });
        }
        let block: Arc<[u8]> = block.into();
        match level {
            0 => lock(&self.level_0).insert(idx, block.clone()),
            _ => drop(lock(&self.upper).insert((level, idx), block.clone())),
        }
        Ok(block)
    }

    /// Returns verified blocks of level 0. Those that are not kept are read in one go.
    fn level_0_blocks(&self, blocks: Range<u64>) -> Result<Vec<Arc<[u8]>>, VerityError> {
        let mut kept: Vec<Option<Arc<[u8]>>> = {
            let mut level_0 = lock(&self.level_0);
            blocks.clone().map(|idx| level_0.get(idx)).collect()
        };
        let missing = |block: &Option<Arc<[u8]>>| block.is_none();
        let Some(first) = kept.iter().position(missing) else { return Ok(kept.into_iter().flatten().collect()) };
        let end = kept.iter().rposition(missing).map_or(first, |last| last + 1);
        let block_len = self.opened.hash_block_size;
        let mut buf = vec![0; (end - first) * block_len];
        // An error will be that of a single block.
        let is_read = self.opened.read_hash_blocks(0, blocks.start + first as u64, &mut buf).is_ok();
        for (at, bytes) in (first..end).zip(buf.chunks_exact(block_len)) {
            if kept[at].is_none() {
                let idx = blocks.start + at as u64;
                kept[at] = Some(self.load_hash_block(0, idx, is_read.then_some(bytes))?);
            }
        }
        Ok(kept.into_iter().flatten().collect())
    }

    /// Verifies the data blocks in `buf`, the first of which is number `first`. Wrong ones are read once more.
    fn verify(&self, first: u64, buf: &mut [u8]) -> Result<(), VerityError> {
        let (opened, block_len) = (&self.opened, self.opened.data_block_size);
        let check = |idx: u64, block: &mut [u8], expected: &[u8]| {
            if opened.compare_data_block(idx, block, expected).is_ok() {
                return Ok(());
            }
            let off = idx * block_len as u64;
            let failed = |source| VerityError::Read { part: Part::Data, off, source };
            opened.data.read_exact_at(block, off).map_err(failed)?;
            opened.compare_data_block(idx, block, expected).map_err(VerityError::Mismatch)
        };
        if opened.top().is_none() {
            return check(0, buf, opened.root_hash.as_bytes());
        }
        let per_block = opened.shape.per_block();
        let last = first + (buf.len() / block_len) as u64 - 1;
        let hash_blocks = first / per_block..last / per_block + 1;
        let hashes = self.level_0_blocks(hash_blocks.clone())?;
        for (idx, block) in (first..).zip(buf.chunks_exact_mut(block_len)) {
            let hash_block = &hashes[(idx / per_block - hash_blocks.start) as usize];
            check(idx, block, &hash_block[opened.shape.slot(idx)])?;
        }
        Ok(())
    }

    /// Fills ranges, all of which lie in the data. Whole blocks are read and hashed in the caller's buffers, if they are
    /// many; parts of blocks are read into `spare`, each block once, and copied. The source gets one call.
    fn fill(&self, ranges: &mut [RangeMut<'_>], spare: &mut Vec<u8>) -> io::Result<()> {
        let block_len = self.opened.data_block_size as u64;
        let (mut whole, mut parts) = (Vec::with_capacity(ranges.len()), Vec::new());
        for range in ranges {
            let (start, end) = (range.off, range.off + range.buf.len() as u64);
            let (first, last) = (start.next_multiple_of(block_len), end / block_len * block_len);
            if last.saturating_sub(first) < block_len.max(WHOLE_MIN_LEN) {
                parts.push(RangeMut { off: start, buf: &mut *range.buf });
                continue;
            }
            // Less than the buffer has.
            let (head, rest) = range.buf.split_at_mut((first - start) as usize);
            let (middle, tail) = rest.split_at_mut((last - first) as usize);
            parts.push(RangeMut { off: start, buf: head });
            whole.push(RangeMut { off: first, buf: middle });
            parts.push(RangeMut { off: last, buf: tail });
        }
        parts.retain(|part| !part.buf.is_empty());
        parts.sort_by_key(|part| part.off);
        let runs = runs(&parts, block_len);
        spare.resize(runs.iter().map(|run| (run.end - run.start) as usize).sum(), 0);
        let count = whole.len();
        let mut rest = &mut spare[..];
        for run in &runs {
            let (buf, others) = rest.split_at_mut((run.end - run.start) as usize);
            whole.push(RangeMut { off: run.start, buf });
            rest = others;
        }
        // A source may shift the ranges that it gets.
        let offs: Vec<u64> = whole.iter().map(|range| range.off).collect();
        self.opened.data.read_ranges(&mut whole)?;
        for (range, off) in whole.iter_mut().zip(offs) {
            range.off = off;
            for (off, buf) in (off..).step_by(CHUNK_LEN).zip(range.buf.chunks_mut(CHUNK_LEN)) {
                self.verify(off / block_len, buf)?;
            }
        }
        let mut runs = whole[count..].iter().peekable();
        for part in parts {
            while let Some(run) = runs.peek()
                && run.off + run.buf.len() as u64 <= part.off
            {
                runs.next();
            }
            if let Some(run) = runs.peek() {
                let at = (part.off - run.off) as usize;
                part.buf.copy_from_slice(&run.buf[at..at + part.buf.len()]);
            }
        }
        Ok(())
    }
}

/// Returns ranges of whole blocks that cover `parts`, which are sorted: blocks that overlap or follow each other are
/// one range.
fn runs(parts: &[RangeMut<'_>], block_len: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for part in parts {
        let start = part.off / block_len * block_len;
        let end = (part.off + part.buf.len() as u64).next_multiple_of(block_len);
        match runs.last_mut() {
            Some(run) if start <= run.end => run.end = run.end.max(end),
            _ => runs.push(start..end),
        }
    }
    runs
}

impl<D: ReadAt, T: ReadAt> ReadAt for VerifiedSource<D, T> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.read_ranges(&mut [RangeMut { off, buf }])
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        for RangeMut { off, buf } in &mut *ranges {
            if off.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
                let message = format!("bytes from {} on are not covered by the hash tree", self.len.max(*off));
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
        }
        let mut spare = lock(&self.buffers).pop().unwrap_or_default();
        let filled = self.fill(ranges, &mut spare);
        if filled.is_err() {
            // Nobody gets bytes that are not verified.
            ranges.iter_mut().for_each(|range| range.buf.fill(0));
        }
        let mut buffers = lock(&self.buffers);
        if buffers.len() < BUFFERS_MAX && spare.capacity() <= SPARE_MAX_LEN {
            buffers.push(spare);
        }
        filled
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        let block_len = self.opened.data_block_size as u64;
        let start = off.min(self.len) / block_len * block_len;
        let end = off.saturating_add(len).min(self.len).next_multiple_of(block_len);
        self.opened.data.will_need(start, end - start);
    }

    fn fetch_max_len(&self) -> usize {
        self.opened.data.fetch_max_len()
    }

    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        self.opened.data.is_resident(off, len)
    }
}
