//! The digest of a large file, whose ranges are written in any order by several workers.
//!
//! A digest is of all bytes from front to back. The worker whose turn it is shows its range as it writes it. What others have written before their turn
//! is read back, which costs little: it was written a moment ago.

use super::content;
use super::node::Entry;
use super::run::Run;
use crate::SinkError;
use kiln_read::DigestVerifier;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;

/// Progress of the digest of a file.
pub(super) struct DigestChain {
    /// `None` while a worker has it, whose turn it is.
    digest: Option<DigestVerifier>,
    /// The first byte that it has not seen.
    next: u64,
    /// Ranges that are written behind it: first byte, byte behind, whether it is a hole.
    written: BTreeMap<u64, (u64, bool)>,
}

impl DigestChain {
    pub(super) fn new(digest: DigestVerifier) -> Self {
        Self { digest: Some(digest), next: 0, written: BTreeMap::new() }
    }

    /// The digest, for who writes from byte `start` on, if it is at this byte.
    pub(super) fn turn(&mut self, start: u64) -> Option<DigestVerifier> {
        self.digest.take_if(|_| self.next == start)
    }

    /// Note that `range` is written, or is a hole. `shown`: the digest has seen it.
    pub(super) fn note(&mut self, range: Range<u64>, is_hole: bool, shown: Option<DigestVerifier>) {
        match shown {
            Some(digest) => (self.digest, self.next) = (Some(digest), range.end),
            None => drop(self.written.insert(range.start, (range.end, is_hole))),
        }
    }

    /// Takes the written range that comes next, with the digest that is to see it.
    pub(super) fn behind(&mut self) -> Option<Behind> {
        let (end, is_hole) = *self.written.get(&self.next).filter(|_| self.digest.is_some())?;
        let digest = self.digest.take()?;
        self.written.remove(&self.next);
        Some(Behind { range: self.next..end, is_hole, digest })
    }

    /// The digest of a file of `size` bytes, all of which are written.
    pub(super) fn finish(self, size: u64) -> DigestVerifier {
        self.digest.filter(|_| self.next == size).expect("a file that is whole was seen by its digest")
    }
}

/// Written range that a digest is to see.
pub(super) struct Behind {
    pub(super) range: Range<u64>,
    is_hole: bool,
    pub(super) digest: DigestVerifier,
}

impl Behind {
    /// Show it.
    ///
    /// # Errors
    /// Bytes that cannot be read back; [`SinkError::Stopped`].
    pub(super) fn show(&mut self, run: &Run<'_>, of: (&Entry, &File), buffer: &mut [u8]) -> Result<(), SinkError> {
        let Range { start, end } = self.range;
        if self.is_hole {
            self.digest.update_zeros(end - start);
            return Ok(());
        }
        content::read_back(run, of, start..end, buffer, &mut self.digest)
    }
}
