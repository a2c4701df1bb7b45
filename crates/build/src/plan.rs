//! What is stored how, and in which order: decided in plain-text coordinates, before anything is compressed.
//!
//! Files stand in walk order. What the decisions need (digests of files of equal length, holes, samples of large files)
//! is gathered on all cores; the decisions themselves are taken in order.

use kiln_format::feature::Feature;
use std::collections::HashMap;
use std::ops::Range;

use crate::dedupe::{self, Candidates};
use crate::facts::Facts;
use crate::jobs::segment_len;
use crate::packed::{Candidate, PackedStream};
use crate::pool::{self, Costed};
use crate::streams::Streams;
use crate::survey::{self, SURVEY_BUDGET, SURVEY_COST, Survey, Wanted, skippable};
use crate::tree::{Kind, NodeId};
use crate::{BuildError, BuildOptions, Control, Dedupe, Skipped, Tree, hole, zindex};

/// Everything that will be stored.
pub struct Plan {
    /// Regular files in walk order.
    pub files: Vec<FilePlan>,
    /// Small files that are compressed together.
    pub packed: PackedStream,
    /// Parts of files that are stored once, if they are looked for.
    pub streams: Option<Streams>,
    /// Place in `files` of each node, by node.
    pub file_of_node: Vec<Option<u32>>,
    /// Entropy in bits per byte of the files whose samples do not compress.
    pub entropies: HashMap<u32, f64>,
    /// Inputs that cannot be read and are left out.
    pub left_out: Vec<Skipped>,
}

/// A regular file.
#[derive(Debug)]
pub struct FilePlan {
    /// Its node.
    pub node: NodeId,
    /// Size in bytes.
    pub len: u64,
    /// Bytes of its inode with its xattrs: the most of all inodes that share its data, since each has its own copy of the
    /// tail.
    pub inode_len: usize,
    /// How it is stored.
    pub storage: Storage,
}

/// How a file is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// It cannot be read and is left out.
    LeftOut,
    /// It has no bytes.
    Empty,
    /// Like the file with this index, byte for byte.
    Duplicate(u32),
    /// In the packed stream, from this byte on.
    Fragment {
        /// Byte offset in the packed stream.
        off: u64,
    },
    /// Uncompressed, contiguous.
    Flat,
    /// Uncompressed, in chunks of which some are holes.
    Chunks {
        /// log2 of the chunk size.
        chunk_bits: u8,
        /// The holes.
        holes: Box<[Range<u64>]>,
    },
    /// Compressed; a file of one part may still turn out flat.
    Compressed {
        /// Stored as references to one pcluster of zeros.
        holes: Box<[Range<u64>]>,
    },
}

impl Plan {
    /// Plan how to store every file of `tree`.
    ///
    /// # Errors
    /// The first file that cannot be read, unless such files are to be skipped.
    pub fn make(tree: &Tree, facts: &Facts, options: &BuildOptions, control: &Control<'_>) -> Result<Self, BuildError> {
        let mut files = Vec::new();
        let mut file_of_node = vec![None; tree.len()];
        for node in tree.walk().filter(|node| !facts.is_left_out[node.idx()]) {
            if let Kind::File { len, .. } = tree.node(node).kind {
                file_of_node[node.idx()] = Some(files.len() as u32);
                let inode_len = facts.inode_len(node);
                files.push(FilePlan {
                    node,
                    len,
                    inode_len,
                    storage: if len == 0 { Storage::Empty } else { Storage::Flat },
                });
            }
        }
        let mut plan = Self {
            files,
            packed: PackedStream::default(),
            streams: None,
            file_of_node,
            entropies: HashMap::new(),
            left_out: Vec::new(),
        };
        let mut surveys = plan.survey(tree, options, control)?;
        let mut candidates = Candidates::default();
        let mut pairs = Vec::new();
        let (mut small, mut chunks) = (Vec::new(), HashMap::new());
        for (idx, file) in plan.files.iter_mut().enumerate() {
            let mut survey = surveys.remove(&(idx as u32)).unwrap_or_default();
            if let Some(first) = survey.digest.and_then(|digest| candidates.earlier(idx as u32, file.len, digest)) {
                pairs.push([first, idx as u32]);
            }
            chunks.extend(survey.chunks.take().map(|chunks| (idx as u32, chunks)));
            if file.storage == Storage::Flat {
                small.extend(survey.head.map(|head| Candidate { file: idx as u32, len: file.len, head }));
                plan.entropies.extend(survey.entropy.map(|entropy| (idx as u32, entropy)));
                file.storage = storage(file.len, survey, options);
            }
        }
        plan.confirm(pairs, tree, options, control)?;
        plan.pack(small, options)?;
        if options.dedupes_parts() {
            plan.streams = Some(Streams::plan(&plan.files, &plan.packed, chunks, tree, options, control)?);
        }
        Ok(plan)
    }

