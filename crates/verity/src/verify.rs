//! The check of a whole image against its tree, and of the tree against the root hash.

use crate::control::Control;
use crate::error::{Mismatch, Part, VerityError};
use crate::open::{Location, Opened};
use crate::superblock::{Superblock, stray_padding, uuid_of};
use kiln_digest::Digest;
use kiln_parallel::ordered::{self, Costed};
use kiln_read::ReadAt;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Range;
use uuid::Uuid;

/// Bytes that one thread reads and hashes at once.
const READ_LEN: usize = 1 << 20;

/// Findings that are listed; others are counted.
pub const FINDINGS_MAX: usize = 100;

/// Bits in which a UUID may differ from the one that follows from the root hash and is still that one, damaged. A
/// random UUID is as near once in 10^11 times.
const NEAR_UUID_BITS: u32 = 24;

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Superblock of the tree.
    pub superblock: Superblock,
    /// Wrong places, the first [`FINDINGS_MAX`] of them: the superblock, the tree from its top, the data.
    pub findings: Vec<Finding>,
    /// Number of wrong places.
    pub finding_count: u64,
    /// Bytes of data that could not be verified, because a hash block above them is wrong.
    pub unverifiable: u64,
    /// Bytes behind the covered data and in front of the tree, or the end of the file.
    pub uncovered: u64,
    /// The UUID follows from the root hash. That of another program's tree does not, and damage of it is not seen.
    pub has_own_uuid: bool,
}

impl Report {
    /// Returns true if nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.finding_count == 0
    }

    fn add(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// A wrong place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A block has another digest.
    Mismatch(Box<Mismatch>),
    /// A byte that must be zero is not: padding of the superblock, or of its block.
    Padding {
        /// Byte offset in the source of the tree.
        off: u64,
    },
    /// The UUID is a damaged form of the one that follows from the root hash.
    Uuid {
        /// The UUID that follows from the root hash.
        expected: Uuid,
        /// The UUID in the superblock.
        found: Uuid,
    },
    /// The rest of the last hash block of a level is not zero.
    Spare {
        /// Level of the block.
        level: u32,
        /// Byte offset in the source of the tree.
        off: u64,
    },
    /// A block cannot be read.
    Unreadable {
        /// The data, or the hash tree.
        part: Part,
        /// Byte offset of the block.
        off: u64,
        /// Error of the source.
        error: String,
    },
}

impl Finding {
    /// Returns the part of the image with the wrong place, and its byte offset there, if there is one.
    pub fn place(&self) -> (Part, Option<u64>) {
        match self {
            Finding::Mismatch(mismatch) if mismatch.level.is_none() => (Part::Data, Some(mismatch.off)),
            Finding::Mismatch(mismatch) => (Part::Tree, Some(mismatch.off)),
            Finding::Padding { off } | Finding::Spare { off, .. } => (Part::Tree, Some(*off)),
            Finding::Uuid { .. } => (Part::Tree, None),
            Finding::Unreadable { part, off, .. } => (*part, Some(*off)),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Mismatch(mismatch) => mismatch.fmt(f),
            Finding::Padding { off } => write!(f, "superblock of the hash tree: byte {off} is padding, and not zero"),
            Finding::Uuid { expected, found } => {
                write!(f, "superblock of the hash tree: the UUID is damaged: expected {expected}, found {found}")
            }
            Finding::Spare { level, off } => VerityError::Spare { level: *level, off: *off }.fmt(f),
            Finding::Unreadable { part, off, error } => write!(f, "cannot read {part} at byte {off}: {error}"),
        }
    }
}

/// Checks all data and the whole tree, on all of the threads: the superblock, the tree from its top, then the data.
/// Blocks below a wrong hash block cannot be verified, and are only counted.
///
/// # Errors
/// A superblock that cannot be used, or does not suit the sources or the root hash; a stop. Wrong and unreadable blocks
/// are findings.
pub fn verify(
    data: &dyn ReadAt,
    tree: &dyn ReadAt,
    location: Location,
    root_hash: &Digest,
    control: &Control<'_>,
) -> Result<Report, VerityError> {
    let opened = Opened::new(ByRef(data), ByRef(tree), location, *root_hash)?;
    let hash_off = location.hash_off();
    let failed = |part| move |source| VerityError::Read { part, off: 0, source };
    let end = match location {
        Location::Behind { hash_off } => hash_off,
        Location::Beside { .. } => data.len().map_err(failed(Part::Data))?,
    };
    let superblock = opened.superblock.clone();
    let (own, found) = (uuid_of(root_hash), superblock.uuid);
    let mut report = Report {
        uncovered: end - superblock.parameters.data_len().min(end),
        superblock,
        findings: Vec::new(),
        finding_count: 0,
        unverifiable: 0,
        has_own_uuid: own == found,
    };
    let head_len = (opened.tree_off - hash_off).min(tree.len().map_err(failed(Part::Tree))? - hash_off);
    let mut head = vec![0; head_len as usize]; // a block and 512 bytes at most
    tree.read_exact_at(&mut head, hash_off).map_err(failed(Part::Tree))?;
    if let Some(at) = stray_padding(&head, &opened.superblock) {
        report.add(Finding::Padding { off: hash_off + at as u64 });
    }
    if (1..=NEAR_UUID_BITS).contains(&(own.as_u128() ^ found.as_u128()).count_ones()) {
        report.add(Finding::Uuid { expected: own, found });
    }
    let check = Check { opened: &opened, control };
    let levels = check.tree(&mut report)?;
    check.data(&levels, &mut report)?;
    Ok(report)
}

