//! From the plan to data blocks in the image: parts are packed on all cores, appended in plan order.

use kiln_codec::{Encoder, Method};
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Blkaddr, BlockBits};
use std::collections::{BTreeMap, HashSet};

use crate::append::Appender;
use crate::cuts::{self, Unit};
use crate::fill::PartExtent;
use crate::jobs::{self, Part, Stream, Task};
use crate::part::{PackedPart, Packer, Shape};
use crate::plan::{FilePlan, Plan, Storage};
use crate::pool::{self, Costed};
use crate::streams::Streams;
use crate::survey::skippable;
use crate::tails::{TailRef, Tails};
use crate::zindex::ZExtent;
use crate::{BuildError, BuildOptions, Control, Progress, Skipped, Tree, hole};

/// Bytes of plain text between hand-out and writing.
pub const BACKLOG: u64 = 64 << 20;
/// What a job costs beside its bytes.
const JOB_COST: u64 = 4096;
/// Longest extent of zeros. A reader decodes an extent from its start, so this bounds what a read inside a hole costs.
const ZEROS_MAX_LEN: usize = 1 << 20;
/// Longest hole in one encoded extent, in bytes.
const HOLE_EXTENT_MAX_LEN: u64 = 1 << 31;

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
    Compressed(Extents),
    /// In the packed inode, from this byte on.
    Fragment(u64),
}

/// The extents of a compressed stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// In order.
    pub list: Vec<ZExtent>,
    /// Blocks of its own.
    pub blocks: u64,
    /// Bytes of text that are stored for it; the rest is in holes and with others.
    pub text: u64,
    /// Bytes that this takes, inline ones included.
    pub bytes: u64,
    /// The pcluster of the last extent, if it lies beside the inode.
    pub inline: Option<TailRef>,
}

impl Extents {
    /// Add extents of bytes from `la` on, whose pclusters lie one behind the other from byte `pa` on.
    pub fn extend(
        &mut self,
        mut la: u64,
        mut pa: u64,
        new: &[PartExtent],
        inline: Option<TailRef>,
        block_bits: BlockBits,
    ) {
        let first = pa >> block_bits.bits();
        for &PartExtent { llen, plen, kind } in new {
            self.list.push(ZExtent { la, llen, plen, pa, kind, partial: false });
            la += u64::from(llen);
            pa += u64::from(plen);
            self.text += u64::from(llen);
            self.bytes += u64::from(plen);
        }
        let inline_len = inline.map_or(0, |tail| tail.len.into());
        self.blocks += block_bits.blocks_for(pa - inline_len) - first;
        self.inline = inline;
    }
}

/// The data of an image.
pub struct Packed {
    /// By index of the plan's files.
    pub stored: Vec<Stored>,
    /// The packed stream.
    pub packed: Extents,
    /// Inline tails.
    pub tails: Tails,
    /// Features in use.
    pub features: Vec<Feature>,
    /// Files that could not be read and are left out; why, until it is told.
    pub left_out: BTreeMap<u32, Option<Skipped>>,
}

impl Packed {
    /// Whether a file turned out to be unreadable.
    pub fn is_left_out(&self, file: u32) -> bool {
        self.left_out.contains_key(&file)
    }
}

/// Store the data of all files of `plan` at the end of `data`.
///
/// # Errors
/// As [`crate::build`].
pub fn pack(
    tree: &Tree,
    plan: &Plan,
    data: &mut Appender<'_>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Packed, BuildError> {
    let mut packing = Packing::new(plan, data, options, control);
    packing.write_zeros(options)?;
    let worker = || {
        let mut packer = Packer::new(tree, plan, options, control)?;
        Ok(move |part: Part| {
            let packed = skippable(packer.pack(&part), options)?;
            Ok((part, packed))
        })
    };
    let costed = |part: Part| Costed { cost: part.range.end - part.range.start + JOB_COST, job: part };
    pool::run(options.threads, BACKLOG, jobs::jobs(plan, options).map(costed), worker, |(part, packed)| {
        control.check()?;
        match packed {
            Ok(packed) => packing.append(tree, &part, packed),
            Err(error) => packing.leave_out(tree, part.stream, error),
        }
    })?;
    if let Some(streams) = &plan.streams {
        let late = packing.resolve(streams)?;
        pool::run(options.threads, BACKLOG, late.into_iter().map(costed), worker, |(part, packed)| {
            control.check()?;
            packing.append(tree, &part, packed?)
        })?;
    }
    packing.finish()
}

