//! Files that the base stores already: which of them are taken over as they are stored, and what of its packed inode.

mod list;
mod packed;
pub(super) mod rules;

use kiln_format::BlockBits;
use kiln_parallel::ordered::{self, Costed};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::plan::kept::list::KeptList;
use crate::plan::kept::rules::Rules;
use crate::{plan::file::FilePlan, plan::file::Storage};
use crate::{plan::former, plan::former::Candidate, plan::former::FORMER_MIN_LEN, plan::former::Patched};
use kiln_tree::{Base, Kept};

pub(crate) use packed::KeptPacked;

/// Files that a thread looks up at a time.
const LOOKED_UP: usize = 256;

/// What is taken over from a base.
#[derive(Default)]
pub(crate) struct KeptFiles {
    /// Where it is copied from.
    pub base: Option<Arc<dyn Base>>,
    /// How the base stores them.
    pub files: KeptList,
    /// What is taken over of its packed inode.
    pub packed: KeptPacked,
    /// Stored bytes of the base that come first, see [`hot::runs`](crate::plan::hot::runs).
    pub hot: Vec<(u64, u64)>,
}

/// What is to be stored of files of which only parts are taken over.
pub(crate) type Gaps = HashMap<u32, Vec<Range<u64>>>;

/// Decide which of `files` are taken over from the base of the tree, if it has one, and of which some parts are. Returns the files, how these are stored,
/// and what is not taken over of the latter.
///
/// # Errors
/// A base of another block size, or a damaged one.
pub(crate) fn look_up(
    mut files: Vec<FilePlan>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, KeptFiles, Gaps), BuildError> {
    let Context { tree, options, control, ledger } = context;
    let Some(base) = tree.base() else { return Ok((files, KeptFiles::default(), Gaps::new())) };
    let facts = base.facts();
    let [base_len, block_len] = [facts.block_bits, options.block_bits].map(BlockBits::len);
    if base_len != block_len {
        return Err(BuildError::BaseBlocks { base_len, block_len });
    }
    let (rules, distrusted) = (Rules::new(facts, options), ledger.distrusted());
    let mut kept = Vec::new();
    let worker = || {
        Ok(|range: Range<usize>| {
            control.check()?;
            let candidates = (range.start as u32..).zip(&files[range]);
            let candidates = candidates.filter(|(_, file)| is_candidate(file) && !distrusted.contains(&file.node));
            let known =
                candidates.map(|(idx, file)| Ok((idx, tree.kept(file.node)?.filter(|how| rules.allow(how, file)))));
            known.collect::<Result<Vec<_>, BuildError>>()
        })
    };
    let jobs = (0..files.len()).step_by(LOOKED_UP).map(|at| at..files.len().min(at + LOOKED_UP));
    let jobs = jobs.map(|job| Costed { job, cost: 1 });
    ordered::run(options.threads, LOOKED_UP as u64, jobs, worker, |known| {
        kept.extend(known.into_iter().filter_map(|(idx, how)| Some((idx, how?))));
        Ok(())
    })?;
    let mut kept = KeptList::from_iter(kept);
    let packed = rules.packed(&mut kept, &files);
    for (idx, how) in kept.iter() {
        let file = &mut files[idx as usize];
        let (algorithm, tail_len) = match how {
            Kept::Extents(extents) => (rules.algorithm(extents), 0),
            Kept::Flat { tail_len, .. } => (None, *tail_len as u16),
            Kept::Fragment { .. } => (None, 0),
        };
        (file.storage, file.compression) = (Storage::Kept { algorithm, tail_len }, None);
    }
    let gaps = patch(&mut files, &mut kept, &rules, context)?;
    Ok((files, KeptFiles { base: Some(base), files: kept, packed, hot: Vec::new() }, gaps))
}

/// Decide of which files that are not in `kept` parts are taken over, and put them there. What is not taken over of them.
fn patch(
    files: &mut [FilePlan],
    kept: &mut KeptList,
    rules: &Rules<'_>,
    context: Context<'_>,
) -> Result<Gaps, BuildError> {
    let mut candidates = Vec::new();
    for (idx, file) in (0..).zip(&*files).filter(|(idx, file)| is_candidate(file) && !kept.contains(*idx)) {
        if file.len < FORMER_MIN_LEN || context.ledger.apart().contains(&file.node) {
            continue;
        }
        let former = context.tree.former(file.node)?;
        let former = former.filter(|former| former::spec(former, file).is_some() && rules.allow_former(former));
        candidates.extend(former.map(|former| Candidate { file: idx, former }));
    }
    let (mut gaps, mut patched) = (Gaps::new(), Vec::new());
    let found = former::compare(&candidates, files, context)?;
    for (candidate, Patched { kept: extents, gaps: between }) in
        candidates.iter().zip(found).filter_map(|(candidate, found)| Some((candidate, found?)))
    {
        let file = &mut files[candidate.file as usize];
        file.storage = Storage::Kept { algorithm: extents.algorithm, tail_len: 0 };
        gaps.insert(candidate.file, between);
        patched.push((candidate.file, Kept::Extents(extents)));
    }
    kept.extend(patched);
    Ok(gaps)
}

fn is_candidate(file: &FilePlan) -> bool {
    file.len > 0 && !matches!(file.storage, Storage::Placed { .. } | Storage::LeftOut | Storage::Empty)
}
