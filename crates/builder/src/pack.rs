//! Packing of the plan's data into blocks of the image: parts are packed on all cores and appended in plan order.

pub(crate) mod append;
pub(crate) mod chunks;
pub(crate) mod device;
pub(crate) mod fill;
pub(crate) mod inline_tails;
pub(crate) mod jobs;
pub(crate) mod refill;
pub(crate) mod worker;
pub(crate) mod zero_pcluster;

mod holes;
mod plain;
mod refs;
pub(crate) mod reuse;
pub(crate) mod stored;

use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Algorithm, Blkaddr, BlockBits};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::context::Context;
use crate::context::progress::Progress;
use crate::error::BuildError;
use crate::error::Skipped;
use crate::layout::lcluster_index::{self, ZExtent};
use crate::pack::append::{Appender, Destination};
use crate::pack::chunks::{ChunkStore, ChunkedText};
use crate::pack::fill::PartExtent;
use crate::pack::inline_tails::Tails;
use crate::pack::jobs::{PackJob, Turn};
use crate::pack::reuse::{ReuseCopier, ReuseTotals};
use crate::pack::stored::ExtentStart;
use crate::pack::worker::{PackOutput, PackWorker, Shape};
use crate::plan::analysis::skippable;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;
use crate::plan::{PackSources, Plan};
use kiln_parallel::ordered::{self, Costed};

pub(crate) use stored::{Extents, Stored};

/// Cost of a job beside its bytes.
const JOB_COST: u64 = 4096;

/// The data of an image.
pub(crate) struct StoredData {
    /// Stored data of each file, by index in the plan.
    pub stored: Vec<Stored>,
    /// Places of the packed inode's text, except directories.
    pub fragments: Extents,
    /// Its length in bytes, ends of files included.
    pub fragments_len: u64,
    /// Inline tails.
    pub tails: Tails,
    /// Blocks of the extra device, if there is one.
    pub blob_blocks: Option<u64>,
    /// Bytes of chunks that are stored once though they occur several times: the repetitions.
    pub shared_chunk_bytes: u64,
    /// Data that was reused from a base.
    pub reused: ReuseTotals,
    /// Bytes of the image that hold the hot zone, at the front of the data.
    pub hot: Range<u64>,
    /// Features in use.
    pub features: Vec<Feature>,
    /// Files that could not be read and are left out.
    pub left_out: BTreeSet<u32>,
}

impl StoredData {
    /// Returns whether a file turned out to be unreadable.
    pub(crate) fn is_left_out(&self, file: u32) -> bool {
        self.left_out.contains(&file)
    }
}

/// Stores the data of all files of `plan` at the end of `data`, which is returned as well.
///
/// # Errors
/// Those of [`crate::build`].
pub(crate) fn pack<'b>(
    plan: &Plan,
    sources: PackSources,
    data: Appender<'b>,
    context: Context<'_>,
) -> Result<(StoredData, Appender<'b>), BuildError> {
    let format = context.format;
    let mut packing = Packing::new(plan, &sources, data, context);
    if let Some(base) = &sources.reused.base {
        packing.data.digest.update(&base.facts().identity);
    }
    packing.write_zeros()?;
    let start = packing.data.end();
    packing.reuse_hot()?;
    if plan.ordered_count > 0 {
        packing.run(jobs::jobs_of(Turn::First, plan, format), &sources.fragments)?;
    }
    (packing.hot, packing.turn) = (start..packing.data.end(), Turn::Rest);
    packing.run(jobs::jobs_of(Turn::Rest, plan, format), &sources.fragments)?;
    packing.reuse_up_to(TextSource::Fragments)?;
    packing.fragments.list.sort_unstable_by_key(|extent| extent.la);
    if let Some(parts) = &plan.parts {
        let late = packing.resolve(parts)?;
        packing.run(late.into_iter(), &sources.fragments)?;
    }
    if let Some(spec) = plan.fragment_compression.filter(|_| !packing.ends.is_empty()) {
        let ends = packing.place_ends()?;
        packing.run(jobs::ends(&ends, spec), &ends)?;
    }
    packing.finish()
}

/// The end of a file, left for the packed inode.
struct LeftEnd {
    file: u32,
    /// First byte of the file that is left.
    start: u64,
    len: u64,
}