/// A source by reference.
struct ByRef<'a>(&'a dyn ReadAt);

impl ReadAt for ByRef<'_> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [kiln_read::RangeMut<'_>]) -> io::Result<()> {
        self.0.read_ranges(ranges)
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.0.borrow(off, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        self.0.will_need(off, len);
    }
}

struct Check<'a> {
    opened: &'a Opened<ByRef<'a>, ByRef<'a>>,
    control: &'a Control<'a>,
}

/// Verified levels of a tree.
struct Levels {
    /// Blocks of level 1, end to end, or nothing if there is no such level. Level 0 is read again for the data: it may
    /// be too long for the memory.
    above: Vec<u8>,
    /// Blocks of level 0 that are wrong or below wrong ones.
    wrong: BTreeSet<u64>,
}

/// Blocks that one job has compared.
struct Compared {
    /// Bytes of hash blocks.
    bytes: Vec<u8>,
    /// Numbers of hash blocks that are wrong.
    wrong: Vec<u64>,
    findings: Vec<Finding>,
    /// Bytes of data that could not be verified.
    unverifiable: u64,
}

impl Check<'_> {
    /// Returns the digest that block `idx` of a level must have, given the blocks of the level above.
    fn expected<'b>(&'b self, level: usize, above: &'b [u8], idx: u64) -> &'b [u8] {
        if self.opened.top() == Some(level) {
            return self.opened.root_hash.as_bytes();
        }
        let len = self.opened.hasher.algorithm().digest_len();
        let start = idx as usize * len; // `above` is in memory
        &above[start..start + len]
    }

    /// Checks the tree from its top.
    fn tree(&self, report: &mut Report) -> Result<Levels, VerityError> {
        let shape = &self.opened.shape;
        let mut levels = Levels { above: Vec::new(), wrong: BTreeSet::new() };
        for level in (0..shape.levels()).rev() {
            let step = (READ_LEN / self.opened.hash_block_size) as u64;
            let jobs = ranges(shape.blocks(level), step);
            let (mut bytes, mut wrong) = (Vec::new(), BTreeSet::new());
            let worker = || Ok(|blocks: Range<u64>| self.hash_blocks(level, blocks, &levels));
            self.run(jobs, worker, |compared: Compared| {
                if level > 0 {
                    bytes.extend_from_slice(&compared.bytes);
                }
                wrong.extend(compared.wrong);
                compared.findings.into_iter().for_each(|finding| report.add(finding));
            })?;
            // For the data, level 0 is compared with level 1 again.
            levels = Levels { above: if level > 0 { bytes } else { levels.above }, wrong };
        }
        Ok(levels)
    }

    fn run<W: FnMut(Range<u64>) -> Result<Compared, VerityError>>(
        &self,
        jobs: impl Iterator<Item = Range<u64>> + Send,
        make_worker: impl Fn() -> Result<W, VerityError> + Sync,
        mut consume: impl FnMut(Compared),
    ) -> Result<(), VerityError> {
        let jobs = jobs.map(|job| Costed { job, cost: 1 });
        ordered::run(self.control.threads, 4 * self.control.threads.count() as u64, jobs, make_worker, |compared| {
            consume(compared);
            Ok(())
        })
    }

    /// Compares hash blocks of a level with the level above, whose wrong blocks are known.
    fn hash_blocks(&self, level: usize, blocks: Range<u64>, above: &Levels) -> Result<Compared, VerityError> {
        if self.control.is_stopped() {
            return Err(VerityError::Interrupted);
        }
        let (opened, block_len) = (self.opened, self.opened.hash_block_size);
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * block_len]; // `READ_LEN` or a block
        let (mut wrong, mut findings) = (Vec::new(), Vec::new());
        let first = opened.hash_block_off(level, blocks.start);
        let tree = Blocks { source: &opened.tree, part: Part::Tree, len: block_len };
        let unreadable = tree.read(first, &mut bytes, &mut findings);
        for (idx, block) in blocks.zip(bytes.chunks_exact(block_len)) {
            let off = opened.hash_block_off(level, idx);
            if above.wrong.contains(&(idx / opened.shape.per_block())) || unreadable.contains(&off) {
                wrong.push(idx);
                continue;
            }
            match opened.compare_hash_block(level, idx, block, self.expected(level, &above.above, idx)) {
                Ok(()) if opened.is_spare_zero(level, idx, block) => {}
                Ok(()) => findings.push(Finding::Spare { level: level as u32, off }), // 18 levels at most
                Err(mismatch) => {
                    wrong.push(idx);
                    findings.push(Finding::Mismatch(mismatch));
                }
            }
        }
        Ok(Compared { bytes, wrong, findings, unverifiable: 0 })
    }

    /// Checks the data.
    fn data(&self, levels: &Levels, report: &mut Report) -> Result<(), VerityError> {
        let block_len = self.opened.data_block_size;
        let Some(_) = self.opened.top() else {
            let (mut block, mut findings) = (vec![0; block_len], Vec::new());
            self.data_blocks(0, &mut block, self.opened.root_hash.as_bytes(), &mut findings);
            findings.into_iter().for_each(|finding| report.add(finding));
            return Ok(());
        };
        // Jobs begin at a block of level 0.
        let covered = self.opened.shape.per_block() * block_len as u64;
        let jobs = ranges(self.opened.shape.blocks(0), (READ_LEN as u64 / covered).max(1));
        let make_worker = || {
            let mut buf = Vec::new();
            Ok(move |blocks: Range<u64>| {
                let mut compared =
                    Compared { bytes: Vec::new(), wrong: Vec::new(), findings: Vec::new(), unverifiable: 0 };
                for idx in blocks {
                    self.below(idx, levels, &mut buf, &mut compared)?;
                }
                Ok(compared)
            })
        };
        self.run(jobs, make_worker, |compared| {
            report.unverifiable += compared.unverifiable;
            compared.findings.into_iter().for_each(|finding| report.add(finding));
        })
    }

    /// Checks the data below a block of level 0.
    fn below(&self, idx: u64, levels: &Levels, buf: &mut Vec<u8>, compared: &mut Compared) -> Result<(), VerityError> {
        let (opened, block_len) = (self.opened, self.opened.data_block_size);
        let covers = opened.shape.covers(0, idx);
        if levels.wrong.contains(&idx) {
            compared.unverifiable += covers.end - covers.start;
            return Ok(());
        }
        let mut hash_block = vec![0; opened.hash_block_size];
        let read = opened.read_hash_blocks(0, idx, &mut hash_block);
        read.map_err(|source| VerityError::Read { part: Part::Tree, off: opened.hash_block_off(0, idx), source })?;
        // It was right before, so another program is writing.
        opened
            .compare_hash_block(0, idx, &hash_block, self.expected(0, &levels.above, idx))
            .map_err(VerityError::Mismatch)?;
        let digest_len = opened.hasher.algorithm().digest_len();
        for part in ranges(covers.end - covers.start, READ_LEN as u64) {
            if self.control.is_stopped() {
                return Err(VerityError::Interrupted);
            }
            buf.resize((part.end - part.start) as usize, 0); // at most `READ_LEN`
            let digests = &hash_block[part.start as usize / block_len * digest_len..];
            self.data_blocks(covers.start + part.start, buf, digests, &mut compared.findings);
        }
        Ok(())
    }

    /// Compares the blocks from byte `off` of the data on with `digests`. `buf` is for their bytes.
    fn data_blocks(&self, off: u64, buf: &mut [u8], digests: &[u8], findings: &mut Vec<Finding>) {
        let (opened, block_len) = (self.opened, self.opened.data_block_size);
        let digest_len = opened.hasher.algorithm().digest_len();
        let data = Blocks { source: &opened.data, part: Part::Data, len: block_len };
        let unreadable = data.read(off, buf, findings);
        let first = off / block_len as u64;
        for ((idx, block), expected) in (first..).zip(buf.chunks_exact(block_len)).zip(digests.chunks_exact(digest_len))
        {
            if unreadable.contains(&(idx * block_len as u64)) {
                continue;
            }
            findings.extend(opened.compare_data_block(idx, block, expected).err().map(Finding::Mismatch));
        }
        self.control.advance(buf.len() as u64);
    }
}

/// A source of blocks.
struct Blocks<'a> {
    source: &'a dyn ReadAt,
    part: Part,
    /// Length of a block.
    len: usize,
}

impl Blocks<'_> {
    /// Fills `buf` with the blocks from byte `off` on, one by one where they cannot be read at once. Returns the
    /// offsets of those that cannot be read.
    fn read(&self, off: u64, buf: &mut [u8], findings: &mut Vec<Finding>) -> BTreeSet<u64> {
        let mut unreadable = BTreeSet::new();
        if self.source.read_exact_at(buf, off).is_ok() {
            return unreadable;
        }
        for (off, block) in (off..).step_by(self.len).zip(buf.chunks_exact_mut(self.len)) {
            if let Err(error) = self.source.read_exact_at(block, off) {
                unreadable.insert(off);
                findings.push(Finding::Unreadable { part: self.part, off, error: error.to_string() });
            }
        }
        unreadable
    }
}

/// Returns ranges of `step`, and a shorter last one, up to `end`.
fn ranges(end: u64, step: u64) -> impl Iterator<Item = Range<u64>> + Send {
    (0..end.div_ceil(step)).map(move |idx| idx * step..((idx + 1) * step).min(end))
}
