//! Decompressed contents of a layer's blob, checked against the digest in the image's
//! configuration.
//!
//! The digest covers all bytes of the decompressed layer, including those that no tar reader uses.
//! The decompressed bytes are spooled, so that the layer is decompressed only once.

use std::io;
use std::path::Path;

use super::digest::Hasher;
use crate::archive::left_out::LeftOut;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::input::spool_error::is_of_spool;
use crate::input::tape::Tape;
use crate::source::ScanOptions;
use crate::unknown::refusal;

/// Length in bytes of the pieces that are hashed.
const PIECE_LEN: usize = 1 << 18;

/// Known digests of a layer.
pub(super) struct LayerDigest<'a> {
    /// Index of the layer in its image, from 0.
    pub at: usize,
    /// Digest of the decompressed layer.
    pub diff_id: &'a str,
    /// Digest of the blob, if it was checked.
    pub blob: Option<&'a str>,
}

impl LayerDigest<'_> {
    /// Returns the decompressed contents of the blob `candidate`. A wrong digest is recorded in
    /// `left_out`.
    ///
    /// # Errors
    /// A wrong digest or a stream that cannot be decompressed, unless the scan keeps going;
    /// [`SourceError::Interrupted`].
    pub(super) fn compare<'c>(
        &self,
        candidate: Candidate<'c>,
        left_out: &mut LeftOut<'_>,
        options: &ScanOptions<'_>,
    ) -> Result<Candidate<'c>, SourceError> {
        let (path, source) = (candidate.path(), candidate.options());
        if candidate.compression().is_none() && self.blob == Some(self.diff_id) {
            return Ok(candidate);
        }
        let mut hasher = Hasher::like(self.diff_id).ok_or_else(|| self.unknown(path))?;
        let is_compressed = candidate.compression().is_some();
        let mut tape = candidate.into_tape()?;
        let read = hash(&mut tape, &mut hasher, path, options);
        let is_whole = left_out.survive(b"", read)?.is_some();
        let bytes = match tape.finish() {
            Ok(bytes) => bytes,
            Err(source) => return Err(Unreadable { path: path.to_owned(), source }.into()),
        };
        if is_whole {
            left_out.survive(b"", self.settle(&hasher.finish(), path))?;
        }
        let plain = Candidate::of_bytes(path, source, bytes)?;
        match is_compressed && plain.compression().is_some() {
            true => Err(refusal(&plain)),
            false => Ok(plain),
        }
    }

    fn settle(&self, found: &str, path: &Path) -> Result<(), SourceError> {
        let Self { at, diff_id, .. } = *self;
        match diff_id == found {
            true => Ok(()),
            false => Err(SourceError::Malformed {
                path: path.to_owned(),
                offset: 0,
                reason: format!("rootfs.diff_ids[{at}] = {diff_id}, but the decompressed layer has {found}"),
            }),
        }
    }

    fn unknown(&self, path: &Path) -> SourceError {
        let Self { at, diff_id, .. } = self;
        let reason = format!("rootfs.diff_ids[{at}] = {diff_id:?}: only sha256 and sha512 are supported");
        SourceError::Unsupported { path: path.to_owned(), reason }
    }
}

/// Reads `tape` to its end and hashes it.
fn hash(tape: &mut Tape, hasher: &mut Hasher, path: &Path, options: &ScanOptions<'_>) -> Result<(), SourceError> {
    let mut piece = vec![0; PIECE_LEN];
    loop {
        options.check_stop()?;
        let offset = tape.offset();
        match tape.fill(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => hasher.update(&piece[..len]),
            Err(source) => return Err(failed(path, offset, source)),
        }
    }
}

fn failed(path: &Path, offset: u64, source: io::Error) -> SourceError {
    match is_of_spool(&source) {
        true => Unreadable { path: path.to_owned(), source }.into(),
        false => SourceError::Malformed {
            path: path.to_owned(),
            offset,
            reason: format!("the decompressed layer cannot be read beyond this offset: {source}"),
        },
    }
}
