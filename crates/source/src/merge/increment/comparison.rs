//! Comparing contents, where nothing else tells whether they are the same.

use kiln_builder::tree::{ContentError, ContentId, Kind, NodeId, Tree};
use kiln_parallel::ordered::{self, Costed};

use super::pairs::Doubt;
use crate::error::SourceError;
use crate::source::ScanOptions;

/// Bytes that are compared at a time: decoding an end of a pcluster twice costs little then.
const STEP: usize = 1 << 20;
/// Comparisons that may wait for an earlier one.
const BACKLOG: u64 = 1024;

/// The contents of the new tree that are those of the old one, with these. What cannot be read is not the same: who reads it again will say
/// what is wrong.
///
/// # Errors
/// [`SourceError::Interrupted`].
pub(super) fn equal(
    trees: [&Tree; 2],
    in_doubt: Vec<Doubt>,
    options: &ScanOptions<'_>,
) -> Result<Vec<(u32, ContentId)>, SourceError> {
    let worker = || {
        let mut bufs = [Vec::new(), Vec::new()];
        Ok(move |doubt: Doubt| {
            let is_same = is_same(trees, doubt, &mut bufs, options)?;
            Ok::<_, SourceError>(is_same.then(|| [content(trees[0], doubt.new), content(trees[1], doubt.old)]))
        })
    };
    let jobs = in_doubt.into_iter().map(|job| Costed { job, cost: 1 });
    let mut found = Vec::new();
    ordered::run(options.threads, BACKLOG, jobs, worker, |same| {
        found.extend(same.and_then(|[new, old]| Some((new?.0, old?))));
        Ok(())
    })?;
    Ok(found)
}

fn content(tree: &Tree, node: NodeId) -> Option<ContentId> {
    match tree.node(node).kind {
        Kind::File { content, .. } => Some(content),
        _ => None,
    }
}

/// Whether two files have the same contents, as far as both can be read.
fn is_same(
    [new, old]: [&Tree; 2],
    doubt: Doubt,
    [one, two]: &mut [Vec<u8>; 2],
    options: &ScanOptions<'_>,
) -> Result<bool, SourceError> {
    let (Ok(mut new), Ok(mut old)) = (new.open(doubt.new), old.open(doubt.old)) else { return Ok(false) };
    let mut off = 0;
    while off < doubt.len {
        options.check_stop()?;
        let len = STEP.min((doubt.len - off) as usize);
        let mut differs = || {
            one.resize(len, 0);
            two.resize(len, 0);
            new.read_exact_at(one, off)?;
            old.read_exact_at(two, off)?;
            Ok::<_, ContentError>(one != two)
        };
        if differs().unwrap_or(true) {
            return Ok(false);
        }
        off += len as u64;
    }
    Ok(new.verify_unchanged().is_ok())
}
