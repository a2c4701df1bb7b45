//! Files that the base stores already: which of them are taken over as they are stored, and what of its packed inode.

mod list;
pub(super) mod rules;

use kiln_format::BlockBits;
use kiln_parallel::ordered::{self, Costed};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::former::{self, Candidate, FORMER_MIN_LEN, Patched};
use crate::plan::kept::list::KeptList;
use crate::plan::kept::rules::Rules;
use crate::tree::{Base, Kept, KeptExtent};

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

/// What is taken over of the packed inode of a base: the front of that of the new image.
#[derive(Default)]
pub(crate) struct KeptPacked {
    /// Its extents, one behind the other as they will be, each with the byte of the base's packed inode where it began.
    pub extents: Vec<(u64, KeptExtent)>,
}

impl KeptPacked {
    /// Bytes of plain text.
    pub(crate) fn len(&self) -> u64 {
        self.extents.last().map_or(0, |(_, extent)| extent.end())
    }

    /// Where byte `off` of the base's packed inode will be.
    pub(crate) fn moved(&self, off: u64) -> Option<u64> {
        let behind = self.extents.partition_point(|(was, _)| *was <= off);
        let (was, extent) = self.extents.get(behind.checked_sub(1)?)?;
        (off - was < u64::from(extent.llen)).then(|| extent.la + (off - was))
    }

    /// The extents that hold `len` bytes of the base's packed inode from `off` on.
    pub(crate) fn holding(&self, off: u64, len: u64) -> impl Iterator<Item = &KeptExtent> {
        let first = self.extents.partition_point(|(was, extent)| was + u64::from(extent.llen) <= off);
        let behind = off.saturating_add(len);
        self.extents[first..].iter().take_while(move |(was, _)| *was < behind).map(|(_, extent)| extent)
    }
}

/// Decide which of `files` are taken over from the base of the tree, if it has one, and of which some parts are. Returns the files, how these are stored,
/// and what is not taken over of the latter.
///
/// # Errors
/// A base of another block size, or a damaged one.
pub(crate) fn look_up(
    mut files: Vec<FilePlan>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, KeptFiles, Gaps), BuildError> {
    let Context { tree, options, control, .. } = context;
    let Some(base) = tree.base() else { return Ok((files, KeptFiles::default(), Gaps::new())) };
    let facts = base.facts();
    let [base_len, block_len] = [facts.block_bits, options.block_bits].map(BlockBits::len);
    if base_len != block_len {
        return Err(BuildError::BaseBlocks { base_len, block_len });
    }
    let rules = Rules::new(facts, options);
    let mut kept = Vec::new();
    let worker = || {
        Ok(|range: Range<usize>| {
            control.check()?;
            let candidates = (range.start as u32..).zip(&files[range]).filter(|(_, file)| is_candidate(file));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(la: u64, llen: u32) -> KeptExtent {
        KeptExtent { la, llen, pa: 4096 + la, plen: 4096, plain: false, partial: false }
    }

    #[test]
    fn bytes_of_what_stays_move_to_the_front() {
        let extents = vec![(10_000, extent(0, 5000)), (30_000, extent(5000, 100))];
        let packed = KeptPacked { extents };
        assert_eq!(packed.len(), 5100);
        for (off, moved) in [
            (9999, None),
            (10_000, Some(0)),
            (14_999, Some(4999)),
            (15_000, None),
            (30_000, Some(5000)),
            (30_100, None),
        ] {
            assert_eq!(packed.moved(off), moved, "{off}");
        }
        assert_eq!((KeptPacked::default().len(), KeptPacked::default().moved(0)), (0, None));
    }
}
