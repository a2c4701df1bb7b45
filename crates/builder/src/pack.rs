//! From the plan to data blocks in the image: parts are packed on all cores, appended in plan order.

pub(crate) mod append;
pub(crate) mod chunks;
pub(crate) mod device;
pub(crate) mod fill;
pub(crate) mod inline_tails;
pub(crate) mod jobs;
pub(crate) mod worker;
pub(crate) mod zero_pcluster;

mod holes;
mod plain;
mod refs;
mod stored;

use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Algorithm, Blkaddr, BlockBits};
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::context::Context;
use crate::context::progress::{Control, Progress};
use crate::error::BuildError;
use crate::error::Skipped;
use crate::layout::lcluster_index::{self, ZExtent};
use crate::options::BuildOptions;
use crate::pack::append::{Appender, Destination};
use crate::pack::chunks::ChunkStore;
use crate::pack::fill::PartExtent;
use crate::pack::inline_tails::Tails;
use crate::pack::jobs::PackJob;
use crate::pack::worker::{PackOutput, PackWorker, Shape};
use crate::plan::Plan;
use crate::plan::analysis::skippable;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;
use crate::tree::Tree;
use kiln_parallel::ordered::{self, Costed};

pub(crate) use stored::{Extents, Stored};

/// What a job costs beside its bytes.
const JOB_COST: u64 = 4096;

/// The data of an image.
pub(crate) struct StoredData {
    /// By index of the plan's files.
    pub stored: Vec<Stored>,
    /// The packed stream.
    pub packed: Extents,
    /// Its length in bytes, ends of files included.
    pub packed_len: u64,
    /// Inline tails.
    pub tails: Tails,
    /// Blocks of the extra device, if there is one.
    pub blob_blocks: Option<u64>,
    /// Bytes of chunks that are stored once though they occur several times.
    pub shared_chunk_bytes: u64,
    /// Features in use.
    pub features: Vec<Feature>,
    /// Files that could not be read and are left out; why, until it is told.
    pub left_out: BTreeMap<u32, Option<Skipped>>,
    /// Files that have changed, but are stored.
    pub changed: BTreeMap<u32, Skipped>,
}

impl StoredData {
    /// Whether a file turned out to be unreadable.
    pub(crate) fn is_left_out(&self, file: u32) -> bool {
        self.left_out.contains_key(&file)
    }
}

/// Store the data of all files of `plan` at the end of `data`.
///
/// # Errors
/// As [`crate::build`].
pub(crate) fn pack(plan: &Plan, data: &mut Appender<'_>, context: Context<'_>) -> Result<StoredData, BuildError> {
    let Context { tree: _, options, control: _ } = context;
    let mut packing = Packing::new(plan, data, context);
    packing.write_zeros(options)?;
    packing.run(jobs::jobs(plan, options), &plan.packed, context)?;
    if let Some(streams) = &plan.streams {
        let late = packing.resolve(streams)?;
        packing.run(late.into_iter(), &plan.packed, context)?;
    }
    if let Some(spec) = plan.fragment_compression.filter(|_| !packing.ends.is_empty()) {
        let ends = packing.place_ends(options)?;
        packing.run(jobs::ends(&ends, spec), &ends, context)?;
    }
    packing.finish()
}

/// The end of a file, left for the packed stream.
struct LeftEnd {
    file: u32,
    /// First byte of the file that is left.
    start: u64,
    len: u64,
}

/// The state of packing, on the one thread that writes.
struct Packing<'a, 'b> {
    plan: &'a Plan,
    data: &'a mut Appender<'b>,
    chunks: ChunkStore,
    control: &'a Control<'a>,
    block_bits: BlockBits,
    /// Byte addresses where the data of files may start are multiples of this.
    data_align: u64,
    /// Extents are encoded: byte-granular, and holes are of their own kind.
    encoded: bool,
    packed: StoredData,
    /// A pcluster of zeros for each algorithm, as an extent of all that it decodes to.
    zeros: HashMap<Algorithm, ZExtent>,
    /// Files whose data others share.
    originals: HashSet<u32>,
    /// What files leave for the packed stream, in plan order.
    ends: Vec<LeftEnd>,
    progress: Progress,
}

