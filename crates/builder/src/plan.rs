//! What is stored how, and in which order: decided in plain-text coordinates, before anything is compressed.
//!
//! Files stand in walk order, but for those that a caller puts first. What the decisions need (digests of files of equal
//! length, holes, samples of large files) is gathered on all cores; the decisions themselves are taken in order.

pub(crate) mod analysis;
pub(crate) mod dedupe;
pub(crate) mod file;
pub(crate) mod fragments;
pub(crate) mod hole;
pub(crate) mod method_selection;
pub(crate) mod text;

use kiln_codec::Spec;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::error::Skipped;
use crate::inodes::Inodes;
use crate::layout::lcluster_index;
use crate::options::{BuildOptions, Dedupe};
use crate::plan::analysis::{ANALYSIS_COST, Analysis, AnalysisRequest, skippable};
use crate::plan::dedupe::input::{Compressed, Deduplication, FileChunks};
use crate::plan::dedupe::revalidation::ContentChecks;
use crate::plan::dedupe::{Candidates, Seen};
use crate::plan::file::read_compat;
use crate::plan::file::{FilePlan, Storage, storage};
use crate::plan::fragments::{FragmentCandidate, FragmentStream};
use crate::plan::hole::Holes;
use crate::plan::text::{TextSource, segment_len};
use crate::tree::{ContentError, Kind, NodeId};
use kiln_parallel::ordered::{self, Costed};

/// Files that are to share nothing with others, and why.
pub(crate) type Apart = HashMap<NodeId, Skipped>;

/// Everything that will be stored.
pub(crate) struct Plan {
    /// Regular files: those with an order of their own, then the others in walk order.
    pub files: Vec<FilePlan>,
    /// Small files that are compressed together.
    pub packed: FragmentStream,
    /// How they are.
    pub fragment_compression: Option<Spec>,
    /// The ends of files that are compressed like this go there, too.
    pub tail_compression: Option<Spec>,
    /// Parts of files that are stored once, if they are looked for.
    pub streams: Option<Deduplication>,
    /// Of files that others equal.
    pub originals: ContentChecks,
    /// Place in `files` of each node, by node.
    file_of_node: Vec<Option<FileIdx>>,
    /// Holes of the files that have some.
    holes: HashMap<u32, Holes>,
    /// Bytes of the holes of the files of which zeros are stored instead.
    pub filled_holes: HashMap<u32, u64>,
    /// Entropy in bits per byte of the files whose samples do not compress.
    pub entropies: HashMap<u32, f64>,
    /// Inputs that cannot be read and are left out.
    pub left_out: Vec<Skipped>,
    /// Files that share nothing with others: those that were to be apart, and those that have changed, with how.
    pub apart: BTreeMap<u32, Option<Skipped>>,
}

/// Place of a file in the plan, plus one, so that none takes no room.
#[derive(Clone, Copy)]
struct FileIdx(NonZeroU32);

/// What analyses tell of files in relation to each other.
#[derive(Default)]
struct Analyses {
    /// Files that may go into the packed stream, in plan order.
    small: Vec<FragmentCandidate>,
    /// Chunks of files that fit one window.
    chunks: FileChunks,
    /// Files that may be the same.
    pairs: Vec<[u32; 2]>,
}

impl Plan {
    /// Plan how to store every file of `tree`, those of `apart` without sharing anything.
    ///
    /// # Errors
    /// The first file that cannot be read, unless such files are to be skipped.
    pub(crate) fn make(inodes: &Inodes, apart: &Apart, context: Context<'_>) -> Result<Self, BuildError> {
        let Context { tree, options, control: _ } = context;
        let mut files = Vec::new();
        let mut file_of_node = vec![None; tree.len()];
        let mut add = |node: NodeId, files: &mut Vec<FilePlan>| match tree.node(node).kind {
            Kind::File { len, .. } if !inodes.is_left_out[node.idx()] && file_of_node[node.idx()].is_none() => {
                // There are fewer files than nodes, and no more of these than numbers.
                file_of_node[node.idx()] = NonZeroU32::new(files.len() as u32 + 1).map(FileIdx);
                let storage = if len == 0 { Storage::Empty } else { Storage::Flat };
                let (inode_len, compression) = (inodes.inode_len(node) as u32, options.compression_of(node));
                files.push(FilePlan { node, len, inode_len, storage, compression });
            }
            _ => {}
        };
        options.order.iter().filter(|node| node.idx() < tree.len()).for_each(|&node| add(node, &mut files));
        let ordered_count = files.len() as u32;
        tree.walk().for_each(|node| add(node, &mut files));
        let fragment_compression = options.packed_spec();
        let (packed, left_out) = (FragmentStream::default(), Vec::new());
        let tail_compression = options.compression.filter(|_| options.packs_ends());
        let originals = ContentChecks::default();
        let mut plan = Self {
            files,
            packed,
            fragment_compression,
            tail_compression,
            streams: None,
            originals,
            file_of_node,
            holes: HashMap::new(),
            filled_holes: HashMap::new(),
            entropies: HashMap::new(),
            left_out,
            apart: BTreeMap::new(),
        };
        plan.apart = apart.keys().filter_map(|node| Some((plan.file_of(*node)?, None))).collect();
        let Analyses { small, chunks, pairs } = plan.analysis(context)?;
        plan.confirm(pairs, context)?;
        let is_packable = |file: u32| small.binary_search_by_key(&file, |candidate| candidate.file).is_ok();
        method_selection::choose(&mut plan.files, is_packable, context)?;
        plan.pack(small, ordered_count, options)?;
        if options.dedupes_parts() {
            let Plan { files, holes, apart, packed, .. } = &plan;
            let compressed = Compressed { files, holes, apart, packed };
            plan.streams = Some(Deduplication::plan(&compressed, chunks, context)?);
        }
        Ok(plan)
    }

