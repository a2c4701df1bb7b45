//! Digests of contents that are stored beside inodes, so that readers can share what is equal.

use sha2::{Digest, Sha256};
use std::collections::HashMap;

use crate::pool::{self, Costed};
use crate::stats::thread_cpu;
use crate::survey::{SURVEY_COST, skippable};
use crate::tree::{Content, ContentError, Kind, NodeId};
use crate::{BuildError, BuildOptions, Control, Tree};

/// What the values begin with.
const ALGORITHM: &[u8] = b"sha256:";
/// Bytes of a digest.
pub const DIGEST_LEN: usize = 32;
/// Bytes that are hashed to see how long that takes.
const MEASURED_LEN: usize = 4 << 20;
/// Bytes read at a time.
const STEP: u64 = 256 << 10;

/// The values of all files that are not empty. A file that cannot be read has none where such files are skipped.
///
/// # Errors
/// The first file that cannot be read, otherwise; an interruption.
pub fn all(
    tree: &Tree,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<HashMap<NodeId, Box<[u8]>>, BuildError> {
    let jobs: Vec<_> = files(tree, options).map(|job| Costed { job, cost: SURVEY_COST }).collect();
    let worker = || {
        let mut buf = Vec::new();
        Ok(move |(id, len): (NodeId, u64)| {
            control.check()?;
            let value = tree.open(id).and_then(|mut content| {
                let value = value(&mut *content, len, &mut buf);
                value.map_err(|source| BuildError::Read { path: tree.path(id), source })
            });
            Ok::<_, BuildError>((id, skippable(value, options)?))
        })
    };
    let mut values = HashMap::with_capacity(jobs.len());
    pool::run(options.threads, options.backlog(), jobs.into_iter(), worker, |(id, value)| {
        values.extend(value.ok().map(|value| (id, value)));
        Ok(())
    })?;
    Ok(values)
}

/// Values as long as those of all files, of which no two are equal.
pub fn imagined(tree: &Tree, options: &BuildOptions) -> HashMap<NodeId, Box<[u8]>> {
    let value = |id: NodeId| [ALGORITHM, &[0; DIGEST_LEN - 8], &(id.idx() as u64).to_le_bytes()].concat().into();
    files(tree, options).map(|(id, _)| (id, value(id))).collect()
}

/// CPU time that takes a byte into a digest.
pub fn secs_per_byte() -> f64 {
    let (bytes, start) = (vec![1; MEASURED_LEN], thread_cpu());
    std::hint::black_box(Sha256::digest(&bytes));
    (thread_cpu() - start).as_secs_f64() / MEASURED_LEN as f64
}

/// Files that have one, with their lengths.
fn files(tree: &Tree, options: &BuildOptions) -> impl Iterator<Item = (NodeId, u64)> {
    let wanted = options.content_digests.is_some();
    tree.nodes().filter_map(move |(id, node)| match node.kind {
        Kind::File { len, .. } if len > 0 && wanted => Some((id, len)),
        _ => None,
    })
}

fn value(content: &mut dyn Content, len: u64, buf: &mut Vec<u8>) -> Result<Box<[u8]>, ContentError> {
    let mut hash = Sha256::new();
    for off in (0..len).step_by(STEP as usize) {
        buf.resize(STEP.min(len - off) as usize, 0);
        content.read_exact_at(buf, off)?;
        hash.update(&*buf);
    }
    content.verify_unchanged()?;
    Ok([ALGORITHM, &hash.finalize()].concat().into())
}
