//! Files that the base stores already: which of them are taken over as they are stored, and what of its packed inode.

mod list;
mod packed;
pub(super) mod rules;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::former;
use crate::plan::former::{Candidate, FORMER_MIN_LEN, Patched};
use crate::plan::kept::list::KeptList;
use crate::plan::kept::rules::Rules;
use kiln_tree::{Base, Former, Kept};

pub(crate) use packed::KeptPacked;

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

/// Plans the files that are reused from the base of the tree, of those that it has, and the files of which extents of a previous version are reused.
/// Returns the files, how these are stored, and the gaps between reused extents.
///
/// # Errors
/// An interruption.
pub(crate) fn plan(
    mut files: Vec<FilePlan>,
    reused: Vec<(u32, Kept)>,
    previous: Vec<(u32, Former)>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, KeptFiles, Gaps), BuildError> {
    let Context { tree, options, ledger, .. } = context;
    let Some(base) = tree.stores().base else { return Ok((files, KeptFiles::default(), Gaps::new())) };
    let (rules, distrusted) = (Rules::new(base.facts(), options), ledger.distrusted());
    let kept = reused.into_iter().filter(|(idx, how)| {
        let file = &files[*idx as usize];
        !distrusted.contains(&file.node) && rules.allow(how, file)
    });
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
    let gaps = patch(&mut files, &mut kept, previous, &rules, context)?;
    Ok((files, KeptFiles { base: Some(base), files: kept, packed, hot: Vec::new() }, gaps))
}

/// Decide of which files that are not in `kept` parts are taken over, and put them there. What is not taken over of them.
fn patch(
    files: &mut [FilePlan],
    kept: &mut KeptList,
    previous: Vec<(u32, Former)>,
    rules: &Rules<'_>,
    context: Context<'_>,
) -> Result<Gaps, BuildError> {
    let apart = context.ledger.apart();
    let candidates = previous.into_iter().filter_map(|(idx, former)| {
        let file = &files[idx as usize];
        let is_allowed = file.len >= FORMER_MIN_LEN && !apart.contains(&file.node);
        (is_allowed && former::spec(&former, file).is_some() && rules.allow_former(&former))
            .then_some(Candidate { file: idx, former })
    });
    let candidates: Vec<_> = candidates.collect();
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
