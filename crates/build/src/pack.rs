//! From the plan to data blocks in the image: parts are packed on all cores, appended in plan order.

mod plain;

use kiln_codec::{Encoder, Method};
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Blkaddr, BlockBits};
use std::collections::{BTreeMap, HashSet};
use xxhash_rust::xxh3::xxh3_128;

use crate::chunks::{ChunkRuns, ChunkStore};
use crate::cuts::{self, Unit};
use crate::device::Device;
use crate::fill::{Filled, PartExtent};
use crate::jobs::{self, Part, Stream, Task};
use crate::part::{PackedPart, Packer, Shape};
use crate::plan::{FilePlan, Plan, Storage};
use crate::pool::{self, Costed};
use crate::streams::Streams;
use crate::survey::skippable;
use crate::tails::{TailRef, Tails};
use crate::zindex::ZExtent;
use crate::{BuildError, BuildOptions, Control, Out, Progress, Skipped, Tree, hole};

/// Bytes of plain text between hand-out and writing.
const BACKLOG: u64 = 64 << 20;
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
        /// Where they lie.
        runs: ChunkRuns,
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
    /// The pcluster of the last extent, if it lies beside the inode.
    pub inline: Option<TailRef>,
}

/// The data of an image.
pub struct Packed {
    /// By index of the plan's files.
    pub stored: Vec<Stored>,
    /// The packed stream.
    pub packed: Extents,
    /// Inline tails.
    pub tails: Tails,
    /// Byte behind the data.
    pub end: u64,
    /// Blocks of the extra device, if there is one.
    pub blob_blocks: Option<u64>,
    /// Bytes of chunks that are stored once though they occur several times.
    pub shared_chunk_bytes: u64,
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
    plan: &Plan,
    out: Out<'_>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Packed, BuildError> {
    let mut packing = Packing::new(plan, out, options, control)?;
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
struct Packing<'a> {
    plan: &'a Plan,
    image: Device<'a>,
    /// The extra device, where chunks go if there is one.
    blob: Option<Device<'a>>,
    chunks: ChunkStore,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    /// Byte addresses where the data of files may start are multiples of this.
    data_align: u64,
    /// Extents are encoded: byte-granular, and holes are of their own kind.
    encoded: bool,
    /// They are, and hold DEFLATE.
    encoded_deflate: bool,
    packed: Packed,
    /// The pcluster of zeros, as an extent of all that it decodes to.
    zeros: Option<ZExtent>,
    /// Files whose data others share.
    originals: HashSet<u32>,
    progress: Progress,
}

