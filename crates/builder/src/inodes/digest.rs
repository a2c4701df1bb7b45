//! Digests of contents that are stored beside inodes, so that readers can verify and share them.

use std::collections::HashMap;
use std::ops::Range;

use crate::context::Context;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::hole::{self, Holes, data_runs};
use crate::read::{Digests, Hashes, PIECE_COST, skippable};
use kiln_digest::contents::{ContentDigest, ContentHash, ContentHasher};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Content, ContentError, DigestMismatch, DigestOf, Kind, NodeId, StoredDigest, Tree};

/// Zeros that stand for holes are hashed so many at a time, before an interruption is looked for.
const ZEROS_LEN: u64 = 64 << 10;

/// Returns attributes as long as the digests of all files, no two of them equal: they take the room of the values until
/// the contents have been read.
pub(crate) fn placeholders(tree: &Tree, format: &Format) -> HashMap<NodeId, Box<[u8]>> {
    let value_len = format.metadata.digest_hash.map_or(0, ContentHash::value_len);
    let value = |id: NodeId| {
        let mut value = vec![0; value_len];
        value[value_len - 4..].copy_from_slice(&id.0.to_le_bytes());
        value.into()
    };
    files(tree, format).map(|(id, ..)| (id, value(id))).collect()
}

/// Returns the values of all files that are not empty: those that an image stores for the contents, else those
/// `computed` as the contents were read, else those that the base stores for files that are reused from it. Only files
/// of which parts are reused, or for which the base has none of this function, are read here. Files for which
/// `is_left_out` have none. Contents that differ from a stored digest of another function keep that one.
///
/// # Errors
/// The first file that cannot be read, unless such files are skipped; an interruption.
pub(crate) fn values(
    computed: impl Fn(NodeId) -> Option<ContentDigest> + Sync,
    is_reused: impl Fn(NodeId) -> bool + Sync,
    is_left_out: impl Fn(NodeId) -> bool,
    context: Context<'_>,
) -> Result<HashMap<NodeId, Box<[u8]>>, BuildError> {
    let Context { tree, format, control, .. } = context;
    let hash = format.metadata.digest_hash;
    let jobs = files(tree, format).filter(|(id, ..)| !is_left_out(*id));
    let jobs: Vec<_> = jobs.map(|job| Costed { job, cost: PIECE_COST }).collect();
    let worker = || {
        let (mut buf, is_reused, computed) = (Vec::new(), &is_reused, &computed);
        Ok(move |(id, len, sparse): (NodeId, u64, bool)| {
            control.check()?;
            let digest = match tree.stored_digest(id) {
                Ok(Some(StoredDigest { digest, of, .. }))
                    if Some(digest.hash()) == hash && (of == DigestOf::Contents || is_reused(id)) =>
                {
                    Ok(digest)
                }
                Ok(stored) => match computed(id) {
                    Some(computed) => Ok(computed),
                    None => {
                        let stored = stored.filter(|stored| stored.of == DigestOf::Contents);
                        Hashed::open((id, len, sparse), context).and_then(|file| file.digest(stored, &mut buf))
                    }
                },
                Err(error) => Err(error.into()),
            };
            Ok::<_, BuildError>((id, skippable(digest, format)?))
        })
    };
    let mut values = HashMap::new();
    ordered::run(format.work.readers, format.work.read_ahead(), jobs.into_iter(), worker, |(id, digest)| {
        let value = digest.ok().map(|digest| digest.value().into());
        values.extend(value.map(|value| (id, value)));
        Ok(())
    })?;
    Ok(values)
}

/// Returns the error of contents that do not have the stored digest. One of `computed` has its function.
pub(crate) fn mismatch(stored: &StoredDigest, computed: &[ContentDigest]) -> Option<ContentError> {
    let StoredDigest { digest: stored, image, .. } = stored;
    let computed = *computed.iter().find(|one| one.hash() == stored.hash())?;
    let mismatch = || DigestMismatch { image: image.clone(), stored: *stored, computed };
    (computed != *stored).then(|| Box::new(mismatch()).into())
}

