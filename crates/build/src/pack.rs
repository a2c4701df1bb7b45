//! From the plan to data blocks in the image: parts are packed on all cores, appended in plan order.

use kiln_codec::Encoder;
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Blkaddr, BlockBits};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::facts::Facts;
use crate::part::{PackedPart, Packer, Part, Shape, Task};
use crate::plan::{FilePlan, Plan, Storage, segment_len, skippable};
use crate::pool::{self, Costed};
use crate::tails::{TailRef, Tails};
use crate::zindex::ZExtent;
use crate::{BuildError, BuildOptions, Control, Progress, Skipped, Tree, hole};

/// Bytes of plain text between hand-out and writing.
const BACKLOG: u64 = 64 << 20;
/// What a job costs beside its bytes.
const JOB_COST: u64 = 4096;
/// Bytes of an uncompressed file that are copied at a time.
const COPY_LEN: u64 = 4 << 20;
/// Longest extent of zeros. A reader decodes an extent from its start, so this bounds what a read inside a hole costs.
const ZEROS_MAX_LEN: usize = 1 << 20;

/// Where a file's data lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nowhere: the file is empty, left out, or has the data of another one.
    Nothing,
    /// Contiguous blocks, then perhaps a tail beside the inode.
    Flat {
        /// First block; of no meaning where there is none.
        start: Blkaddr,
        /// The inline tail.
        tail: Option<TailRef>,
    },
    /// Chunks.
    Chunks {
        /// log2 of the chunk size.
        chunk_bits: u8,
        /// Runs of stored chunks: number of the first chunk, count, first block. The rest are holes.
        runs: Vec<(u64, u64, Blkaddr)>,
    },
    /// Extents.
    Compressed {
        /// In file order.
        extents: Vec<ZExtent>,
        /// Blocks of its own.
        blocks: u64,
    },
}

/// The data of an image.
pub struct Packed {
    /// By index of the plan's files.
    pub stored: Vec<Stored>,
    /// Inline tails.
    pub tails: Tails,
    /// First block behind the data.
    pub end: Blkaddr,
    /// Running digest of the image's contents.
    pub digest: blake3::Hasher,
    /// Features in use.
    pub features: Vec<Feature>,
    /// Files that could not be read and are left out.
    pub left_out: BTreeMap<u32, Skipped>,
}

impl Packed {
    /// Whether a file turned out to be unreadable.
    pub fn is_left_out(&self, file: u32) -> bool {
        self.left_out.contains_key(&file)
    }
}

/// Store the data of all files of `plan` in `out`, from the block behind the superblock on.
///
/// # Errors
/// As [`crate::build`].
pub fn pack(
    tree: &Tree,
    facts: &Facts,
    plan: &Plan,
    out: &File,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Packed, BuildError> {
    let mut packing = Packing::new(plan, out, options, control)?;
    packing.write_zeros(options)?;
    let jobs = plan.files.iter().enumerate().flat_map(|(idx, file)| parts(idx as u32, file, facts, options));
    let jobs = jobs.map(|part| Costed { cost: part.range.end - part.range.start + JOB_COST, job: part });
    let worker = || {
        let mut packer = Packer::new(tree, options, control)?;
        Ok(move |part: Part| {
            let packed = skippable(packer.pack(&part), options)?;
            Ok((part, packed))
        })
    };
    pool::run(options.threads, BACKLOG, jobs, worker, |(part, packed)| {
        control.check()?;
        match packed {
            Ok(packed) => packing.append(&part, packed),
            Err(error) => packing.leave_out(tree, &part, error),
        }
    })?;
    packing.finish()
}

/// The parts of a file, in order.
fn parts(file: u32, plan: &FilePlan, facts: &Facts, options: &BuildOptions) -> Box<dyn Iterator<Item = Part> + Send> {
    let (node, len) = (plan.node, plan.len);
    let part = move |range, task| Part { file, node, range, task };
    let whole = |compress| Task::Whole { compress, inode_len: facts.inode_len(node) };
    let steps = |range: std::ops::Range<u64>, step: u64| {
        let (start, end) = (range.start, range.end);
        (start / step..end.div_ceil(step)).map(move |n| (n * step).max(start)..((n + 1) * step).min(end))
    };
    match &plan.storage {
        Storage::LeftOut | Storage::Empty | Storage::Duplicate(_) => Box::new(std::iter::empty()),
        Storage::Flat if len <= COPY_LEN => Box::new(std::iter::once(part(0..len, whole(false)))),
        Storage::Flat => {
            let inode_len = facts.inode_len(node);
            let tail = crate::space::inline_tail_len(len, inode_len, options.block_bits()).unwrap_or(0) as u64;
            let copies = steps(0..len - tail, COPY_LEN).map(move |range| part(range, Task::Copy));
            Box::new(copies.chain((tail > 0).then(|| part(len - tail..len, Task::Tail))))
        }
        Storage::Chunks { chunk_bits, holes } => {
            let runs = hole::stored_chunks(len, holes, *chunk_bits);
            let bits = *chunk_bits;
            let ranges = runs.into_iter().map(move |run| run.start << bits..(run.end << bits).min(len));
            Box::new(ranges.flat_map(move |range| steps(range, COPY_LEN)).map(move |range| part(range, Task::Copy)))
        }
        Storage::Compressed { holes } => {
            let segment = options.compression.map_or(COPY_LEN, |spec| segment_len(spec.pcluster_len));
            if holes.is_empty() && len <= segment {
                return Box::new(std::iter::once(part(0..len, whole(true))));
            }
            let runs: Vec<_> = hole::data_runs(len, holes).collect();
            Box::new(runs.into_iter().flat_map(move |run| steps(run, segment)).map(move |r| part(r, Task::Segment)))
        }
    }
}

/// The state of packing, on the one thread that writes.
struct Packing<'a> {
    plan: &'a Plan,
    out: &'a File,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    packed: Packed,
    zeros: Option<Zeros>,
    /// Files whose data others share.
    originals: HashSet<u32>,
    progress: Progress,
}

