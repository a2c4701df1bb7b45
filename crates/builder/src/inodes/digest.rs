//! Digests of contents that are stored beside inodes, so that readers can share what is equal.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::plan::analysis::{ANALYSIS_COST, skippable};
use crate::plan::dedupe::for_steps;
use crate::plan::hole::{self, data_runs};
use crate::tree::Tree;
use crate::tree::{Content, ContentError, Kind, NodeId};
use kiln_parallel::ordered::{self, Costed};

/// What the values begin with.
const ALGORITHM: &[u8] = b"sha256:";
/// Bytes of a digest.
pub(crate) const DIGEST_LEN: usize = 32;
/// Bytes of a value.
pub(crate) const VALUE_LEN: usize = ALGORITHM.len() + DIGEST_LEN;
/// Zeros that holes are hashed as.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The values of all files that are not empty, but not of those that are apart: these may change. A file that cannot be read
/// has none where such files are skipped.
///
/// # Errors
/// The first file that cannot be read, otherwise; an interruption.
pub(crate) fn all(context: Context<'_>) -> Result<HashMap<NodeId, Box<[u8]>>, BuildError> {
    let Context { tree, options, control, ledger } = context;
    let apart = ledger.apart();
    let jobs: Vec<_> = files(tree, options)
        .filter(|(id, ..)| !apart.contains(id))
        .map(|job| Costed { job, cost: ANALYSIS_COST })
        .collect();
    let block_bits = options.block_bits;
    let worker = || {
        let mut buf = Vec::new();
        Ok(move |(id, len, sparse): (NodeId, u64, bool)| {
            control.check()?;
            let value = tree.open(id).and_then(|mut content| {
                let holes = if sparse { hole::find(&mut *content, len, block_bits) } else { Ok(Box::default()) };
                let value = holes.and_then(|holes| value(&mut *content, len, &holes, &mut buf));
                value.map_err(|source| BuildError::Read { path: tree.path(id), source })
            });
            Ok::<_, BuildError>((id, skippable(value, options)?))
        })
    };
    let mut values = HashMap::with_capacity(jobs.len());
    ordered::run(options.threads, options.backlog(), jobs.into_iter(), worker, |(id, value)| {
        values.extend(value.ok().map(|value| (id, value)));
        Ok(())
    })?;
    Ok(values)
}

/// Files that have one, with their lengths, and whether they may have holes.
pub(crate) fn files(tree: &Tree, options: &BuildOptions) -> impl Iterator<Item = (NodeId, u64, bool)> {
    let wanted = options.content_digests.is_some();
    tree.nodes().filter_map(move |(id, node)| match node.kind {
        Kind::File { len, sparse, .. } if len > 0 && wanted => Some((id, len, sparse)),
        _ => None,
    })
}

/// Holes are not read: their zeros come from memory.
fn value(
    content: &mut dyn Content,
    len: u64,
    holes: &[Range<u64>],
    buf: &mut Vec<u8>,
) -> Result<Box<[u8]>, ContentError> {
    let mut hash = Sha256::new();
    let mut end = 0;
    for run in data_runs(len, holes) {
        add_zeros(&mut hash, run.start - end);
        end = run.end;
        for_steps(run, |off, step| {
            buf.resize(step, 0);
            content.read_exact_at(buf, off)?;
            hash.update(&*buf);
            Ok::<_, ContentError>(true)
        })?;
    }
    add_zeros(&mut hash, len - end);
    content.verify_unchanged()?;
    Ok([ALGORITHM, &hash.finalize()].concat().into())
}

fn add_zeros(hash: &mut Sha256, mut len: u64) {
    while len > 0 {
        let step = len.min(ZEROS.len() as u64);
        hash.update(&ZEROS[..step as usize]);
        len -= step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in whose holes nothing may be read.
    struct Sparse {
        text: Vec<u8>,
        holes: Vec<Range<u64>>,
    }

    impl Content for Sparse {
        fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
            let read = off..off + buf.len() as u64;
            assert!(self.holes.iter().all(|hole| hole.end <= read.start || read.end <= hole.start), "{read:?}");
            buf.copy_from_slice(&self.text[off as usize..][..buf.len()]);
            Ok(())
        }

        fn next_data(&mut self, _: u64) -> Result<Option<Range<u64>>, ContentError> {
            unreachable!("holes are known")
        }

        fn verify_unchanged(&mut self) -> Result<(), ContentError> {
            Ok(())
        }
    }

    #[test]
    fn digests_with_holes_are_those_of_the_zeros() {
        const LEN: u64 = 900_000;
        let all = Range { start: 0, end: LEN };
        for holes in [vec![], vec![all], vec![0..70_000, 300_000..600_001], vec![5..10, 899_999..LEN]] {
            let mut text: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8 + 1).collect();
            holes.iter().for_each(|hole| text[hole.start as usize..hole.end as usize].fill(0));
            let expected = [ALGORITHM, &Sha256::digest(&text)].concat();
            let mut content = Sparse { text, holes: holes.clone() };
            assert_eq!(*value(&mut content, LEN, &holes, &mut Vec::new()).unwrap(), *expected, "{holes:?}");
        }
    }
}