/// The state of packing, on the one thread that writes.
struct Packing<'a, 'b> {
    plan: &'a Plan,
    data: &'a mut Appender<'b>,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    /// Extents are encoded: byte-granular, and holes are of their own kind.
    encoded: bool,
    /// How files are compressed.
    method: Option<Method>,
    packed: Packed,
    /// The pcluster of zeros, as an extent of all that it decodes to.
    zeros: Option<ZExtent>,
    /// Files whose data others share.
    originals: HashSet<u32>,
    progress: Progress,
}

impl<'a, 'b> Packing<'a, 'b> {
    fn new(plan: &'a Plan, data: &'a mut Appender<'b>, options: &BuildOptions, control: &'a Control<'a>) -> Self {
        let block_bits = options.block_bits();
        let packed = Packed {
            stored: vec![Stored::Nothing; plan.files.len()],
            packed: Extents::default(),
            tails: Tails::new(options.scratch_dir.clone()),
            features: Vec::new(),
            left_out: BTreeMap::new(),
        };
        let stored = |file: &&FilePlan| !matches!(file.storage, Storage::Duplicate(_) | Storage::LeftOut);
        let referred = plan.streams.iter().flat_map(|streams| &streams.plan.refs).map(|one| one.len).sum::<u64>();
        let total_bytes = plan.files.iter().filter(stored).map(|file| file.len).sum::<u64>() - referred;
        let progress = Progress { done_bytes: 0, total_bytes };
        let original = |file: &FilePlan| match file.storage {
            Storage::Duplicate(original) => Some(original),
            _ => None,
        };
        let originals = plan.files.iter().filter_map(original).collect();
        let encoded = options.encoded_extents;
        let method = options.compression.map(|spec| spec.method);
        Self { plan, data, control, block_bits, encoded, method, packed, zeros: None, originals, progress }
    }

