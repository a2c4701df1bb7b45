//! Data in blocks of the image: text is packed on all cores and appended in order, on the one thread that writes.

pub(crate) mod append;
pub(crate) mod chunks;
pub(crate) mod device;
pub(crate) mod fill;
pub(crate) mod inline_tails;
pub(crate) mod jobs;
pub(crate) mod refill;
pub(crate) mod worker;
pub(crate) mod zero_pcluster;

mod ends;
mod holes;
mod left_ends;
mod plain;
mod recut;
mod refs;
pub(crate) mod reuse;
mod settle;
pub(crate) mod stored;
mod stored_text;
mod text_cache;

use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Algorithm, Blkaddr, BlockBits};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::append::{Appender, Destination};
use crate::pack::chunks::{ChunkRun, ChunkStore, ChunkedText};
use crate::pack::fill::PartExtent;
use crate::pack::inline_tails::Tails;
use crate::pack::jobs::PackJob;
use crate::pack::left_ends::LeftEnds;
use crate::pack::reuse::{ReuseCopier, ReuseTotals};
use crate::pack::stored::ExtentStart;
use crate::pack::text_cache::TextCache;
use crate::pack::worker::{PackOutput, Shape};
use crate::plan::file::{FilePlan, Storage};
use crate::plan::planner::Decided;
use crate::plan::survey::Survey;
use crate::plan::text::TextSource;
use kiln_parallel::crew::Crew;

pub(crate) use stored::{Extents, Stored};

/// Cost of a job beside its bytes.
const JOB_COST: u64 = 4096;

/// Workers that pack.
pub(crate) type PackCrew<'a> = Crew<'a, PackJob, (PackJob, PackOutput), BuildError>;

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
    /// Bytes of the output that were read back.
    pub read_back_bytes: u64,
    /// Bytes of text that were packed.
    pub text_bytes: u64,
    /// Bytes of text that were read from the source.
    pub read_bytes: u64,
}

/// The state of packing, on the one thread that writes.
pub(crate) struct Packing<'a, 'b> {
    survey: &'a Survey,
    context: Context<'a>,
    data: Appender<'b>,
    chunks: ChunkStore,
    block_bits: BlockBits,
    /// Extents are encoded: byte-granular, and holes are of their own kind.
    encoded: bool,
    /// Length of each file in bytes, by index in the plan.
    lens: Vec<u64>,
    /// Stored data of each file, by index in the plan.
    stored: Vec<Stored>,
    /// Extents of the packed inode.
    fragments: Extents,
    tails: Tails,
    features: Vec<Feature>,
    /// A pcluster of zeros for each algorithm, as an extent of all that it decodes to.
    zeros: HashMap<Algorithm, ZExtent>,
    /// Ends of files that are left for the packed inode.
    ends: LeftEnds,
    /// Copies from the base, if there is one.
    copier: Option<ReuseCopier>,
    /// Number of files, in plan order, whose reused data is stored already.
    reused_up_to: usize,
    /// The reused front of the packed inode is stored already.
    has_reused_packed: bool,
    reused: ReuseTotals,
    /// Data of the hot zone is stored, extent by extent, and the rest of those files follows.
    is_rest: bool,
    hot: Range<u64>,
    texts: TextCache,
    /// Bytes of text that were packed.
    text_bytes: u64,
    /// Algorithm that compresses each file, as far as known.
    algorithms: Vec<Option<Algorithm>>,
}