/// Returns the files that have a digest, with their lengths, and with flags that tell which ones may have holes.
pub(crate) fn files(tree: &Tree, format: &Format) -> impl Iterator<Item = (NodeId, u64, bool)> {
    let wanted = format.metadata.digest_hash.is_some();
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

    /// Returns the digest of the contents, which are compared with the one that a source stores for them. If they
    /// differ and the build keeps going, returns the stored one.
    ///
    /// # Errors
    /// A file that cannot be read, or differs from its stored digest; an interruption.
    fn digest(mut self, stored: Option<StoredDigest>, buf: &mut Vec<u8>) -> Result<ContentDigest, BuildError> {
        let Context { tree, format, control, .. } = self.context;
        let failed = |source| BuildError::Read { path: tree.path(self.id), source };
        let own = format.metadata.digest_hash;
        let hashes = Hashes::comparing(own, stored.as_ref().map(|stored| stored.digest.hash()));
        let digests = hash(&mut *self.content, (self.len, &self.holes), (hashes, buf), control, failed)?;
        self.content.verify_unchanged().map_err(failed)?;
        match stored.and_then(|stored| Some((mismatch(&stored, &digests)?, stored.digest))) {
            Some((_, stored)) if format.work.keep_going => Ok(stored),
            Some((error, _)) => Err(failed(error)),
            None => Ok(digests[0]),
        }
    }
}

/// Hashes contents without reading holes: their zeros come from memory.
fn hash(
    content: &mut dyn Content,
    (len, holes): (u64, &[Range<u64>]),
    (hashes, buf): (Hashes, &mut Vec<u8>),
    control: &Control<'_>,
    failed: impl Fn(ContentError) -> BuildError,
) -> Result<Digests, BuildError> {
    let mut digest = FileDigest::new(hashes);
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

/// Digests of a file, of which pieces arrive in order. Zeros stand between them.
pub(crate) struct FileDigest {
    /// Its functions.
    pub hashes: Hashes,
    hashers: Vec<ContentHasher>,
    /// Byte behind the last piece.
    end: u64,
}

impl FileDigest {
    /// Starts with an empty file.
    pub(crate) fn new(hashes: Hashes) -> Self {
        Self { hashers: hashes.own.into_iter().chain(hashes.stored).map(ContentHasher::new).collect(), hashes, end: 0 }
    }

    /// Adds the bytes from `start` on.
    ///
    /// # Errors
    /// An interruption.
    pub(crate) fn add(&mut self, text: &[u8], start: u64, control: &Control<'_>) -> Result<(), BuildError> {
        self.add_zeros(start, control)?;
        self.hashers.iter_mut().for_each(|hasher| hasher.update(text));
        self.end += text.len() as u64;
        Ok(())
    }

    /// Returns the digests of a file of `len` bytes, that of the image's function first.
    ///
    /// # Errors
    /// An interruption.
    pub(crate) fn finish(mut self, len: u64, control: &Control<'_>) -> Result<Digests, BuildError> {
        self.add_zeros(len, control)?;
        Ok(self.hashers.into_iter().map(ContentHasher::finish).collect())
    }

    /// Adds zeros up to byte `end` of the file.
    fn add_zeros(&mut self, end: u64, control: &Control<'_>) -> Result<(), BuildError> {
        while self.end < end {
            control.check()?;
            let step = (end - self.end).min(ZEROS_LEN);
            self.hashers.iter_mut().for_each(|hasher| hasher.update_zeros(step));
            self.end += step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_digest::Algorithm;
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
            let hashes = Hashes::comparing(Some(ContentHash::FsVerity(Algorithm::Sha256)), Some(ContentHash::Sha256));
            let expected = hashes.digests(&text);
            let mut content = Sparse { text, holes: holes.clone() };
            let control = Control { stop: &AtomicBool::new(false), progress: &|_| {} };
            let failed = |source| BuildError::Read { path: Vec::new(), source };
            let found = hash(&mut content, (LEN, &holes), (hashes, &mut Vec::new()), &control, failed);
            assert_eq!(found.unwrap(), expected, "{holes:?}");
        }
    }
}