    /// Lay out the packed stream.
    fn pack(
        &mut self,
        mut small: Vec<FragmentCandidate>,
        ordered_count: u32,
        options: &BuildOptions,
    ) -> Result<(), BuildError> {
        small.retain(|candidate| {
            let file = &self.files[candidate.file as usize];
            file.compression == options.compression && matches!(file.storage, Storage::Compressed { .. })
        });
        let len = |file: u32| self.files[file as usize].len;
        self.packed = FragmentStream::of(&mut small, ordered_count, len);
        if options.packs_directories() || self.tail_compression.is_some() {
            // What follows may lie elsewhere on the disk than the files before it.
            self.packed.pad(lcluster_index::pack_start(self.packed.len(), options.block_bits)?);
        }
        for member in self.packed.members() {
            self.files[member.file as usize].storage = Storage::Fragment;
        }
        Ok(())
    }

    /// Holes of a file, as it is to be stored.
    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        self.holes.get(&file).map_or(&[], |holes| holes)
    }

    /// Place in `files` of a node, if it is among them.
    pub(crate) fn file_of(&self, node: NodeId) -> Option<u32> {
        self.file_of_node[node.idx()].map(|idx| idx.0.get() - 1)
    }

    /// Forget what only packing needs.
    pub(crate) fn packing_is_done(&mut self) {
        self.packed.forget_members();
        self.originals = ContentChecks::default();
        if let Some(streams) = &mut self.streams {
            streams.checks = ContentChecks::default();
        }
    }

    /// What was seen of files that share data.
    pub(crate) fn checks(&self) -> impl Iterator<Item = &ContentChecks> {
        [&self.originals].into_iter().chain(self.streams.as_ref().map(|streams| &streams.checks))
    }

    /// Whether a stream is a file that is stored in chunks, whatever packing it shows.
    pub(crate) fn is_in_chunks(&self, stream: TextSource) -> bool {
        match stream {
            TextSource::File(file) => matches!(self.files[file as usize].storage, Storage::Chunks { .. }),
            TextSource::Fragments => false,
        }
    }

    /// How a stream is compressed, if it is.
    pub(crate) fn compression_of(&self, stream: TextSource) -> Option<Spec> {
        match stream {
            TextSource::File(file) => self.files[file as usize].compression,
            TextSource::Fragments => self.fragment_compression,
        }
    }

    /// Whether the end of a file may go to the packed stream.
    pub(crate) fn packs_end(&self, stream: TextSource) -> bool {
        self.tail_compression.is_some() && self.compression_of(stream) == self.tail_compression
    }

    /// Find out on all cores what the decisions need, and decide how each file is stored if it is stored alone.
    fn analysis(&mut self, context: Context<'_>) -> Result<Analyses, BuildError> {
        let Context { tree, options, control: _ } = context;
        let apart = &self.apart;
        let mut same_len = HashMap::<u64, u32>::new();
        for file in &self.files {
            *same_len.entry(file.len).or_default() += 1;
        }
        let wanted = |(file, plan): (u32, &FilePlan)| {
            let (node, len) = (plan.node, plan.len);
            let holes = matches!(tree.node(node).kind, Kind::File { sparse: true, .. });
            let digest = options.dedupe != Dedupe::Off && same_len[&len] > 1;
            let samples = plan.compression.is_some_and(|spec| len > segment_len(spec.pcluster_len));
            let packs = plan.compression.is_some() && plan.compression == options.compression;
            let head = !holes && !samples && packs && len <= options.fragment_max_len();
            let parts = options.dedupes_parts() && plan.compression.is_some();
            let chunks = parts && !holes && (head || len >= options.min_match());
            let wanted = AnalysisRequest { file, node, len, digest, holes, samples, head, chunks, is_apart: false };
            let wanted = if apart.contains_key(&file) { wanted.apart() } else { wanted };
            (len > 0 && wanted.is_any()).then_some(wanted)
        };
        let files = &self.files;
        let alone = |file: &FilePlan| match file.storage {
            Storage::Flat => storage(file, &[], false, options),
            other => other,
        };
        let mut storages: Vec<Storage> = files.iter().map(alone).collect();
        let mut candidates = Candidates::default();
        let mut analyses = Analyses::default();
        let (all_holes, filled_holes) = (&mut self.holes, &mut self.filled_holes);
        let (entropies, left_out) = (&mut self.entropies, &mut self.left_out);
        let mut all_changed = Vec::new();
        analysis::analyze((0..).zip(files).filter_map(wanted), context, |wanted, analysis| {
            let idx = wanted.file;
            let Analysis { digest, holes, entropy, head, chunks, changed } = match analysis {
                Ok(analysis) => analysis,
                Err(error) => {
                    storages[idx as usize] = Storage::LeftOut;
                    left_out.push(Skipped { path: tree.path(wanted.node), error });
                    return;
                }
            };
            let changed = changed.map(|error| Skipped { path: tree.path(wanted.node), error });
            all_changed.extend(changed.map(|changed| (idx, Some(changed))));
            let file = &files[idx as usize];
            candidates.extend(digest.map(|digest| (idx, file.len, digest)));
            analyses.chunks.extend(chunks.map(|chunks| (idx, chunks)));
            analyses.small.extend(head.map(|head| FragmentCandidate { file: idx, head }));
            entropies.extend(entropy.map(|entropy| (idx, entropy)));
            let storage = storage(file, &holes, entropy.is_some(), options);
            if let Storage::Chunks { sparse: true, .. } | Storage::Compressed { sparse: true } = storage {
                all_holes.insert(idx, holes);
            } else if !holes.is_empty() {
                filled_holes.insert(idx, hole::total(&holes));
            }
            storages[idx as usize] = storage;
        })?;
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        self.apart.extend(all_changed);
        analyses.pairs = candidates.pairs(|file| read_compat(files[file as usize].compression));
        for (file, storage) in self.files.iter_mut().zip(storages) {
            file.storage = storage;
        }
        Ok(analyses)
    }

    /// Compare the bytes of each pair; the second of equal ones becomes a duplicate of the first.
    fn confirm(&mut self, pairs: Vec<[u32; 2]>, context: Context<'_>) -> Result<(), BuildError> {
        let Context { tree, options, control } = context;
        let block_bits = options.block_bits;
        let files = &self.files;
        let jobs = pairs.into_iter().map(|job| Costed { job, cost: ANALYSIS_COST });
        let worker = || {
            Ok(|[first, second]: [u32; 2]| {
                control.check()?;
                let [a, b] = [first, second].map(|idx| &files[idx as usize]);
                let sparse = |node| matches!(tree.node(node).kind, Kind::File { sparse: true, .. });
                let any_sparse = sparse(a.node) || sparse(b.node);
                let same = dedupe::same_bytes(tree, [a.node, b.node], a.len, any_sparse, block_bits);
                Ok::<_, BuildError>((first, second, skippable(same, options)?))
            })
        };
        let mut originals = BTreeMap::<u32, Seen>::new();
        let mut duplicates = Vec::new();
        let mut changed = None;
        ordered::run(options.threads, options.backlog(), jobs, worker, |(first, second, same)| {
            // What cannot be compared is stored on its own, and fails there if it must.
            if let Ok(Some(seen)) = same {
                if originals.get(&first).is_some_and(|before| *before != seen) {
                    changed = changed.or(Some(first));
                }
                originals.entry(first).or_insert(seen);
                duplicates.push((first, second));
            }
            Ok(())
        })?;
        if let Some(file) = changed {
            let path = tree.path(self.files[file as usize].node);
            return Err(BuildError::Read { path, source: ContentError::Changed("its contents") });
        }
        for (first, second) in duplicates {
            let [first_file, second_file] =
                self.files.get_disjoint_mut([first as usize, second as usize]).expect("a pair of two files");
            second_file.storage = Storage::Duplicate(first);
            first_file.inode_len = first_file.inode_len.max(second_file.inode_len);
        }
        for (file, seen) in originals {
            seen.into_iter().for_each(|(start, cells)| self.originals.push(file, start, cells));
        }
        Ok(())
    }
}
