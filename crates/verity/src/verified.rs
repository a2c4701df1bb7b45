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

/// Data that are read and hashed at once.
const CHUNK_LEN: usize = 256 << 10;

/// Hash blocks of level 0 that are kept: those of 512 MiB of data, with blocks of 4096 bytes and SHA-256.
const LEVEL_0_LEN: usize = 4 << 20;

/// Buffers that are kept for later reads.
const BUFFERS_MAX: usize = 16;

/// A source whose bytes are verified before they are handed out. Only blocks that are read are hashed, and the hash
/// blocks above them once.
///
/// * Each read is rounded to blocks, which are read into a buffer of its own and hashed there: a file that changes
///   meanwhile cannot show bytes that were not hashed. Nothing is lent ([`ReadAt::borrow`]).
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

/// Part of a read: a range of the source and its bytes.
struct Wanted<'a, 'b> {
    start: u64,
    end: u64,
    range: &'a mut RangeMut<'b>,
}

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

    /// Reads ranges whose blocks overlap or follow each other, in order of their starts.
    fn read_run(&self, run: &mut [Wanted<'_, '_>], buf: &mut Vec<u8>) -> io::Result<()> {
        let block_len = self.opened.data_block_size as u64;
        let Some(first) = run.first() else { return Ok(()) };
        let mut at = first.start / block_len * block_len;
        let end = run.iter().map(|wanted| wanted.end).max().unwrap_or(at).next_multiple_of(block_len);
        let mut done = 0;
        while at < end {
            let len = (end - at).min(CHUNK_LEN as u64) as usize;
            buf.resize(len, 0);
            self.opened.data.read_exact_at(buf, at)?;
            self.verify(at / block_len, buf)?;
            let chunk_end = at + len as u64;
            for wanted in &mut run[done..] {
                if wanted.start >= chunk_end {
                    break;
                }
                let (start, end) = (wanted.start.max(at), wanted.end.min(chunk_end));
                if start < end {
                    let from = (start - at) as usize..(end - at) as usize;
                    let to = (start - wanted.range.off) as usize..(end - wanted.range.off) as usize;
                    wanted.range.buf[to].copy_from_slice(&buf[from]);
                }
            }
            while run.get(done).is_some_and(|wanted| wanted.end <= chunk_end) {
                done += 1;
            }
            at = chunk_end;
        }
        Ok(())
    }
}

impl<D: ReadAt, T: ReadAt> ReadAt for VerifiedSource<D, T> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.read_ranges(&mut [RangeMut { off, buf }])
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        let mut wanted = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (start, len) = (range.off, range.buf.len() as u64);
            let Some(end) = start.checked_add(len).filter(|end| *end <= self.len) else {
                let message = format!("bytes from {} on are not covered by the hash tree", self.len.max(start));
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            };
            if len > 0 {
                wanted.push(Wanted { start, end, range });
            }
        }
        wanted.sort_by_key(|wanted| wanted.start);
        let block_len = self.opened.data_block_size as u64;
        let mut buf = lock(&self.buffers).pop().unwrap_or_default();
        let mut rest = &mut wanted[..];
        while let Some(first) = rest.first() {
            // Blocks of a run are hashed once, even those that two ranges share.
            let mut end = first.end.next_multiple_of(block_len);
            let mut count = 1;
            while let Some(next) = rest.get(count).filter(|next| next.start / block_len * block_len <= end) {
                end = end.max(next.end.next_multiple_of(block_len));
                count += 1;
            }
            let (run, others) = rest.split_at_mut(count);
            self.read_run(run, &mut buf)?;
            rest = others;
        }
        let mut buffers = lock(&self.buffers);
        if buffers.len() < BUFFERS_MAX {
            buffers.push(buf);
        }
        Ok(())
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
