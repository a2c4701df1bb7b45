//! Results of analyses, for single files and for their relations.

use std::collections::{BTreeSet, HashMap};

use crate::context::Context;
use crate::error::{BuildError, Skipped};
use crate::format::Format;
use crate::options::Dedupe;
use crate::plan::analysis::{self, Analysis, AnalysisRequest};
use crate::plan::dedupe::Candidates;
use crate::plan::dedupe::input::FileChunks;
use crate::plan::file::{FilePlan, Storage, read_compat, storage};
use crate::plan::fragments::FragmentCandidate;
use crate::plan::hole::{self, Holes};
use crate::plan::text::segment_len;
use kiln_tree::{Kind, Tree};

/// Facts about all files.
pub(crate) struct Findings {
    /// The files, each stored as it would be alone.
    pub files: Vec<FilePlan>,
    /// Holes that are stored as holes, by file.
    pub holes: HashMap<u32, Holes>,
    /// Bytes of holes that are stored as zeros, by file.
    pub filled_holes: HashMap<u32, u64>,
    /// Entropy in bits per byte of the files whose samples do not compress.
    pub entropies: HashMap<u32, f64>,
    /// Files that share nothing with others: those that are apart, and those that have changed.
    pub apart: BTreeSet<u32>,
    /// Files that may go into the packed inode, in plan order.
    pub small: Vec<FragmentCandidate>,
    /// Chunks of files that fit one window.
    pub chunks: FileChunks,
    /// Files that may be equal.
    pub pairs: Vec<[u32; 2]>,
}

impl Findings {
    /// Finds out on all cores what the decisions need, and decides how each file is stored if it is stored alone.
    /// Those of `apart` share nothing.
    ///
    /// # Errors
    /// The first file that cannot be read, unless such files are to be skipped.
    pub(crate) fn gather(
        mut files: Vec<FilePlan>,
        mut apart: BTreeSet<u32>,
        context: Context<'_>,
    ) -> Result<Self, BuildError> {
        let Context { tree, format, ledger, .. } = context;
        let requests = requests(&files, &apart, tree, format);
        let mut left_out = Vec::new();
        let (mut holes_of, mut filled_holes) = (HashMap::new(), HashMap::new());
        let (mut entropies, mut small) = (HashMap::new(), Vec::new());
        let (mut chunks_of, mut candidates) = (FileChunks::default(), Candidates::default());
        analysis::analyze(requests.into_iter(), context, |request, analysis| {
            let idx = request.file;
            let file = &mut files[idx as usize];
            let path = || tree.path(request.node);
            let Analysis { digest, holes, entropy, head, chunks, changed } = match analysis {
                Ok(analysis) => analysis,
                Err(error) => {
                    file.storage = Storage::LeftOut;
                    left_out.push(Skipped { path: path(), error });
                    return;
                }
            };
            if let Some(error) = changed {
                ledger.change(request.node, Skipped { path: path(), error });
                apart.insert(idx);
            }
            candidates.extend(digest.map(|digest| (idx, file.len, digest)));
            chunks_of.extend(chunks.map(|chunks| (idx, chunks)));
            small.extend(head.map(|head| FragmentCandidate { file: idx, head }));
            entropies.extend(entropy.map(|entropy| (idx, entropy)));
            file.storage = storage(file, &holes, entropy.is_some(), format);
            if let Storage::Chunks { sparse: true, .. } | Storage::Compressed { sparse: true } = file.storage {
                let is_encoded =
                    format.compression.encoded_extents && matches!(file.storage, Storage::Compressed { .. });
                holes_of
                    .insert(idx, if is_encoded { hole::before_end(holes, file.len, format.block_bits) } else { holes });
            } else if !holes.is_empty() {
                filled_holes.insert(idx, hole::total(&holes));
            }
        })?;
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        left_out.into_iter().for_each(|one| ledger.leave_out(one));
        let pairs = candidates.pairs(|file| read_compat(files[file as usize].compression));
        Ok(Self { files, holes: holes_of, filled_holes, entropies, apart, small, chunks: chunks_of, pairs })
    }
}

/// Returns the requests for files about which something is to be found out.
fn requests(files: &[FilePlan], apart: &BTreeSet<u32>, tree: &Tree, format: &Format) -> Vec<AnalysisRequest> {
    let mut same_len = HashMap::<u64, u32>::new();
    for file in files {
        *same_len.entry(file.len).or_default() += 1;
    }
    let request = |(file, plan): (u32, &FilePlan)| {
        let (node, len) = (plan.node, plan.len);
        let holes = matches!(tree.node(node).kind, Kind::File { sparse: true, .. });
        let digest = format.dedupe != Dedupe::Off && same_len[&len] > 1;
        let samples = plan.compression.is_some_and(|spec| len > segment_len(spec.pcluster_len));
        let packs = plan.compression.is_some() && plan.compression == format.compression.spec;
        let head = !holes && !samples && packs && len <= format.packing.max_len;
        let parts = format.dedupes_parts() && plan.compression.is_some();
        let chunks = parts && !holes && (head || len >= format.min_match());
        let request = AnalysisRequest { file, node, len, digest, holes, samples, head, chunks, is_apart: false };
        let request = if apart.contains(&file) { request.apart() } else { request };
        let is_stored =
            len > 0 && !matches!(plan.storage, Storage::Placed { .. } | Storage::Reused { .. } | Storage::LeftOut);
        (is_stored && request.is_any()).then_some(request)
    };
    (0..).zip(files).filter_map(request).collect()
}