impl<'a> Packing<'a> {
    fn new(plan: &'a Plan, out: Out<'a>, options: &BuildOptions, control: &'a Control<'a>) -> Result<Self, BuildError> {
        let block_bits = options.block_bits;
        let packed = Packed {
            stored: vec![Stored::Nothing; plan.files.len()],
            packed: Extents::default(),
            tails: Tails::new(options.scratch_dir.clone()),
            end: 0,
            blob_blocks: None,
            shared_chunk_bytes: 0,
            digest: blake3::Hasher::new(),
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
        let is_deflate = options.compression.is_some_and(|spec| spec.method == Method::Deflate);
        let encoded_deflate = encoded && is_deflate;
        let header_len = crate::write::header(options, out)?.blocks << block_bits.bits();
        Ok(Self {
            plan,
            image: Device::new(out.image, out.offset, block_bits, header_len),
            blob: out.blob.map(|blob| Device::new(blob.file, 0, block_bits, 0)),
            chunks: ChunkStore::new(options),
            control,
            block_bits,
            data_align: options.data_align,
            encoded,
            encoded_deflate,
            packed,
            zeros: None,
            originals,
            progress,
        })
    }

    /// Store the pcluster of zeros, if any file has a hole that names it.
    fn write_zeros(&mut self, options: &BuildOptions) -> Result<(), BuildError> {
        let needed = |file: &FilePlan| matches!(&file.storage, Storage::Compressed { holes } if !holes.is_empty());
        let Some(spec) = options.compression.filter(|_| !self.encoded && self.plan.files.iter().any(needed)) else {
            return Ok(());
        };
        let mut block = vec![0; self.block_bits.len() as usize];
        let longest = options.extent_max_len.map_or(ZEROS_MAX_LEN, |len| ZEROS_MAX_LEN.min(len as usize));
        let zeros = vec![0; longest];
        let mut encoder = Encoder::new(&spec)?;
        let mut most = self.block_bits.floor(encoder.fill(&zeros, &mut block)?.consumed as u64) as usize;
        // What is filled may be a little more than what the same room takes at once.
        let produced = loop {
            if most < longest.min(hole::HOLE_MIN_LEN as usize) / 2 {
                return Err(BuildError::Internal(format!("a block does not hold {most} zeros")));
            }
            encoder.reset();
            match encoder.encode(&zeros[..most], &mut block)? {
                Some(produced) => break produced,
                None => most = self.block_bits.floor((most - most / 16) as u64) as usize,
            }
        };
        // Right-aligned, as every pcluster.
        block[produced..].fill(0);
        block.rotate_right(self.block_bits.len() as usize - produced);
        self.packed.digest.update(&xxh3_128(&block).to_le_bytes());
        let pa = self.image.append(&block)?;
        let plen = self.block_bits.len() as u32;
        self.zeros = Some(ZExtent { la: 0, llen: most as u32, pa, plen, kind: HeadKind::Head1, partial: false });
        self.feature(Feature::Fragments);
        Ok(())
    }

    /// Take the next part, in plan order.
    fn append(&mut self, tree: &Tree, part: &Part, packed: PackedPart) -> Result<(), BuildError> {
        if matches!(part.stream, Stream::File(file) if self.packed.is_left_out(file)) {
            return Ok(());
        }
        let (is_first, align) = (self.is_first(part.stream), self.data_align);
        let encoded = self.encoded && matches!(packed.shape, Shape::Extents { .. });
        let home = self.home(part.stream, &packed.shape);
        let device = self.device(home);
        if is_first && !packed.bytes.is_empty() {
            device.align(align);
        }
        if !encoded {
            device.align_to_block();
        }
        let packed = if self.encoded_deflate { self.off_page_starts(packed) } else { packed };
        if !packed.bytes.is_empty() {
            self.packed.digest.update(&packed.digest.to_le_bytes());
        }
        match (packed.shape, part.stream) {
            (Shape::Chunks { chunk_bits, texts }, Stream::File(file)) => {
                self.append_chunks(file, part, chunk_bits, &packed.bytes, &texts)?;
            }
            (Shape::Flat { tail }, Stream::File(file)) => {
                let start = self.device(home).append(&packed.bytes)?;
                self.append_flat(file, part, Blkaddr(start >> self.block_bits.bits()), &packed.bytes, &tail)?;
            }
            (Shape::Extents { list, inline }, stream) => {
                let start = self.image.append(&packed.bytes)?;
                self.append_extents(stream, part.range.start, start, &list, &inline)?;
            }
            (_, Stream::Packed) => {
                return Err(BuildError::Internal("a part of the packed stream is not compressed".to_owned()));
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

    /// Whether nothing of a stream is stored yet.
    fn is_first(&self, stream: Stream) -> bool {
        match stream {
            Stream::File(file) => self.packed.stored[file as usize] == Stored::Nothing,
            Stream::Packed => self.packed.packed.list.is_empty(),
        }
    }

    /// Extents of bytes from `la` on that are stored one behind the other from byte `pa` on.
    fn append_extents(
        &mut self,
        stream: Stream,
        mut la: u64,
        mut pa: u64,
        new: &[PartExtent],
        inline: &[u8],
    ) -> Result<(), BuildError> {
        let block_bits = self.block_bits;
        let tail = if inline.is_empty() { None } else { Some(self.packed.tails.push(inline)?) };
        if tail.is_some() {
            self.feature(Feature::TailPacking);
        }
        let extents = self.extents_mut(stream);
        let first = pa >> block_bits.bits();
        for &PartExtent { llen, plen, kind } in new {
            extents.list.push(ZExtent { la, llen, plen, pa, kind, partial: false });
            la += u64::from(llen);
            pa += u64::from(plen);
        }
        extents.blocks += block_bits.blocks_for(pa - inline.len() as u64) - first;
        extents.inline = tail;
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

    /// See [`Filled::with_deflate_ends_off_page_starts`].
    fn off_page_starts(&self, packed: PackedPart) -> PackedPart {
        let PackedPart { bytes, shape: Shape::Extents { list: extents, inline }, .. } = packed else { return packed };
        let filled = Filled { bytes, extents, inline };
        let filled = filled.with_deflate_ends_off_page_starts(self.image.end, self.block_bits);
        let shape = Shape::Extents { list: filled.extents, inline: filled.inline };
        PackedPart { bytes: filled.bytes, shape, ..packed }
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
        self.packed.left_out.entry(file).or_insert_with(skipped);
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
        (self.packed.end, self.packed.shared_chunk_bytes) = (self.image.end, self.chunks.shared_bytes);
        if let Some(blob) = &self.blob {
            self.packed.blob_blocks = Some(self.block_bits.blocks_for(blob.end));
            self.feature(Feature::DeviceTable);
        }
        if self.encoded && !self.packed.packed.list.is_empty() {
            self.feature(Feature::Addr48Bit);
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
