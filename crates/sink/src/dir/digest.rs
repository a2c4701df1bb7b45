//! Digest of a large file whose ranges several workers write in any order.
//!
//! A digest needs all bytes from front to back. The worker that writes the next range updates it
//! along the way. Ranges that were written earlier are read back, which is cheap because they are
//! still in the page cache.

use super::content;
use super::node::Entry;
use super::run::Extraction;
use crate::SinkError;
use kiln_read::DigestVerifier;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;

/// Progress of the digest of a file.
pub(super) struct DigestChain {
    /// `None` while the worker that writes the next range holds it.
    digest: Option<DigestVerifier>,
    /// First byte that the digest has not seen.
    next: u64,
    /// Written ranges beyond `next`: first byte -> (end, true if it is a hole).
    written: BTreeMap<u64, (u64, bool)>,
}

impl DigestChain {
    pub(super) fn new(digest: DigestVerifier) -> Self {
        Self { digest: Some(digest), next: 0, written: BTreeMap::new() }
    }

    /// Takes the digest, for the worker that writes from byte `start` on, if `start` comes next.
    pub(super) fn turn(&mut self, start: u64) -> Option<DigestVerifier> {
        self.digest.take_if(|_| self.next == start)
    }

    /// Notes that `range` is written or is a hole. `shown` is the digest if it has seen the range.
    pub(super) fn note(&mut self, range: Range<u64>, is_hole: bool, shown: Option<DigestVerifier>) {
        match shown {
            Some(digest) => (self.digest, self.next) = (Some(digest), range.end),
            None => drop(self.written.insert(range.start, (range.end, is_hole))),
        }
    }

    /// Takes the next written range, together with the digest.
    pub(super) fn behind(&mut self) -> Option<Behind> {
        let (end, is_hole) = *self.written.get(&self.next).filter(|_| self.digest.is_some())?;
        let digest = self.digest.take()?;
        self.written.remove(&self.next);
        Some(Behind { range: self.next..end, is_hole, digest })
    }

    /// Returns the digest of a file of `size` bytes, all of which are written.
    pub(super) fn finish(self, size: u64) -> DigestVerifier {
        self.digest.filter(|_| self.next == size).expect("a file that is whole was seen by its digest")
    }
}

/// A written range that the digest has yet to see.
pub(super) struct Behind {
    pub(super) range: Range<u64>,
    is_hole: bool,
    pub(super) digest: DigestVerifier,
}

impl Behind {
    /// Updates the digest with the range.
    ///
    /// # Errors
    /// The bytes cannot be read back; [`SinkError::Stopped`].
    pub(super) fn show(
        &mut self,
        run: &Extraction<'_>,
        of: (&Entry, &File),
        buffer: &mut [u8],
    ) -> Result<(), SinkError> {
        let Range { start, end } = self.range;
        if self.is_hole {
            self.digest.update_zeros(end - start);
            return Ok(());
        }
        content::read_back(run, of, start..end, buffer, &mut self.digest)
    }
}