/// The state of packing, on the one thread that writes.
struct Packing<'a, 'b> {
    plan: &'a Plan,
    sources: &'a PackSources,
    context: Context<'a>,
    data: Appender<'b>,
    chunks: ChunkStore,
    block_bits: BlockBits,
    /// Extents are encoded: byte-granular, and holes are of their own kind.
    encoded: bool,
    /// Stored data of each file, by index in the plan.
    stored: Vec<Stored>,
    /// Extents of the packed inode.
    fragments: Extents,
    /// Length of the packed inode so far.
    fragments_len: u64,
    tails: Tails,
    features: Vec<Feature>,
    /// Files that could not be read, with the reasons.
    left_out: BTreeMap<u32, BuildError>,
    /// Files that have changed, with the changes.
    changed: BTreeMap<u32, BuildError>,
    /// A pcluster of zeros for each algorithm, as an extent of all that it decodes to.
    zeros: HashMap<Algorithm, ZExtent>,
    /// Files whose data others share.
    originals: HashSet<u32>,
    /// Ends of files that are left for the packed inode, in plan order.
    ends: Vec<LeftEnd>,
    /// Copies from the base, if there is one.
    copier: Option<ReuseCopier>,
    /// Number of files, in plan order, whose reused data is stored already, and the packed inode after them.
    reused_up_to: usize,
    reused: ReuseTotals,
    turn: Turn,
    hot: Range<u64>,
    progress: Progress,
}

impl<'a, 'b> Packing<'a, 'b> {
    fn new(plan: &'a Plan, sources: &'a PackSources, data: Appender<'b>, context: Context<'a>) -> Self {
        let format = context.format;
        let stored = |file: &&FilePlan| {
            use Storage::{Duplicate, LeftOut, Placed, Reused};
            !matches!(file.storage, Duplicate(_) | LeftOut | Placed { .. } | Reused { .. })
        };
        let referred = plan.parts.iter().flat_map(|parts| &parts.plan.refs).map(|one| one.len).sum::<u64>();
        let total_bytes = plan.files.iter().filter(stored).map(|file| file.len).sum::<u64>() - referred;
        let original = |file: &FilePlan| match file.storage {
            Storage::Duplicate(original) => Some(original),
            _ => None,
        };
        Self {
            plan,
            sources,
            context,
            data,
            chunks: ChunkStore::new(format),
            block_bits: format.block_bits,
            encoded: format.compression.encoded_extents,
            stored: vec![Stored::Nothing; plan.files.len()],
            fragments: Extents::default(),
            fragments_len: plan.fragments_len,
            tails: Tails::new(format.work.scratch_dir.clone(), format.work.tails_memory()),
            features: Vec::new(),
            left_out: BTreeMap::new(),
            changed: BTreeMap::new(),
            zeros: HashMap::new(),
            originals: plan.files.iter().filter_map(original).collect(),
            ends: Vec::new(),
            copier: sources.reused.base.clone().map(ReuseCopier::new),
            reused_up_to: 0,
            reused: ReuseTotals::default(),
            turn: Turn::First,
            hot: 0..0,
            progress: Progress { done_bytes: 0, total_bytes },
        }
    }