impl<'a, 'b> Packing<'a, 'b> {
    /// Begins with what lies before all other data: pclusters of zeros, and the hot zone of a base.
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub(crate) fn begin(survey: &'a Survey, data: Appender<'b>, context: Context<'a>) -> Result<Self, BuildError> {
        let format = context.format;
        let memory = || Tails::new(format.work.scratch_dir.clone(), format.work.tails_memory());
        let mut packing = Self {
            survey,
            context,
            data,
            chunks: ChunkStore::new(format),
            block_bits: format.block_bits,
            encoded: format.compression.encoded_extents,
            lens: survey.files.iter().map(|file| file.len).collect(),
            stored: vec![Stored::Nothing; survey.files.len()],
            fragments: Extents::default(),
            tails: memory(),
            features: Vec::new(),
            zeros: HashMap::new(),
            ends: LeftEnds::new(memory()),
            copier: survey.reused.base.clone().map(ReuseCopier::new),
            reused_up_to: 0,
            has_reused_packed: false,
            reused: ReuseTotals::default(),
            is_rest: false,
            hot: 0..0,
            texts: TextCache::new(format.work.decoded_memory()),
            text_bytes: 0,
            algorithms: vec![None; survey.files.len()],
        };
        if let Some(base) = &survey.reused.base {
            packing.data.digest.update(&base.facts().identity);
        }
        packing.write_zeros(&survey.files)?;
        let start = packing.data.end();
        packing.hot = start..start;
        packing.reuse_hot()?;
        if survey.ordered_count == 0 {
            packing.begin_rest();
        }
        Ok(packing)
    }

    /// Adds a file of a stream.
    pub(crate) fn add_file(&mut self, file: &FilePlan) {
        self.lens.push(file.len);
        self.stored.push(Stored::Nothing);
        self.algorithms.push(None);
    }

    /// Ends the hot zone: all data up to here comes first.
    pub(crate) fn begin_rest(&mut self) {
        self.hot.end = self.data.end();
        self.is_rest = true;
    }

    /// Gives jobs to the workers, and takes results while there are too many.
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub(crate) fn submit(
        &mut self,
        jobs: impl IntoIterator<Item = PackJob>,
        crew: &mut PackCrew<'_>,
    ) -> Result<(), BuildError> {
        for job in jobs {
            while crew.is_full() {
                self.take_next(crew)?;
            }
            let cost = job.len() + JOB_COST;
            crew.submit(job, cost);
        }
        Ok(())
    }

    /// Takes all results.
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub(crate) fn take_all(&mut self, crew: &mut PackCrew<'_>) -> Result<(), BuildError> {
        while self.take_next(crew)? {}
        Ok(())
    }

    /// Takes the next result, if there is one. Returns whether there was.
    fn take_next(&mut self, crew: &mut PackCrew<'_>) -> Result<bool, BuildError> {
        let Some(result) = crew.take() else { return Ok(false) };
        self.context.control.check()?;
        let (job, output) = result?;
        self.append(&job, output)?;
        Ok(true)
    }

    /// Takes the output of the next job, in plan order.
    fn append(&mut self, job: &PackJob, output: PackOutput) -> Result<(), BuildError> {
        if self.is_rest {
            self.reuse_up_to(job.stream)?;
        }
        self.text_bytes += job.len();
        let destination = Destination::of(job, &output.shape);
        if self.is_first(job.stream) && !output.bytes.is_empty() {
            self.data.device(destination).align(self.context.format.layout.data_align);
        }
        if let TextSource::File(file) = job.stream {
            self.algorithms[file as usize] = job.spec.map(|spec| spec.method.algorithm());
        }
        let output = self.data.adjust_for_position(output, job.spec);
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
            (Shape::Recut { .. }, _) => self.append_recut(job, &output)?,
            (_, TextSource::Fragments) => {
                return Err(BuildError::Internal("a part of the packed inode is not compressed".to_owned()));
            }
        }
        if let (TextSource::File(file), false) = (job.stream, output.left.is_empty()) {
            self.ends.push(file, job.range.end - output.left.len() as u64, &output.left)?;
        }
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

    fn feature(&mut self, feature: Feature) {
        if !self.features.contains(&feature) {
            self.features.push(feature);
        }
    }