    /// Lay out the packed stream.
    fn pack(&mut self, mut small: Vec<Candidate>, options: &BuildOptions) -> Result<(), BuildError> {
        small.retain(|candidate| matches!(self.files[candidate.file as usize].storage, Storage::Compressed { .. }));
        self.packed = PackedStream::of(&mut small);
        if options.packs_directories() {
            // Directories may lie elsewhere on the disk than the files before them.
            self.packed.pad(zindex::pack_start(self.packed.len(), options.block_bits())?);
        }
        for member in self.packed.members() {
            self.files[member.file as usize].storage = Storage::Fragment { off: member.off };
        }
        Ok(())
    }

    /// Find out on all cores what the decisions need.
    fn survey(
        &mut self,
        tree: &Tree,
        options: &BuildOptions,
        control: &Control<'_>,
    ) -> Result<HashMap<u32, Survey>, BuildError> {
        let mut same_len = HashMap::<u64, u32>::new();
        for file in &self.files {
            *same_len.entry(file.len).or_default() += 1;
        }
        let wanted = |(file, plan): (u32, &FilePlan)| {
            let (node, len) = (plan.node, plan.len);
            let holes = matches!(tree.node(node).kind, Kind::File { sparse: true, .. });
            let digest = options.dedupe != Dedupe::Off && same_len[&len] > 1;
            let samples = options.compression.is_some_and(|spec| len > segment_len(spec.pcluster_len));
            let head = !holes && !samples && len <= options.fragment_max_len();
            let chunks = options.dedupes_parts() && !holes && (head || len >= options.min_match());
            let wanted = Wanted { file, node, len, digest, holes, samples, head, chunks };
            (len > 0 && wanted.is_any()).then_some(wanted)
        };
        let wanted = (0..).zip(&self.files).filter_map(wanted).collect();
        let mut surveys = HashMap::new();
        for (file, survey) in survey::survey(wanted, tree, options, control)? {
            match survey {
                Ok(survey) => drop(surveys.insert(file, survey)),
                Err(error) => self.leave_out(file, tree, error),
            }
        }
        self.left_out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(surveys)
    }

    /// Compare the bytes of each pair; the second of equal ones becomes a duplicate of the first.
    fn confirm(
        &mut self,
        pairs: Vec<[u32; 2]>,
        tree: &Tree,
        options: &BuildOptions,
        control: &Control<'_>,
    ) -> Result<(), BuildError> {
        let block_bits = options.block_bits();
        let files = &self.files;
        let jobs = pairs.into_iter().map(|job| Costed { job, cost: SURVEY_COST });
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
        let mut found = Vec::new();
        pool::run(options.threads, SURVEY_BUDGET, jobs, worker, |outcome| {
            found.push(outcome);
            Ok(())
        })?;
        for (first, second, same) in found {
            // What cannot be compared is stored on its own, and fails there if it must.
            if matches!(same, Ok(true)) {
                let inode_len = self.files[second as usize].inode_len;
                self.files[second as usize].storage = Storage::Duplicate(first);
                let first = &mut self.files[first as usize];
                first.inode_len = first.inode_len.max(inode_len);
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, file: u32, tree: &Tree, error: BuildError) {
        let file = &mut self.files[file as usize];
        file.storage = Storage::LeftOut;
        self.left_out.push(Skipped { path: tree.path(file.node), error });
    }
}

/// How a file with bytes of its own is stored.
fn storage(len: u64, survey: Survey, options: &BuildOptions) -> Storage {
    let block_bits = options.block_bits();
    let holes = survey.holes;
    let chunks =
        |holes: Box<[Range<u64>]>| Storage::Chunks { chunk_bits: hole::chunk_bits(len, &holes, block_bits), holes };
    match (options.compression, holes.is_empty()) {
        (None, true) => Storage::Flat,
        (None, false) => chunks(holes),
        (Some(_), true) if survey.entropy.is_some() => Storage::Flat,
        (Some(_), true) => Storage::Compressed { holes },
        (Some(_), false) => {
            // An index counts 8 bytes for each block, hole or not: too much for a file that is nearly all hole.
            let index_len = block_bits.blocks_for(len) * 8;
            if index_len > (len - hole::total(&holes)) / 2 {
                chunks(holes)
            } else if options.kernel_has(Feature::Fragments.since()) {
                Storage::Compressed { holes }
            } else {
                // Before partial references, zeros are compressed like anything else.
                Storage::Compressed { holes: Box::default() }
            }
        }
    }
}
