//! Digests of contents that are stored beside inodes, so that readers can share equal files.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;

use crate::context::Context;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::analysis::{ANALYSIS_COST, skippable};
use crate::plan::dedupe::for_steps;
use crate::plan::hole::{self, Holes, data_runs};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Content, ContentError, Kind, NodeId, Tree};

/// Prefix of the values.
const ALGORITHM: &[u8] = b"sha256:";
/// Length of a digest in bytes.
pub(crate) const DIGEST_LEN: usize = 32;
/// Length of a value in bytes.
pub(crate) const VALUE_LEN: usize = ALGORITHM.len() + DIGEST_LEN;
/// Zeros that stand for holes in hashing.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Returns the values of all files that are not empty: those that an image stores already, else those of the
/// contents. Files that are apart have none of the latter, as they may change; neither have files that cannot be
/// read, if such files are skipped.
///
/// # Errors
/// The first file that cannot be read, unless such files are skipped; an interruption.
pub(crate) fn all(context: Context<'_>) -> Result<HashMap<NodeId, Box<[u8]>>, BuildError> {
    let Context { tree, format, control, ledger } = context;
    let (apart, distrusted) = (ledger.apart(), ledger.distrusted());
    let jobs = files(tree, format).map(|job| Costed { job, cost: ANALYSIS_COST });
    let worker = || {
        let mut buf = Vec::new();
        let (apart, distrusted) = (&apart, &distrusted);
        Ok(move |(id, len, sparse): (NodeId, u64, bool)| {
            control.check()?;
            let stored = tree.stored_digest(id).map(|stored| stored.filter(|_| !distrusted.contains(&id)));
            let digest = match stored {
                Ok(Some(stored)) => Ok(Some(stored.sha256)),
                Ok(None) if apart.contains(&id) => Ok(None),
                Ok(None) => Hashed::open((id, len, sparse), context).and_then(|file| file.digest(&mut buf)).map(Some),
                Err(error) => Err(error.into()),
            };
            Ok::<_, BuildError>((id, skippable(digest, format)?))
        })
    };
    let mut values = HashMap::new();
    ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(id, digest)| {
        let value = digest.ok().flatten().map(|digest| [ALGORITHM, &digest].concat().into());
        values.extend(value.map(|value| (id, value)));
        Ok(())
    })?;
    Ok(values)
}

/// Returns the files that have a digest, with their lengths, and with flags that tell which ones may have holes.
pub(crate) fn files(tree: &Tree, format: &Format) -> impl Iterator<Item = (NodeId, u64, bool)> {
    let wanted = format.metadata.has_digests;
    tree.nodes().filter_map(move |(id, node)| match node.kind {
        Kind::File { len, sparse, .. } if len > 0 && wanted => Some((id, len, sparse)),
        _ => None,
    })
}

/// A file to be hashed.
pub(crate) struct Hashed<'a> {
    id: NodeId,
    len: u64,
    content: Box<dyn Content>,
    holes: Holes,
    context: Context<'a>,
}

impl<'a> Hashed<'a> {
    /// Opens a file of a given length, which may have holes.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) fn open((id, len, sparse): (NodeId, u64, bool), context: Context<'a>) -> Result<Self, BuildError> {
        let Context { tree, format, .. } = context;
        let mut content = tree.open(id)?;
        let holes = match sparse {
            true => hole::find(&mut *content, len, format.block_bits)
                .map_err(|source| BuildError::Read { path: tree.path(id), source })?,
            false => Holes::default(),
        };
        Ok(Self { id, len, content, holes, context })
    }

    /// Returns the bytes that are not holes.
    pub(crate) fn data_len(&self) -> u64 {
        self.len - hole::total(&self.holes)
    }

    /// Returns the SHA-256 of the contents.
    ///
    /// # Errors
    /// A file that cannot be read; an interruption.
    pub(crate) fn digest(mut self, buf: &mut Vec<u8>) -> Result<[u8; DIGEST_LEN], BuildError> {
        let Context { tree, control, .. } = self.context;
        let failed = |source| BuildError::Read { path: tree.path(self.id), source };
        let digest = hash(&mut *self.content, (self.len, &self.holes), buf, control, failed)?;
        self.content.verify_unchanged().map_err(failed)?;
        Ok(digest)
    }
}

/// Hashes contents without reading holes: their zeros come from memory.
fn hash(
    content: &mut dyn Content,
    (len, holes): (u64, &[Range<u64>]),
    buf: &mut Vec<u8>,
    control: &Control<'_>,
    failed: impl Fn(ContentError) -> BuildError,
) -> Result<[u8; DIGEST_LEN], BuildError> {
    let mut hash = Sha256::new();
    let mut end = 0;
    for run in data_runs(len, holes) {
        add_zeros(&mut hash, run.start - end, control)?;
        end = run.end;
        for_steps(run, |off, step| {
            control.check()?;
            buf.resize(step, 0);
            content.read_exact_at(buf, off).map_err(&failed)?;
            hash.update(&*buf);
            Ok::<_, BuildError>(true)
        })?;
    }
    add_zeros(&mut hash, len - end, control)?;
    Ok(hash.finalize().into())
}

fn add_zeros(hash: &mut Sha256, mut len: u64, control: &Control<'_>) -> Result<(), BuildError> {
    while len > 0 {
        control.check()?;
        let step = len.min(ZEROS.len() as u64);
        hash.update(&ZEROS[..step as usize]);
        len -= step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A file whose holes must not be read.
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
            let expected: [u8; DIGEST_LEN] = Sha256::digest(&text).into();
            let mut content = Sparse { text, holes: holes.clone() };
            let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
            let failed = |source| BuildError::Read { path: Vec::new(), source };
            let found = hash(&mut content, (LEN, &holes), &mut Vec::new(), &control, failed);
            assert_eq!(found.unwrap(), expected, "{holes:?}");
        }
    }
}