    /// Stores what remains when all data has been read: references, and ends of files in the packed inode. Returns the
    /// data, and the outputs.
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub(crate) fn finish(
        mut self,
        decided: &Decided,
        crew: &mut PackCrew<'_>,
    ) -> Result<(StoredData, Appender<'b>), BuildError> {
        let Decided { files, fragments, parts, .. } = decided;
        self.take_all(crew)?;
        self.reuse_all()?;
        // For files of a stream.
        self.write_zeros(files)?;
        self.fragments.list.sort_unstable_by_key(|extent| extent.la);
        if let Some(parts) = parts {
            let late = self.settle(parts, files, crew)?;
            self.submit(late, crew)?;
            self.take_all(crew)?;
        }
        let packed_spec = self.context.format.packing.spec;
        let fragments_len = match packed_spec {
            Some(spec) => self.store_ends(fragments.len(), spec, crew)?,
            None => fragments.len(),
        };
        self.finish_reuse(files)?;
        for member in fragments.members() {
            self.stored[member.file as usize] = Stored::Fragment(member.off);
        }
        let stored = std::mem::take(&mut self.stored).into_iter().zip(files).zip(0..);
        let stored = stored.map(|((stored, file), idx)| match (stored, &file.storage) {
            (_, Storage::LeftOut) => Ok(Stored::Nothing),
            (Stored::Nothing, Storage::Chunks { chunk_bits, .. }) => {
                Ok(Stored::Chunks { chunk_bits: *chunk_bits, runs: Box::default() })
            }
            (Stored::Nothing, Storage::Placed { chunk_bits }) => {
                let runs = self.survey.placed.get(&idx).map_or(&[][..], |runs| runs);
                let runs = Box::new(chunks::of_placed(runs, *chunk_bits, self.block_bits));
                Ok(Stored::Chunks { chunk_bits: *chunk_bits, runs })
            }
            (Stored::Nothing, Storage::Compressed { .. }) => {
                let extents = self.complete(Extents::default(), file.len, file.compression)?;
                Ok(Stored::Compressed(Box::new(extents)))
            }
            (Stored::Compressed(extents), storage) => {
                let extents = self.complete(*extents, file.len, file.compression)?;
                let is_shared = parts.as_ref().is_some_and(|parts| parts.is_shared(TextSource::File(idx)));
                let may_be_flat = *storage == (Storage::Compressed { sparse: false }) && !is_shared;
                let flat = may_be_flat.then(|| self.as_flat(&extents, file.len)).flatten();
                Ok(match (flat, self.context.format.layout.chunk_bits) {
                    (None, _) => Stored::Compressed(Box::new(extents)),
                    (Some(start), None) => Stored::Flat(start),
                    (Some(start), Some(chunk_bits)) => {
                        let run = ChunkRun { first: 0, count: file.len.div_ceil(1 << chunk_bits), device: 0, start };
                        Stored::Chunks { chunk_bits, runs: Box::new(vec![run]) }
                    }
                })
            }
            (stored, _) => Ok(stored),
        });
        let stored = stored.collect::<Result<Vec<_>, BuildError>>()?;
        let fragments = std::mem::take(&mut self.fragments);
        let fragments = self.complete(fragments, fragments_len, packed_spec)?;
        let blob_blocks = self.data.blob_blocks();
        for feature in stored.iter().filter_map(|one| self.feature_of(one)).collect::<HashSet<_>>() {
            self.feature(feature);
        }
        if blob_blocks.is_some() || !self.context.tree.stores().devices.is_empty() {
            self.feature(Feature::DeviceTable);
        }
        let data = StoredData {
            stored,
            fragments,
            fragments_len,
            tails: self.tails,
            blob_blocks,
            shared_chunk_bytes: self.chunks.shared_bytes,
            reused: self.reused,
            hot: self.hot,
            features: self.features,
            read_back_bytes: self.texts.read_back,
            text_bytes: self.text_bytes,
            read_bytes: decided.read_bytes,
        };
        Ok((data, self.data))
    }

    /// Returns the first block of a file that is stored in extents, but uncompressed and contiguous: it needs no index.
    fn as_flat(&self, extents: &Extents, len: u64) -> Option<Blkaddr> {
        let list = &extents.list;
        let is_plain = |extent: &ZExtent| extent.kind == HeadKind::Plain && extent.plen > 0 && !extent.partial;
        let start = list.first()?.pa;
        let fits = extents.inline.is_none() && extents.fragment.is_none() && self.block_bits.within(start) == 0;
        let is_in_order = |extent: &ZExtent| extent.pa - start == extent.la && extent.pa >= start;
        let is_flat = fits
            && list.iter().all(|extent| is_plain(extent) && extent.pa >= start && is_in_order(extent))
            && list.last().is_some_and(|last| last.end() == len);
        is_flat.then(|| Blkaddr(start >> self.block_bits.bits()))
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
