//! Digests of contents that are stored beside inodes, so that readers can share equal files.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ops::Range;

use crate::context::Context;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::hole::{self, Holes, data_runs};
use crate::read::{PIECE_COST, skippable};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Content, ContentError, DigestMismatch, DigestOf, Kind, NodeId, StoredDigest, Tree};

/// Prefix of the values.
const ALGORITHM: &[u8] = b"sha256:";
/// Length of a digest in bytes.
pub(crate) const DIGEST_LEN: usize = 32;
/// Length of a value in bytes.
pub(crate) const VALUE_LEN: usize = ALGORITHM.len() + DIGEST_LEN;
/// Zeros that stand for holes in hashing.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Returns attributes as long as the digests of all files, no two of them equal: they take the room of the values until
/// the contents have been read.
pub(crate) fn placeholders(tree: &Tree, format: &Format) -> HashMap<NodeId, Box<[u8]>> {
    let value = |id: NodeId| {
        let mut value = [0; VALUE_LEN];
        value[VALUE_LEN - 4..].copy_from_slice(&id.0.to_le_bytes());
        value.into()
    };
    files(tree, format).map(|(id, ..)| (id, value(id))).collect()
}

/// Returns the values of all files that are not empty: those that an image stores for the contents, else those
/// `computed` as the contents were read, else those that the base stores for files that are reused from it. Only files
/// of which parts are reused, or for which the base has none, are read here. Files for which `is_left_out` have none.
///
/// # Errors
/// The first file that cannot be read, unless such files are skipped; an interruption.
pub(crate) fn values(
    computed: impl Fn(NodeId) -> Option<[u8; DIGEST_LEN]> + Sync,
    is_reused: impl Fn(NodeId) -> bool + Sync,
    is_left_out: impl Fn(NodeId) -> bool,
    context: Context<'_>,
) -> Result<HashMap<NodeId, Box<[u8]>>, BuildError> {
    let Context { tree, format, control, .. } = context;
    let jobs = files(tree, format).filter(|(id, ..)| !is_left_out(*id));
    let jobs: Vec<_> = jobs.map(|job| Costed { job, cost: PIECE_COST }).collect();
    let worker = || {
        let (mut buf, is_reused, computed) = (Vec::new(), &is_reused, &computed);
        Ok(move |(id, len, sparse): (NodeId, u64, bool)| {
            control.check()?;
            let digest = match tree.stored_digest(id) {
                Ok(Some(stored)) if stored.of == DigestOf::Contents || is_reused(id) => Ok(stored.sha256),
                Ok(_) => match computed(id) {
                    Some(computed) => Ok(computed),
                    None => Hashed::open((id, len, sparse), context).and_then(|file| file.digest(&mut buf)),
                },
                Err(error) => Err(error.into()),
            };
            Ok::<_, BuildError>((id, skippable(digest, format)?))
        })
    };
    let mut values = HashMap::new();
    ordered::run(format.work.readers, format.work.read_ahead(), jobs.into_iter(), worker, |(id, digest)| {
        let value = digest.ok().map(|digest| [ALGORITHM, &digest].concat().into());
        values.extend(value.map(|value| (id, value)));
        Ok(())
    })?;
    Ok(values)
}

/// Returns the error of contents whose SHA-256 is not the stored one.
pub(crate) fn mismatch(stored: StoredDigest, computed: [u8; DIGEST_LEN]) -> Option<ContentError> {
    let StoredDigest { sha256: stored, image, .. } = stored;
    (computed != stored).then(|| Box::new(DigestMismatch { image, stored, computed }).into())
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
    let mut digest = FileDigest::default();
    for run in data_runs(len, holes) {
        let mut off = run.start;
        while off < run.end {
            buf.resize((run.end - off).min(STEP) as usize, 0);
            content.read_exact_at(buf, off).map_err(&failed)?;
            digest.add(buf, off, control)?;
            off += buf.len() as u64;
        }
    }
    digest.finish(len, control)
}

/// Bytes that are hashed at a time.
const STEP: u64 = 256 << 10;

/// SHA-256 of a file, of which pieces arrive in order. Zeros stand between them.
#[derive(Clone, Default)]
pub(crate) struct FileDigest {
    hash: Sha256,
    /// Byte behind the last piece.
    end: u64,
}

impl FileDigest {
    /// Adds the bytes from `start` on.
    ///
    /// # Errors
    /// An interruption.
    pub(crate) fn add(&mut self, text: &[u8], start: u64, control: &Control<'_>) -> Result<(), BuildError> {
        self.add_zeros(start, control)?;
        self.hash.update(text);
        self.end += text.len() as u64;
        Ok(())
    }

    /// Returns the digest of a file of `len` bytes.
    ///
    /// # Errors
    /// An interruption.
    pub(crate) fn finish(mut self, len: u64, control: &Control<'_>) -> Result<[u8; DIGEST_LEN], BuildError> {
        self.add_zeros(len, control)?;
        Ok(self.hash.finalize().into())
    }

    /// Adds zeros up to byte `end` of the file.
    fn add_zeros(&mut self, end: u64, control: &Control<'_>) -> Result<(), BuildError> {
        while self.end < end {
            control.check()?;
            let step = (end - self.end).min(ZEROS.len() as u64);
            self.hash.update(&ZEROS[..step as usize]);
            self.end += step;
        }
        Ok(())
    }
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
