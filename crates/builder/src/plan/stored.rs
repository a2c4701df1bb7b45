//! Files whose contents are stored already, on devices or in a base, according to the tree.

use kiln_format::BlockBits;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{PlacedRun, PreviousVersion, ReusedData, Stored};
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::plan::file::{FilePlan, Storage};

/// Files that a thread looks up at a time.
const LOOKED_UP: usize = 256;

/// Files that are stored already, by their places in the plan, in order.
#[derive(Default)]
pub(crate) struct StoredFiles {
    /// Files on devices, and errors of files of a tree without a base.
    pub elsewhere: Vec<(u32, Result<Vec<PlacedRun>, BuildError>)>,
    /// Files that the base has.
    pub reused: Vec<(u32, ReusedData)>,
    /// Files of which the base has a previous version.
    pub previous: Vec<(u32, PreviousVersion)>,
}

/// Asks the tree about all of `files`, on all cores.
///
/// # Errors A base of another block size, or a damaged one, also where unreadable files are left out: the source
/// has these files.
pub(crate) fn look_up(files: &[FilePlan], context: Context<'_>) -> Result<StoredFiles, BuildError> {
    let Context { tree, format, control, .. } = context;
    let stores = tree.stores();
    let mut found = StoredFiles::default();
    if let Some(base) = &stores.base {
        let [base_len, block_len] = [base.facts().block_bits, format.block_bits].map(BlockBits::len);
        if base_len != block_len {
            return Err(BuildError::BaseBlocks { base_len, block_len });
        }
    } else if stores.devices.is_empty() && !stores.headers_only {
        return Ok(found);
    }
    let worker = || {
        Ok(|range: Range<usize>| {
            control.check()?;
            let asked = (range.start as u32..).zip(&files[range]).filter(|(_, file)| has_text(file));
            Ok(asked.map(|(idx, file)| (idx, tree.stored(file.node))).collect::<Vec<_>>())
        })
    };
    let jobs = (0..files.len()).step_by(LOOKED_UP).map(|at| at..files.len().min(at + LOOKED_UP));
    let jobs = jobs.map(|job| Costed { job, cost: 1 });
    ordered::run(format.work.threads, LOOKED_UP as u64, jobs, worker, |answers| {
        for (idx, stored) in answers {
            match stored {
                Ok(Stored::ToRead) => {}
                Ok(Stored::Elsewhere(runs)) => found.elsewhere.push((idx, Ok(runs))),
                Ok(Stored::Reused(how)) => found.reused.push((idx, how)),
                Ok(Stored::Previous(version)) => found.previous.push((idx, version)),
                Err(error) if stores.base.is_some() => return Err(BuildError::from(error)),
                Err(error) => found.elsewhere.push((idx, Err(error.into()))),
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn has_text(file: &FilePlan) -> bool {
    file.len > 0 && !matches!(file.storage, Storage::LeftOut | Storage::Empty)
}
