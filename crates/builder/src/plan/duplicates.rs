//! Files of equal contents: each pair that may be equal is compared byte by byte.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::error::BuildError;
use crate::plan::analysis::{ANALYSIS_COST, skippable};
use crate::plan::dedupe::revalidation::ContentChecks;
use crate::plan::dedupe::{self, Seen};
use crate::plan::file::{FilePlan, Storage};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{ContentError, Kind};

/// Compares the bytes of each pair of `files`; the second of equal ones becomes a duplicate of the first. Returns
/// the files, and the checked text of those that others equal.
///
/// # Errors
/// A file that cannot be read, unless such files are to be skipped; one that changes meanwhile; an interruption.
pub(crate) fn confirm(
    mut files: Vec<FilePlan>,
    pairs: Vec<[u32; 2]>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, ContentChecks), BuildError> {
    let EqualPairs { pairs, originals } = equal_pairs(&files, pairs, context)?;
    for [first, second] in pairs {
        let [first_file, second_file] =
            files.get_disjoint_mut([first as usize, second as usize]).expect("a pair of two files");
        second_file.storage = Storage::Duplicate(first);
        first_file.inode_len = first_file.inode_len.max(second_file.inode_len);
    }
    let mut checks = ContentChecks::default();
    for (file, seen) in originals {
        seen.into_iter().for_each(|(start, cells)| checks.push(file, start, cells));
    }
    Ok((files, checks))
}

/// Pairs of equal files.
struct EqualPairs {
    pairs: Vec<[u32; 2]>,
    /// Checked text of the first file of each pair.
    originals: BTreeMap<u32, Seen>,
}

fn equal_pairs(files: &[FilePlan], pairs: Vec<[u32; 2]>, context: Context<'_>) -> Result<EqualPairs, BuildError> {
    let Context { tree, format, control, .. } = context;
    let block_bits = format.block_bits;
    let jobs = pairs.into_iter().map(|job| Costed { job, cost: ANALYSIS_COST });
    let worker = || {
        Ok(|pair: [u32; 2]| {
            control.check()?;
            let [a, b] = pair.map(|idx| &files[idx as usize]);
            let sparse = |node| matches!(tree.node(node).kind, Kind::File { sparse: true, .. });
            let any_sparse = sparse(a.node) || sparse(b.node);
            let same = dedupe::same_bytes(tree, [a.node, b.node], a.len, any_sparse, block_bits);
            Ok::<_, BuildError>((pair, skippable(same, format)?))
        })
    };
    let mut originals = BTreeMap::<u32, Seen>::new();
    let mut duplicates = Vec::new();
    let mut changed = None;
    ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |([first, second], same)| {
        // A file that cannot be compared is stored on its own, and fails there if it must.
        if let Ok(Some(seen)) = same {
            if originals.get(&first).is_some_and(|before| *before != seen) {
                changed = changed.or(Some(first));
            }
            originals.entry(first).or_insert(seen);
            duplicates.push([first, second]);
        }
        Ok(())
    })?;
    match changed {
        Some(file) => {
            let path = tree.path(files[file as usize].node);
            Err(BuildError::Read { path, source: ContentError::Changed("its contents") })
        }
        None => Ok(EqualPairs { pairs: duplicates, originals }),
    }
}
