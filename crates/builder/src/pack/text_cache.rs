//! Decoded text of stored pclusters.

use kiln_codec::{DecodeLimits, Decoder, Want};
use kiln_format::Algorithm;
use kiln_format::zmap::HeadKind;
use kiln_parallel::locks::lock;
use kiln_parallel::{Threads, unordered};
use std::collections::VecDeque;
use std::sync::Mutex;

use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;

/// Decoded pclusters.
pub(super) struct TextCache {
    /// Decoders that no thread uses.
    decoders: Mutex<Vec<Decoder>>,
    /// Places, and text; the latest last.
    kept: VecDeque<(Source, Vec<u8>)>,
    kept_len: usize,
    /// Stored bytes that were read.
    pub read_back: u64,
    /// Most bytes of text that are kept; one text may exceed it.
    budget: usize,
}

/// Place of a pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// At this byte of the image.
    Image(u64),
    /// At this byte of the tails.
    Tail(u64),
}

/// A pcluster to be decoded.
pub(super) struct Encoded {
    /// Its place.
    pub place: Source,
    /// Its bytes as stored.
    pub stored: Vec<u8>,
    /// Its extent.
    pub extent: ZExtent,
    /// Its algorithm, unless it is stored as plain text.
    pub algorithm: Option<Algorithm>,
}

impl TextCache {
    /// Creates a cache that keeps at most `budget` bytes of text, or one text.
    pub(super) fn new(budget: usize) -> Self {
        Self { decoders: Mutex::default(), kept: VecDeque::new(), kept_len: 0, read_back: 0, budget }
    }

    /// Returns true if the text of a pcluster is kept; it is the latest one then.
    pub(super) fn find(&mut self, place: Source) -> bool {
        let found = self.kept.iter().position(|(kept, _)| *kept == place).and_then(|at| self.kept.remove(at));
        let is_kept = found.is_some();
        self.kept.extend(found);
        is_kept
    }

    /// Returns the latest text.
    pub(super) fn latest(&self) -> &[u8] {
        self.kept.back().map_or(&[], |(_, text)| text)
    }

    /// Returns the bytes of text that are worth decoding before they are asked for: all of it is still kept then.
    pub(super) fn ahead_len(&self) -> usize {
        self.budget / 2
    }

    /// Decodes pclusters that are not kept, and keeps their texts. The last one is the latest.
    ///
    /// # Errors
    /// A codec that fails.
    pub(super) fn decode_all(&mut self, pclusters: Vec<Encoded>, threads: Threads) -> Result<(), BuildError> {
        let buffers = pclusters.iter().map(|one| self.buffer(one.extent.llen as usize)).collect::<Vec<_>>();
        let mut jobs: Vec<_> = pclusters.iter().zip(buffers).map(|(one, text)| (one, text, Ok(()))).collect();
        let decoders = &self.decoders;
        unordered::run(threads, jobs.iter_mut().collect(), || {
            |(encoded, text, outcome): &mut (&Encoded, Vec<u8>, Result<(), BuildError>)| {
                let spare = lock(decoders).pop();
                let mut decoder = spare.unwrap_or_else(|| Decoder::new(DecodeLimits::default()));
                *outcome = encoded.decode(text, &mut decoder);
                lock(decoders).push(decoder);
            }
        });
        for (one, text, outcome) in jobs {
            outcome?;
            self.kept.push_back((one.place, text));
        }
        Ok(())
    }

    /// Makes room for a text of `len` bytes, which counts as kept from now on. Returns a buffer for it.
    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = Vec::new();
        while !self.kept.is_empty() && self.kept_len + len > self.budget {
            buffer = self.kept.pop_front().map(|(_, text)| text).unwrap_or_default();
            self.kept_len -= buffer.len();
        }
        self.kept_len += len;
        // A much longer buffer would stay as long as its text.
        if buffer.capacity() / 2 > len || buffer.capacity() < len {
            buffer = Vec::new();
        }
        buffer
    }

    /// Forgets all text, which may lie elsewhere now.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.kept_len = 0;
    }
}

impl Encoded {
    /// Replaces `text` by the plain text.
    fn decode(&self, text: &mut Vec<u8>, decoder: &mut Decoder) -> Result<(), BuildError> {
        let len = self.extent.llen as usize;
        // All of it is overwritten.
        text.truncate(len);
        text.reserve_exact(len - text.len());
        text.resize(len, 0);
        match (self.extent.kind, self.algorithm) {
            (HeadKind::Plain, _) => text.copy_from_slice(&self.stored[..len]),
            (_, Some(algorithm)) => {
                // Padding precedes the stream.
                let padding_len = self.stored.iter().position(|&byte| byte != 0).unwrap_or(0);
                decoder.decode(algorithm, &self.stored[padding_len..], text, Want::Whole)?;
            }
            _ => return Err(BuildError::Internal("compressed text has no algorithm".to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_within_the_budget_and_one_beyond_it() {
        let mut cache = TextCache::new(100);
        let mut lens = |len: usize| {
            let mut text = cache.buffer(len);
            let room = text.capacity();
            assert!(room == 0 || (len..=2 * len + 1).contains(&room), "used again, and not much longer");
            text.resize(len, 0);
            cache.kept.push_back((Source::Image(0), text));
            cache.kept.iter().map(|(_, text)| text.len()).collect::<Vec<_>>()
        };
        let kept = [20, 30, 10, 40, 5, 90, 200, 60].map(&mut lens);
        let expected: [&[usize]; 8] =
            [&[20], &[20, 30], &[20, 30, 10], &[20, 30, 10, 40], &[30, 10, 40, 5], &[5, 90], &[200], &[60]];
        assert_eq!(kept, expected);
    }
}