impl<'a, 'b> Packing<'a, 'b> {
    fn new(plan: &'a Plan, data: &'a mut Appender<'b>, context: Context<'a>) -> Self {
        let Context { options, control, .. } = context;
        let block_bits = options.block_bits;
        let packed = StoredData {
            stored: vec![Stored::Nothing; plan.files.len()],
            packed: Extents::default(),
            packed_len: plan.packed.len(),
            tails: Tails::new(options.scratch_dir.clone(), options.tails_memory()),
            blob_blocks: None,
            shared_chunk_bytes: 0,
            features: Vec::new(),
            left_out: BTreeMap::new(),
            changed: BTreeMap::new(),
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
        Self {
            plan,
            data,
            chunks: ChunkStore::new(options),
            control,
            block_bits,
            data_align: options.data_align,
            encoded: options.encoded_extents,
            packed,
            zeros: HashMap::new(),
            originals,
            ends: Vec::new(),
            progress,
        }
    }

    /// Pack parts on all cores, those of the packed stream from `packed`, and append them in order.
    fn run(
        &mut self,
        parts: impl Iterator<Item = PackJob> + Send,
        packed: &FragmentStream,
        context: Context<'_>,
    ) -> Result<(), BuildError> {
        let Context { tree, options, .. } = context;
        let (plan, control) = (self.plan, self.control);
        let worker = || {
            let mut packer = PackWorker::new(plan, packed, context);
            Ok(move |part: PackJob| {
                let packed = skippable(packer.pack(&part), options)?;
                Ok((part, packed))
            })
        };
        let jobs = parts.map(|part| Costed { cost: part.range.end - part.range.start + JOB_COST, job: part });
        ordered::run(options.threads, options.backlog(), jobs, worker, |(part, packed)| {
            control.check()?;
            match packed {
                Ok(packed) => self.append(tree, &part, packed),
                Err(error) => self.leave_out(tree, part.stream, error),
            }
        })
    }

    /// Take the next part, in plan order.
    fn append(&mut self, tree: &Tree, part: &PackJob, packed: PackOutput) -> Result<(), BuildError> {
        if matches!(part.stream, TextSource::File(file) if self.packed.is_left_out(file)) {
            return Ok(());
        }
        let home = Destination::of(self.plan, part.stream, &packed.shape);
        if self.is_first(part.stream) && !packed.bytes.is_empty() {
            self.data.device(home).align(self.data_align);
        }
        let packed = self.data.adjust_for_position(packed, self.plan.compression_of(part.stream));
        match (&packed.shape, part.stream) {
            (Shape::Chunks { chunk_bits, texts }, TextSource::File(file)) => {
                self.data.hash(&packed);
                self.append_chunks(file, part, *chunk_bits, &packed.bytes, texts)?;
            }
            (Shape::Flat { tail }, TextSource::File(file)) => {
                let start = self.data.append(&packed, home)?;
                self.append_flat(file, part, Blkaddr(start >> self.block_bits.bits()), &packed.bytes, tail)?;
            }
            (Shape::Extents { list, inline }, stream) => {
                let start = self.data.append(&packed, home)?;
                self.append_extents(stream, part.range.start, start, list, inline)?;
            }
            (_, TextSource::Fragments) => {
                return Err(BuildError::Internal("a part of the packed stream is not compressed".to_owned()));
            }
        }
        if let (TextSource::File(file), 1..) = (part.stream, packed.left) {
            let len = packed.left as u64;
            self.ends.push(LeftEnd { file, start: part.range.end - len, len });
        }
        for (file, error) in packed.amiss.changed {
            let path = || tree.path(self.plan.files[file as usize].node);
            self.packed.changed.entry(file).or_insert_with(|| Skipped { path: path(), error });
        }
        for (file, error) in packed.amiss.unreadable {
            self.leave_out(tree, TextSource::File(file), error)?;
        }
        let done = self.progress.done_bytes + part.range.end - part.range.start;
        self.progress.done_bytes = done.min(self.progress.total_bytes);
        (self.control.progress)(self.progress);
        Ok(())
    }

    /// Whether nothing of a stream is stored yet.
    fn is_first(&self, stream: TextSource) -> bool {
        match stream {
            TextSource::File(file) => self.packed.stored[file as usize] == Stored::Nothing,
            TextSource::Fragments => self.packed.packed.list.is_empty(),
        }
    }

    /// Extents of bytes from `la` on that are stored one behind the other from byte `pa` on.
    fn append_extents(
        &mut self,
        stream: TextSource,
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

    /// Give the ends of files their places in the packed stream, behind the files that are in it. Returns that part of it.
    fn place_ends(&mut self, options: &BuildOptions) -> Result<FragmentStream, BuildError> {
        let mut stream = FragmentStream::behind(self.packed.packed_len);
        for LeftEnd { file, start, len } in std::mem::take(&mut self.ends) {
            let off = stream.push_end(file, start, len);
            if start == 0 {
                self.packed.stored[file as usize] = Stored::Fragment(off);
                continue;
            }
            let extents = self.extents_mut(TextSource::File(file));
            let pa = extents.list.last().map_or(0, |extent| extent.pa + u64::from(extent.plen));
            let (llen, kind) = (len as u32, HeadKind::Head1);
            extents.list.push(ZExtent { la: start, llen, plen: 0, pa, kind, partial: false });
            extents.fragment = Some(off);
        }
        self.feature(Feature::Fragments);
        if options.packs_directories() {
            stream.pad(lcluster_index::pack_start(stream.len(), self.block_bits)?);
        }
        self.packed.packed_len = stream.len();
        Ok(stream)
    }

    /// The extents of a stream that is compressed.
    fn extents_mut(&mut self, stream: TextSource) -> &mut Extents {
        let TextSource::File(file) = stream else { return &mut self.packed.packed };
        let stored = &mut self.packed.stored[file as usize];
        if !matches!(stored, Stored::Compressed(_)) {
            *stored = Stored::Compressed(Box::default());
        }
        match stored {
            Stored::Compressed(extents) => extents,
            _ => unreachable!("just made so"),
        }
    }

    fn leave_out(&mut self, tree: &Tree, stream: TextSource, error: BuildError) -> Result<(), BuildError> {
        let is_shared = |file| {
            let streams = self.plan.streams.as_ref();
            self.originals.contains(&file) || streams.is_some_and(|streams| streams.checks.has(file))
        };
        // What has changed can be had where nothing depends on what it was.
        let is_late = |file| error.is_change() && !self.plan.apart.contains_key(&file);
        let file = match stream {
            TextSource::File(file) if !is_shared(file) && !is_late(file) => file,
            // Others were to share its data, which cannot be had any more, or a digest tells of it.
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
    fn finish(mut self) -> Result<StoredData, BuildError> {
        for member in self.plan.packed.members() {
            self.packed.stored[member.file as usize] = Stored::Fragment(member.off);
        }
        for (idx, file) in self.plan.files.iter().enumerate() {
            if self.packed.is_left_out(idx as u32) {
                self.packed.stored[idx] = Stored::Nothing;
                continue;
            }
            let stored = std::mem::replace(&mut self.packed.stored[idx], Stored::Nothing);
            self.packed.stored[idx] = match (stored, &file.storage) {
                (Stored::Nothing, Storage::Chunks { chunk_bits, .. }) => {
                    Stored::Chunks { chunk_bits: *chunk_bits, runs: Box::default() }
                }
                (Stored::Nothing, Storage::Compressed { .. }) => {
                    self.complete(Box::default(), file.len, file.compression)?
                }
                (Stored::Compressed(extents), _) => self.complete(extents, file.len, file.compression)?,
                (stored, _) => stored,
            };
            match self.packed.stored[idx] {
                Stored::Chunks { .. } => self.feature(Feature::ChunkedFile),
                Stored::Fragment(_) => self.feature(Feature::Fragments),
                Stored::Compressed(_) if self.encoded => self.feature(Feature::Addr48Bit),
                _ => {}
            }
        }
        self.packed.shared_chunk_bytes = self.chunks.shared_bytes;
        self.packed.blob_blocks = self.data.blob_blocks();
        if self.packed.blob_blocks.is_some() {
            self.feature(Feature::DeviceTable);
        }
        let packed = Box::new(std::mem::take(&mut self.packed.packed));
        if let Stored::Compressed(extents) =
            self.complete(packed, self.packed.packed_len, self.plan.fragment_compression)?
        {
            self.packed.packed = *extents;
        }
        Ok(self.packed)
    }
}
