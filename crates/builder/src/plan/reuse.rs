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
use crate::format::Format;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::previous::{self, Candidate, Patched};
use crate::plan::reuse::list::ReusedList;
use crate::plan::reuse::rules::Rules;
use kiln_tree::{Base, PreviousVersion, ReusedData, Stored};

pub(crate) use packed::ReusedPacked;

/// Data reused from a base.
#[derive(Default)]
pub(crate) struct ReusedFiles {
    /// The base, if there is one.
    pub base: Option<Arc<dyn Base>>,
    /// Their storage in the base.
    pub files: ReusedList,
    /// The reused part of its packed inode.
    pub packed: ReusedPacked,
    /// Stored bytes of the base that come first, see [`hot::runs`](crate::plan::hot::runs).
    pub hot: Vec<(u64, u64)>,
}

/// Ranges to be stored in files that are partly reused.
pub(crate) type Gaps = HashMap<u32, Vec<Range<u64>>>;

/// Plans the files that are reused from the base of the tree, of those that it has (`reusable`), and the files of which
/// extents are reused: of a `previous` version, or of a file that the base stores in a form that the image cannot have.
/// Returns the files, how these are stored, and the gaps between reused extents.
///
/// # Errors
/// A damaged base; an interruption.
pub(crate) fn plan(
    mut files: Vec<FilePlan>,
    reusable: Vec<(u32, ReusedData)>,
    previous: Vec<(u32, PreviousVersion)>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, ReusedFiles, Gaps), BuildError> {
    let Context { tree, format, previous: metadata, .. } = context;
    let Some(base) = tree.stores().base else { return Ok((files, ReusedFiles::default(), Gaps::new())) };
    let rules = Rules::new(base.facts(), format).keeping(metadata);
    let is_long = |idx: &u32| files[*idx as usize].len >= PreviousVersion::MIN_LEN;
    let long: Vec<u32> = reusable.iter().map(|(idx, _)| *idx).filter(is_long).collect();
    let reused = reusable.into_iter().filter(|(idx, how)| rules.allow(how, &files[*idx as usize]));
    let mut reused = ReusedList::from_iter(reused);
    let packed = rules.packed(&mut reused, &files);
    for (idx, how) in reused.iter() {
        let file = &mut files[idx as usize];
        let (algorithm, tail_len) = match how {
            ReusedData::Extents(extents) => (rules.algorithm(extents), 0),
            ReusedData::Flat { tail_len, .. } => (None, *tail_len as u16),
            ReusedData::Fragment { .. } => (None, 0),
        };
        (file.storage, file.compression) = (Storage::Reused { algorithm, tail_len }, None);
    }
    let candidate = |(file, previous)| Candidate { file, previous };
    let mut candidates: Vec<Candidate> = previous.into_iter().map(candidate).collect();
    for idx in long.into_iter().filter(|idx| reused.get(*idx).is_none()) {
        let FilePlan { node, len, .. } = files[idx as usize];
        if let Stored::Reused(ReusedData::Extents(extents)) = tree.stored(node)? {
            candidates.push(candidate((idx, PreviousVersion { len, extents, differences: Vec::new() })));
        }
    }
    let gaps = patch(&mut files, &mut reused, candidates, &rules, format);
    Ok((files, ReusedFiles { base: Some(base), files: reused, packed, hot: Vec::new() }, gaps))
}

/// Decides which extents of `candidates` are reused, and puts these files into `reused`. Returns the gaps between the
/// extents.
fn patch(
    files: &mut [FilePlan],
    reused: &mut ReusedList,
    mut candidates: Vec<Candidate>,
    rules: &Rules<'_>,
    format: &Format,
) -> Gaps {
    candidates.retain(|Candidate { file, previous, .. }| {
        let file = &files[*file as usize];
        file.len >= PreviousVersion::MIN_LEN
            && previous::spec(previous, file).is_some()
            && rules.allow_previous(previous)
    });
    let (mut gaps, mut patched) = (Gaps::new(), Vec::new());
    let found = previous::patch(&candidates, files, format);
    for (candidate, Patched { reused: extents, gaps: between }) in
        candidates.iter().zip(found).filter_map(|(candidate, found)| Some((candidate, found?)))
    {
        let file = &mut files[candidate.file as usize];
        file.storage = Storage::Reused { algorithm: extents.algorithm, tail_len: 0 };
        gaps.insert(candidate.file, between);
        patched.push((candidate.file, ReusedData::Extents(extents)));
    }
    reused.extend(patched);
    gaps
}
