//! Comparison of contents that are read from images with their stored digests, before anything is stored.

use std::collections::BTreeSet;

use crate::context::Context;
use crate::error::{BuildError, Skipped};
use crate::inodes::digest::Hashed;
use crate::plan::Plan;
use crate::plan::analysis::{ANALYSIS_COST, skippable};
use crate::plan::file::{FilePlan, Storage};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{DigestMismatch, DigestOf, Kind, NodeId, StoredDigest};

/// Contents over a GiB are not hashed if less than one byte in so many is outside of holes: that could take years.
const RATIO_MAX: u64 = 64;

/// Compares contents with their digests. Reused data is not read, and keeps its digest. Returns the files in which
/// the source differs from the base, though they were believed to be equal: they must be planned again.
///
/// # Errors
/// The first file that differs from its digest, unless the build keeps going: then it is reported, and keeps the
/// digest. An interruption.
pub(crate) fn verify(plan: &Plan, context: Context<'_>) -> Result<BTreeSet<NodeId>, BuildError> {
    let Context { tree, format, control, ledger } = context;
    let distrusted = ledger.distrusted();
    let is_read = |(idx, file): &(u32, &FilePlan)| {
        let is_elsewhere = matches!(file.storage, Storage::LeftOut | Storage::Empty | Storage::Placed { .. });
        !is_elsewhere && !plan.is_kept_whole(*idx) && !distrusted.contains(&file.node)
    };
    let jobs = (0..).zip(&plan.files).filter(is_read).map(|(_, job)| Costed { job, cost: ANALYSIS_COST });
    let worker = || {
        let mut buf = Vec::new();
        Ok(move |file: &FilePlan| {
            control.check()?;
            let found = mismatch(file, plan, context, &mut buf);
            Ok::<_, BuildError>((file.node, skippable(found, format)?))
        })
    };
    let mut anew = BTreeSet::new();
    ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(node, found)| {
        // A file that cannot be read fails again when it is stored.
        let Ok(Some((of, mismatch))) = found else { return Ok(()) };
        if of == DigestOf::Reused {
            anew.insert(node);
            return Ok(());
        }
        let path = tree.path(node);
        let error = BuildError::Read { path: path.clone(), source: Box::new(mismatch).into() };
        if !format.work.keep_going {
            return Err(error);
        }
        ledger.damage(node, Skipped { path, error });
        Ok(())
    })?;
    Ok(anew)
}

/// Compares the contents of a file with their stored digest, and returns the mismatch. `None` also where nothing is
/// compared: without a digest, for example.
fn mismatch(
    file: &FilePlan,
    plan: &Plan,
    context: Context<'_>,
    buf: &mut Vec<u8>,
) -> Result<Option<(DigestOf, DigestMismatch)>, BuildError> {
    let Context { tree, format, .. } = context;
    let Kind::File { len, sparse, .. } = tree.node(file.node).kind else { return Ok(None) };
    let Some(StoredDigest { sha256: stored, image, of }) = tree.stored_digest(file.node)? else { return Ok(None) };
    if of == DigestOf::Reused && !format.metadata.has_digests {
        return Ok(None);
    }
    // Equal bytes have equal digests.
    if let Storage::Duplicate(first) = file.storage
        && tree.stored_digest(plan.files[first as usize].node)?.is_some_and(|one| (one.sha256, one.of) == (stored, of))
    {
        return Ok(None);
    }
    let hashed = Hashed::open((file.node, len, sparse), context)?;
    if len > 1 << 30 && hashed.data_len() < len / RATIO_MAX {
        return Ok(None);
    }
    let computed = hashed.digest(buf)?;
    Ok((computed != stored).then_some((of, DigestMismatch { image, stored, computed })))
}