    /// Store the pcluster of zeros, if any file has a hole that names it.
    fn write_zeros(&mut self, options: &BuildOptions) -> Result<(), BuildError> {
        let needed = |file: &FilePlan| matches!(&file.storage, Storage::Compressed { holes } if !holes.is_empty());
        let Some(spec) = options.compression.filter(|_| !self.encoded && self.plan.files.iter().any(needed)) else {
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
        let pa = self.data.append(&PackedPart::new(block, Shape::Flat { tail: Vec::new() }))?;
        let plen = self.block_bits.len() as u32;
        self.zeros = Some(ZExtent { la: 0, llen: most as u32, pa, plen, kind: HeadKind::Head1, partial: false });
        self.feature(Feature::Fragments);
        Ok(())
    }

    /// Take the next part, in plan order.
    fn append(&mut self, tree: &Tree, part: &Part, packed: PackedPart) -> Result<(), BuildError> {
        let packed = self.data.settled(packed, self.method);
        let start = match part.stream {
            Stream::File(file) if self.packed.is_left_out(file) => return Ok(()),
            _ => self.data.append(&packed)?,
        };
        match (packed.shape, part.stream) {
            (Shape::Flat { tail }, Stream::File(file)) => {
                let start = Blkaddr(start >> self.block_bits.bits());
                self.append_flat(file, part, start, &packed.bytes, &tail)?;
            }
            (Shape::Flat { .. }, Stream::Packed) => {
                return Err(BuildError::Internal("a part of the packed stream is flat".to_owned()));
            }
            (Shape::Extents { list, inline }, stream) => {
                self.append_extents(stream, part.range.start, start, &list, &inline)?;
            }
        }
        for (file, error) in packed.unreadable {
            self.leave_out(tree, Stream::File(file), error)?;
        }
        let done = self.progress.done_bytes + part.range.end - part.range.start;
        self.progress.done_bytes = done.min(self.progress.total_bytes);
        (self.control.progress)(self.progress);
        Ok(())
    }

    /// Extents of bytes from `la` on that are stored one behind the other from byte `pa` on.
    fn append_extents(
        &mut self,
        stream: Stream,
        la: u64,
        pa: u64,
        new: &[PartExtent],
        inline: &[u8],
    ) -> Result<(), BuildError> {
        let block_bits = self.block_bits;
        let tail = if inline.is_empty() { None } else { Some(self.packed.tails.push(inline)?) };
        if tail.is_some() {
            self.feature(Feature::TailPacking);
        }
        self.extents_mut(stream).extend(la, pa, new, tail, block_bits);
        Ok(())
    }

    /// The extents of a stream that is compressed.
    fn extents_mut(&mut self, stream: Stream) -> &mut Extents {
        let Stream::File(file) = stream else { return &mut self.packed.packed };
        let stored = &mut self.packed.stored[file as usize];
        if !matches!(stored, Stored::Compressed(_)) {
            *stored = Stored::Compressed(Extents::default());
        }
        match stored {
            Stored::Compressed(extents) => extents,
            _ => unreachable!("just made so"),
        }
    }

    /// Turn references into extents, now that what they refer to is stored. Returns what must be stored again, because its
    /// extents would be too short.
    fn resolve(&mut self, streams: &Streams) -> Result<Vec<Part>, BuildError> {
        let mut late = Vec::new();
        let mut found: Vec<(Stream, ZExtent)> = Vec::new();
        for one in &streams.plan.refs {
            let wrong = || BuildError::Internal(format!("{one:?} has no units"));
            let ((stream, at), (target, la)) = (streams.locate(one.source), streams.locate(one.target));
            let units = match stream {
                Stream::Packed => &self.packed.packed.list,
                Stream::File(file) => match &self.packed.stored[file as usize] {
                    Stored::Compressed(extents) => &extents.list,
                    _ => return Err(wrong()),
                },
            };
            let units = &units[units.partition_point(|unit| unit.la < at)..];
            if units.first().is_none_or(|unit| unit.la != at) {
                return Err(wrong());
            }
            let lengths = units.iter().map(|unit| self.unit(unit));
            let range = one.target.off..one.target.off + one.len;
            let base = la - range.start;
            let resolved = cuts::resolve_ref(range, streams.ends_stream(one), lengths, streams.rules);
            let resolved = resolved.ok_or_else(wrong)?;
            let mut la = la;
            for piece in &resolved.extents {
                let unit = units[piece.unit];
                let partial = piece.llen < unit.llen && unit.kind != HeadKind::Plain;
                found.push((target, ZExtent { la, llen: piece.llen, partial, ..unit }));
                la += u64::from(piece.llen);
            }
            late.extend(resolved.late.map(|range| Part {
                stream: target,
                range: base + range.start..base + range.end,
                task: Task::Segment,
                ends_stream: streams.ends_stream(one),
            }));
        }
        if !found.is_empty() {
            self.feature(Feature::Fragments);
        }
        for (target, extent) in found {
            self.extents_mut(target).list.push(extent);
        }
        Ok(late)
    }

    fn unit(&self, extent: &ZExtent) -> Unit {
        let blocks = if self.encoded { 1 } else { (extent.plen >> self.block_bits.bits()) as u16 };
        Unit { llen: extent.llen, blocks }
    }

    fn append_flat(
        &mut self,
        file: u32,
        part: &Part,
        at: Blkaddr,
        blocks: &[u8],
        tail: &[u8],
    ) -> Result<(), BuildError> {
        let tail = if tail.is_empty() { None } else { Some(self.packed.tails.push(tail)?) };
        let block_bits = self.block_bits;
        let stored = &mut self.packed.stored[file as usize];
        match (&self.plan.files[file as usize].storage, &mut *stored) {
            (Storage::Chunks { chunk_bits, .. }, stored) => {
                let bits = *chunk_bits;
                if *stored == Stored::Nothing {
                    *stored = Stored::Chunks { chunk_bits: bits, runs: Vec::new() };
                }
                let Stored::Chunks { runs, .. } = stored else {
                    return Err(BuildError::Internal(format!("file {file} is stored twice")));
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

    fn leave_out(&mut self, tree: &Tree, stream: Stream, error: BuildError) -> Result<(), BuildError> {
        let is_shared = |file| {
            let streams = self.plan.streams.as_ref();
            self.originals.contains(&file) || streams.is_some_and(|streams| streams.is_shared(stream))
        };
        let file = match stream {
            Stream::File(file) if !is_shared(file) => file,
            // Others were to share its data, which cannot be had any more.
            _ => return Err(error),
        };
        self.packed.stored[file as usize] = Stored::Nothing;
        let skipped = || Skipped { path: tree.path(self.plan.files[file as usize].node), error };
        self.packed.left_out.entry(file).or_insert_with(|| Some(skipped()));
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
            if self.packed.is_left_out(idx as u32) {
                continue;
            }
            let stored = std::mem::replace(&mut self.packed.stored[idx], Stored::Nothing);
            self.packed.stored[idx] = match (stored, &file.storage) {
                (Stored::Nothing, Storage::Chunks { chunk_bits, .. }) => {
                    Stored::Chunks { chunk_bits: *chunk_bits, runs: Vec::new() }
                }
                (Stored::Nothing, Storage::Fragment { off }) => Stored::Fragment(*off),
                (Stored::Nothing, Storage::Compressed { .. }) => self.complete(Extents::default(), file.len)?,
                (Stored::Compressed(extents), _) => self.complete(extents, file.len)?,
                (stored, _) => stored,
            };
            match self.packed.stored[idx] {
                Stored::Chunks { .. } => self.feature(Feature::ChunkedFile),
                Stored::Fragment(_) => self.feature(Feature::Fragments),
                Stored::Compressed(_) if self.encoded => self.feature(Feature::Addr48Bit),
                _ => {}
            }
        }
        let packed = std::mem::take(&mut self.packed.packed);
        if let Stored::Compressed(extents) = self.complete(packed, self.plan.packed.len())? {
            self.packed.packed = extents;
        }
        Ok(self.packed)
    }

    /// The extents of a stream of `len` bytes in order, with holes in their gaps.
    fn complete(&self, mut extents: Extents, len: u64) -> Result<Stored, BuildError> {
        extents.list.sort_unstable_by_key(|extent| extent.la);
        let mut list = Vec::with_capacity(extents.list.len());
        let mut end = 0;
        for extent in extents.list {
            self.append_hole(&mut list, end, extent.la)?;
            end = extent.end();
            list.push(extent);
        }
        self.append_hole(&mut list, end, len)?;
        Ok(Stored::Compressed(Extents { list, ..extents }))
    }

    /// Zeros from `la` to `end`.
    fn append_hole(&self, list: &mut Vec<ZExtent>, mut la: u64, end: u64) -> Result<(), BuildError> {
        let most = match (self.encoded, self.zeros) {
            _ if la == end => return Ok(()),
            (true, _) => HOLE_EXTENT_MAX_LEN,
            (false, Some(zeros)) => zeros.llen.into(),
            (false, None) => return Err(BuildError::Internal(format!("nothing is stored of bytes {la} to {end}"))),
        };
        if la > end {
            return Err(BuildError::Internal(format!("bytes {end} to {la} are stored twice")));
        }
        let hole = ZExtent { la, llen: 0, plen: 0, pa: 0, kind: HeadKind::Plain, partial: false };
        while la < end {
            let llen = (end - la).min(most) as u32;
            let extent = self.zeros.map_or(hole, |zeros| ZExtent { partial: llen < zeros.llen, ..zeros });
            list.push(ZExtent { la, llen, ..extent });
            la += u64::from(llen);
        }
        Ok(())
    }
}