/// The pcluster of zeros.
#[derive(Clone, Copy)]
struct Zeros {
    start: u32,
    /// Bytes that it decodes to.
    llen: u32,
}

impl<'a> Packing<'a> {
    fn new(
        plan: &'a Plan,
        out: &'a File,
        options: &BuildOptions,
        control: &'a Control<'a>,
    ) -> Result<Self, BuildError> {
        let block_bits = options.block_bits();
        let packed = Packed {
            stored: vec![Stored::Nothing; plan.files.len()],
            tails: Tails::new(options.scratch_dir.clone()),
            end: Blkaddr(crate::write::header_blocks(options)?),
            digest: blake3::Hasher::new(),
            features: Vec::new(),
            left_out: BTreeMap::new(),
        };
        let stored = |file: &&FilePlan| !matches!(file.storage, Storage::Duplicate(_) | Storage::LeftOut);
        let total_bytes = plan.files.iter().filter(stored).map(|file| file.len).sum();
        let progress = Progress { done_bytes: 0, total_bytes };
        let original = |file: &FilePlan| match file.storage {
            Storage::Duplicate(original) => Some(original),
            _ => None,
        };
        let originals = plan.files.iter().filter_map(original).collect();
        Ok(Self { plan, out, control, block_bits, packed, zeros: None, originals, progress })
    }

    /// Store the pcluster of zeros, if any file has a hole that names it.
    fn write_zeros(&mut self, options: &BuildOptions) -> Result<(), BuildError> {
        let needed = |file: &FilePlan| matches!(&file.storage, Storage::Compressed { holes } if !holes.is_empty());
        let Some(spec) = options.compression.filter(|_| self.plan.files.iter().any(needed)) else {
            return Ok(());
        };
        let mut block = vec![0; self.block_bits.len() as usize];
        let zeros = vec![0; ZEROS_MAX_LEN];
        let mut encoder = Encoder::new(&spec)?;
        let most = self.block_bits.floor(encoder.fill(&zeros, &mut block)?.consumed as u64) as usize;
        encoder.reset();
        let filled = encoder.fill(&zeros[..most], &mut block)?;
        if filled.consumed != most || most < hole::HOLE_MIN_LEN as usize {
            return Err(BuildError::Internal(format!("a block holds {} of {most} zeros", filled.consumed)));
        }
        // Right-aligned, as every pcluster.
        block[filled.produced..].fill(0);
        block.rotate_right(self.block_bits.len() as usize - filled.produced);
        let start = self.append_blocks(&block, xxhash_rust::xxh3::xxh3_128(&block))?;
        self.zeros = Some(Zeros { start: start.lo(), llen: most as u32 });
        self.feature(Feature::Fragments);
        Ok(())
    }

    /// Take the next part, in plan order.
    fn append(&mut self, part: &Part, packed: PackedPart) -> Result<(), BuildError> {
        if self.packed.is_left_out(part.file) {
            return Ok(());
        }
        let start = self.append_blocks(&packed.blocks, packed.digest)?;
        let idx = part.file as usize;
        match packed.shape {
            Shape::Flat { tail } => self.append_flat(part, start, &packed.blocks, &tail)?,
            Shape::Extents(new) => {
                let (mut extents, mut blocks) = match std::mem::replace(&mut self.packed.stored[idx], Stored::Nothing) {
                    Stored::Compressed { extents, blocks } => (extents, blocks),
                    _ => (Vec::new(), 0),
                };
                self.append_zeros(&mut extents, part.range.start)?;
                let mut at = start.lo();
                for extent in new {
                    let (llen, kind) = (extent.llen, extent.kind);
                    extents.push(ZExtent { llen, start: at, blocks: extent.blocks, kind, partial: false });
                    at += u32::from(extent.blocks);
                    blocks += u64::from(extent.blocks);
                }
                self.packed.stored[idx] = Stored::Compressed { extents, blocks };
            }
        }
        self.progress.done_bytes += part.range.end - part.range.start;
        (self.control.progress)(self.progress);
        Ok(())
    }

