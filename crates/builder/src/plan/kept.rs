//! Files that the base stores already: selection of those that are reused, and of the reused part of its packed
//! inode.

mod list;
mod packed;
pub(super) mod rules;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::former::{self, Candidate, FORMER_MIN_LEN, Patched};
use crate::plan::kept::list::KeptList;
use crate::plan::kept::rules::Rules;
use kiln_tree::{Base, Former, Kept, Stored};

pub(crate) use packed::KeptPacked;

/// Data reused from a base.
#[derive(Default)]
pub(crate) struct KeptFiles {
    /// The base, if there is one.
    pub base: Option<Arc<dyn Base>>,
    /// Their storage in the base.
    pub files: KeptList,
    /// The reused part of its packed inode.
    pub packed: KeptPacked,
    /// Stored bytes of the base that come first, see [`hot::runs`](crate::plan::hot::runs).
    pub hot: Vec<(u64, u64)>,
}

/// Ranges to be stored in files that are partly reused.
pub(crate) type Gaps = HashMap<u32, Vec<Range<u64>>>;

/// Plans the files that are reused from the base of the tree, of those that it has (`reused`), and the files of which
/// extents are reused: of a `previous` version, or of a file that the base stores in a form that the image cannot have.
/// Returns the files, how these are stored, and the gaps between reused extents.
///
/// # Errors
/// A damaged base; an interruption.
pub(crate) fn plan(
    mut files: Vec<FilePlan>,
    reused: Vec<(u32, Kept)>,
    previous: Vec<(u32, Former)>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, KeptFiles, Gaps), BuildError> {
    let Context { tree, format, ledger, .. } = context;
    let Some(base) = tree.stores().base else { return Ok((files, KeptFiles::default(), Gaps::new())) };
    let (rules, distrusted) = (Rules::new(base.facts(), format), ledger.distrusted());
    let is_long = |idx: &u32| files[*idx as usize].len >= FORMER_MIN_LEN;
    let long: Vec<u32> = reused.iter().map(|(idx, _)| *idx).filter(is_long).collect();
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
    let candidate = |(file, former)| Candidate { file, former };
    let mut candidates: Vec<Candidate> = previous.into_iter().map(candidate).collect();
    for idx in long.into_iter().filter(|idx| kept.get(*idx).is_none()) {
        let FilePlan { node, len, .. } = files[idx as usize];
        if let Stored::Reused(Kept::Extents(extents)) = tree.stored(node)? {
            candidates.push(candidate((idx, Former { len, extents, differences: None })));
        }
    }
    let gaps = patch(&mut files, &mut kept, candidates, &rules, context)?;
    Ok((files, KeptFiles { base: Some(base), files: kept, packed, hot: Vec::new() }, gaps))
}

/// Decides which extents of `candidates` are reused, and puts these files into `kept`. Returns the gaps between the
/// extents.
fn patch(
    files: &mut [FilePlan],
    kept: &mut KeptList,
    mut candidates: Vec<Candidate>,
    rules: &Rules<'_>,
    context: Context<'_>,
) -> Result<Gaps, BuildError> {
    let apart = context.ledger.apart();
    candidates.retain(|Candidate { file, former, .. }| {
        let file = &files[*file as usize];
        let is_shared = file.len >= FORMER_MIN_LEN && !apart.contains(&file.node);
        is_shared && former::spec(former, file).is_some() && rules.allow_former(former)
    });
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