    /// Runs jobs on all cores, those of the packed inode with text from `fragments`, and appends their results in
    /// order.
    fn run(
        &mut self,
        jobs: impl Iterator<Item = PackJob> + Send,
        fragments: &FragmentStream,
    ) -> Result<(), BuildError> {
        let (plan, sources, context) = (self.plan, self.sources, self.context);
        let Context { format, control, .. } = context;
        let worker = || {
            let mut worker = PackWorker::new(plan, sources, fragments, context);
            Ok(move |job: PackJob| {
                let output = skippable(worker.pack(&job), format)?;
                Ok((job, output))
            })
        };
        let jobs = jobs.map(|job| Costed { cost: job.range.end - job.range.start + JOB_COST, job });
        ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(job, output)| {
            control.check()?;
            match output {
                Ok(output) => self.append(&job, output),
                Err(error) => self.leave_out(job.stream, error),
            }
        })
    }

    /// Takes the output of the next job, in plan order.
    fn append(&mut self, job: &PackJob, output: PackOutput) -> Result<(), BuildError> {
        if matches!(job.stream, TextSource::File(file) if self.left_out.contains_key(&file)) {
            return Ok(());
        }
        // Data of the hot zone is stored already, extent by extent; the rest of those files follows.
        if self.turn == Turn::Rest {
            self.reuse_up_to(job.stream)?;
        }
        let destination = Destination::of(self.plan, job.stream, &output.shape);
        if self.is_first(job.stream) && !output.bytes.is_empty() {
            self.data.device(destination).align(self.context.format.layout.data_align);
        }
        let output = self.data.adjust_for_position(output, self.plan.compression_of(job.stream));
        match (&output.shape, job.stream) {
            (Shape::Chunks { chunk_bits, texts }, TextSource::File(file)) => {
                self.data.hash(&output);
                let chunks = ChunkedText { chunk_bits: *chunk_bits, bytes: &output.bytes, texts };
                self.append_chunks(file, job, chunks)?;
            }
            (Shape::Flat { tail }, TextSource::File(file)) => {
                let start = Blkaddr(self.data.append(&output, destination)? >> self.block_bits.bits());
                self.append_flat(file, job, (!output.bytes.is_empty()).then_some(start), tail)?;
            }
            (Shape::Extents { list, inline }, stream) => {
                let at = ExtentStart { la: job.range.start, pa: self.data.append(&output, destination)? };
                self.append_extents(stream, at, list, inline)?;
            }
            (_, TextSource::Fragments) => {
                return Err(BuildError::Internal("a part of the packed inode is not compressed".to_owned()));
            }
        }
        if let (TextSource::File(file), 1..) = (job.stream, output.left) {
            let len = output.left as u64;
            self.ends.push(LeftEnd { file, start: job.range.end - len, len });
        }
        for (file, error) in output.amiss.changed {
            self.changed.entry(file).or_insert(error);
        }
        for (file, error) in output.amiss.unreadable {
            self.leave_out(TextSource::File(file), error)?;
        }
        let done = self.progress.done_bytes + job.range.end - job.range.start;
        self.progress.done_bytes = done.min(self.progress.total_bytes);
        (self.context.control.progress)(self.progress);
        Ok(())
    }

    /// Returns whether nothing of a stream is stored yet.
    fn is_first(&self, stream: TextSource) -> bool {
        match stream {
            TextSource::File(file) => self.stored[file as usize] == Stored::Nothing,
            TextSource::Fragments => self.fragments.list.is_empty(),
        }
    }

    /// Appends extents that are contiguous from `at` on.
    fn append_extents(
        &mut self,
        stream: TextSource,
        at: ExtentStart,
        new: &[PartExtent],
        inline: &[u8],
    ) -> Result<(), BuildError> {
        let block_bits = self.block_bits;
        let tail = if inline.is_empty() { None } else { Some(self.tails.push(inline)?) };
        if tail.is_some() {
            self.feature(Feature::TailPacking);
        }
        self.extents_mut(stream).extend(at, new, tail, block_bits);
        Ok(())
    }

    /// Gives the ends of files their places in the packed inode, behind the files in it. Returns that part of it.
    fn place_ends(&mut self) -> Result<FragmentStream, BuildError> {
        let mut stream = FragmentStream::behind(self.fragments_len);
        for LeftEnd { file, start, len } in std::mem::take(&mut self.ends) {
            let off = stream.push_end(file, start, len);
            if start == 0 {
                self.stored[file as usize] = Stored::Fragment(off);
                continue;
            }
            let extents = self.extents_mut(TextSource::File(file));
            let pa = extents.list.last().map_or(0, |extent| extent.pa + u64::from(extent.plen));
            let (llen, kind) = (len as u32, HeadKind::Head1);
            extents.list.push(ZExtent { la: start, llen, plen: 0, pa, kind, partial: false });
            extents.fragment = Some(off);
        }
        self.feature(Feature::Fragments);
        if self.context.format.packing.directories {
            stream.pad(lcluster_index::pack_start(stream.len(), self.block_bits)?);
        }
        self.fragments_len = stream.len();
        Ok(stream)
    }

    /// Returns the extents of a compressed stream.
    fn extents_mut(&mut self, stream: TextSource) -> &mut Extents {
        let TextSource::File(file) = stream else { return &mut self.fragments };
        let stored = &mut self.stored[file as usize];
        if !matches!(stored, Stored::Compressed(_)) {
            *stored = Stored::Compressed(Box::default());
        }
        match stored {
            Stored::Compressed(extents) => extents,
            _ => unreachable!("just made so"),
        }
    }

    fn leave_out(&mut self, stream: TextSource, error: BuildError) -> Result<(), BuildError> {
        let is_shared = |file| self.originals.contains(&file) || self.sources.parts.has(file);
        // A changed file can be stored if nothing depends on its former contents.
        let is_late = |file| error.is_change() && !self.plan.apart.contains(&file);
        let file = match stream {
            TextSource::File(file) if !is_shared(file) && !is_late(file) => file,
            // Others were to share its data, which is gone, or a digest describes it.
            _ => return Err(error),
        };
        self.stored[file as usize] = Stored::Nothing;
        self.left_out.entry(file).or_insert(error);
        Ok(())
    }

    fn feature(&mut self, feature: Feature) {
        if !self.features.contains(&feature) {
            self.features.push(feature);
        }
    }

    /// Records files that were left out or have changed, and completes files that end in a hole.
    fn finish(mut self) -> Result<(StoredData, Appender<'b>), BuildError> {
        self.finish_reuse()?;
        for member in self.sources.fragments.members() {
            self.stored[member.file as usize] = Stored::Fragment(member.off);
        }
        let stored = std::mem::take(&mut self.stored).into_iter().zip(&self.plan.files).zip(0..);
        let stored = stored.map(|((stored, file), idx)| match (stored, &file.storage) {
            _ if self.left_out.contains_key(&idx) => Ok(Stored::Nothing),
            (Stored::Nothing, Storage::Chunks { chunk_bits, .. }) => {
                Ok(Stored::Chunks { chunk_bits: *chunk_bits, runs: Box::default() })
            }
            (Stored::Nothing, Storage::Placed { chunk_bits }) => {
                let runs = self.sources.placed.get(&idx).map_or(&[][..], |runs| runs);
                let runs = Box::new(chunks::of_placed(runs, *chunk_bits, self.block_bits));
                Ok(Stored::Chunks { chunk_bits: *chunk_bits, runs })
            }
            (Stored::Nothing, Storage::Compressed { .. }) => {
                let extents = self.complete(Extents::default(), file.len, file.compression)?;
                Ok(Stored::Compressed(Box::new(extents)))
            }
            (Stored::Compressed(extents), _) => {
                Ok(Stored::Compressed(Box::new(self.complete(*extents, file.len, file.compression)?)))
            }
            (stored, _) => Ok(stored),
        });
        let stored = stored.collect::<Result<Vec<_>, BuildError>>()?;
        let fragments = std::mem::take(&mut self.fragments);
        let fragments = self.complete(fragments, self.fragments_len, self.plan.fragment_compression)?;
        let blob_blocks = self.data.blob_blocks();
        for feature in stored.iter().filter_map(|one| self.feature_of(one)).collect::<HashSet<_>>() {
            self.feature(feature);
        }
        if blob_blocks.is_some() || !self.context.tree.stores().devices.is_empty() {
            self.feature(Feature::DeviceTable);
        }
        let Context { tree, ledger, .. } = self.context;
        let skipped = |file: u32, error| {
            let node = self.plan.files[file as usize].node;
            (node, Skipped { path: tree.path(node), error })
        };
        let left_out = self.left_out.keys().copied().collect();
        self.left_out.into_iter().for_each(|(file, error)| ledger.leave_out(skipped(file, error).1));
        for (node, one) in self.changed.into_iter().map(|(file, error)| skipped(file, error)) {
            ledger.change(node, one);
        }
        let data = StoredData {
            stored,
            fragments,
            fragments_len: self.fragments_len,
            tails: self.tails,
            blob_blocks,
            shared_chunk_bytes: self.chunks.shared_bytes,
            reused: self.reused,
            hot: self.hot,
            features: self.features,
            left_out,
        };
        Ok((data, self.data))
    }

    /// Returns the feature that a file stored like this needs.
    fn feature_of(&self, stored: &Stored) -> Option<Feature> {
        match stored {
            Stored::Chunks { .. } => Some(Feature::ChunkedFile),
            Stored::Fragment(_) => Some(Feature::Fragments),
            Stored::Compressed(_) if self.encoded => Some(Feature::Addr48Bit),
            _ => None,
        }
    }
}