    fn append_flat(&mut self, part: &Part, at: Blkaddr, blocks: &[u8], tail: &[u8]) -> Result<(), BuildError> {
        let tail = if tail.is_empty() { None } else { Some(self.packed.tails.push(tail)?) };
        let block_bits = self.block_bits;
        let stored = &mut self.packed.stored[part.file as usize];
        match (&self.plan.files[part.file as usize].storage, &mut *stored) {
            (Storage::Chunks { chunk_bits, .. }, stored) => {
                let bits = *chunk_bits;
                if *stored == Stored::Nothing {
                    *stored = Stored::Chunks { chunk_bits: bits, runs: Vec::new() };
                }
                let Stored::Chunks { runs, .. } = stored else {
                    return Err(BuildError::Internal(format!("file {} is stored twice", part.file)));
                };
                let (first, end) = (part.range.start >> bits, part.range.end.div_ceil(1 << bits));
                let blocks_per_chunk = 1 << (bits - block_bits.bits());
                match runs.last_mut() {
                    // The part continues the run before it, perhaps inside a chunk.
                    Some((run, count, _)) if *run + *count >= first => *count = end - *run,
                    _ => {
                        debug_assert!(part.range.start.is_multiple_of(blocks_per_chunk << block_bits.bits()));
                        runs.push((first, end - first, at));
                    }
                }
            }
            (_, Stored::Flat { tail: old, .. }) => *old = tail.or(*old),
            (_, stored) => {
                let start = if blocks.is_empty() { Blkaddr(0) } else { at };
                *stored = Stored::Flat { start, tail };
            }
        }
        Ok(())
    }

    /// References to zeros from the end of `extents` to `end`.
    fn append_zeros(&self, extents: &mut Vec<ZExtent>, end: u64) -> Result<(), BuildError> {
        let mut pos: u64 = extents.iter().map(|extent| u64::from(extent.llen)).sum();
        if pos == end {
            return Ok(());
        }
        let Some(zeros) = self.zeros else {
            return Err(BuildError::Internal(format!("a part starts at {end}, not at {pos}")));
        };
        while pos < end {
            let llen = (end - pos).min(zeros.llen.into()) as u32;
            let partial = llen < zeros.llen;
            extents.push(ZExtent { llen, start: zeros.start, blocks: 1, kind: HeadKind::Head1, partial });
            pos += u64::from(llen);
        }
        Ok(())
    }

    fn append_blocks(&mut self, blocks: &[u8], digest: u128) -> Result<Blkaddr, BuildError> {
        let start = self.packed.end;
        if blocks.is_empty() {
            return Ok(start);
        }
        let end = Blkaddr(start.0 + self.block_bits.blocks_for(blocks.len() as u64));
        if end >= Blkaddr::HOLE32 {
            return Err(kiln_format::FormatError::does_not_fit("erofs_super_block", "blocks_lo", end.0).into());
        }
        let off = start.0 * self.block_bits.len();
        self.out.write_all_at(blocks, off).map_err(|source| BuildError::Write { action: "write the image", source })?;
        self.packed.digest.update(&digest.to_le_bytes());
        self.packed.end = end;
        Ok(start)
    }

    fn leave_out(&mut self, tree: &Tree, part: &Part, error: BuildError) -> Result<(), BuildError> {
        if self.originals.contains(&part.file) {
            // Others were to share its data, which cannot be had any more.
            return Err(error);
        }
        self.packed.stored[part.file as usize] = Stored::Nothing;
        let skipped = || Skipped { path: tree.path(part.node), error };
        self.packed.left_out.entry(part.file).or_insert_with(skipped);
        Ok(())
    }

    fn feature(&mut self, feature: Feature) {
        if !self.packed.features.contains(&feature) {
            self.packed.features.push(feature);
        }
    }

    /// Files that end in a hole, and features that depend on what was stored.
    fn finish(mut self) -> Result<Packed, BuildError> {
        for (idx, file) in self.plan.files.iter().enumerate() {
            let has_holes = matches!(&file.storage, Storage::Compressed { holes } if !holes.is_empty());
            let left_out = self.packed.is_left_out(idx as u32);
            match std::mem::replace(&mut self.packed.stored[idx], Stored::Nothing) {
                _ if left_out => {}
                Stored::Nothing if has_holes => {
                    let mut extents = Vec::new();
                    self.append_zeros(&mut extents, file.len)?;
                    self.packed.stored[idx] = Stored::Compressed { extents, blocks: 0 };
                }
                Stored::Compressed { mut extents, blocks } => {
                    self.append_zeros(&mut extents, file.len)?;
                    extents.shrink_to_fit();
                    self.packed.stored[idx] = Stored::Compressed { extents, blocks };
                }
                Stored::Nothing if matches!(file.storage, Storage::Chunks { .. }) => {
                    let Storage::Chunks { chunk_bits, .. } = file.storage else { unreachable!() };
                    self.packed.stored[idx] = Stored::Chunks { chunk_bits, runs: Vec::new() };
                }
                stored => self.packed.stored[idx] = stored,
            }
            if matches!(self.packed.stored[idx], Stored::Chunks { .. }) {
                self.feature(Feature::ChunkedFile);
            }
        }
        Ok(self.packed)
    }
}
