//! Decoded text of stored pclusters.

use kiln_codec::{DecodeLimits, Decoder, Want};
use kiln_format::Algorithm;
use kiln_format::zmap::HeadKind;
use std::collections::VecDeque;

use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;

/// Bytes of decoded text that are kept: equal text is compared front to back, often at several places by turns. On
/// kernel sources half as many pclusters are read back as with a third of it.
const KEPT_LEN: usize = 4 << 20;
/// Decoded pclusters that are kept in any case if the budget has room for them.
const KEPT_MIN: usize = 4;

/// Decoded pclusters.
pub(super) struct TextCache {
    decoder: Decoder,
    /// Places, and text; the latest last.
    kept: VecDeque<(Source, Vec<u8>)>,
    kept_len: usize,
    /// Buffer for stored bytes.
    pub raw: Vec<u8>,
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

impl TextCache {
    /// Creates a cache that keeps at most `budget` bytes of text, or one text.
    pub(super) fn new(budget: usize) -> Self {
        let decoder = Decoder::new(DecodeLimits::default());
        Self { decoder, kept: VecDeque::new(), kept_len: 0, raw: Vec::new(), read_back: 0, budget }
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

    /// Decodes a pcluster from its stored bytes, and keeps its text.
    ///
    /// # Errors
    /// A codec that fails.
    pub(super) fn decode(
        &mut self,
        place: Source,
        raw: &[u8],
        extent: &ZExtent,
        algorithm: Option<Algorithm>,
    ) -> Result<(), BuildError> {
        let len = extent.llen as usize;
        let mut text = self.buffer(len);
        text.resize(len, 0);
        match (extent.kind, algorithm) {
            (HeadKind::Plain, _) => text.copy_from_slice(&raw[..len]),
            (_, Some(algorithm)) => {
                // Padding precedes the stream.
                let stream = &raw[raw.iter().position(|&byte| byte != 0).unwrap_or(0)..];
                self.decoder.decode(algorithm, stream, &mut text, Want::Whole)?;
            }
            _ => return Err(BuildError::Internal("compressed text has no algorithm".to_owned())),
        }
        self.kept_len += len;
        self.kept.push_back((place, text));
        Ok(())
    }

    /// Makes room for a text of `len` bytes. Returns a buffer for it, which is empty.
    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = Vec::new();
        while !self.kept.is_empty() && self.kept_len + len > self.most() {
            buffer = self.kept.pop_front().map(|(_, text)| text).unwrap_or_default();
            self.kept_len -= buffer.len();
        }
        buffer.clear();
        // A much longer buffer would stay as long as its text.
        if buffer.capacity() / 2 > len {
            buffer = Vec::new();
        }
        buffer.reserve_exact(len);
        buffer
    }

    /// Returns the most bytes of text that are kept now.
    fn most(&self) -> usize {
        if self.kept.len() < KEPT_MIN { self.budget } else { self.budget.min(KEPT_LEN) }
    }

    /// Forgets all text, which may lie elsewhere now.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.kept_len = 0;
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
            assert!(text.is_empty() && text.capacity() >= len);
            text.resize(len, 0);
            cache.kept_len += len;
            cache.kept.push_back((Source::Image(0), text));
            cache.kept.iter().map(|(_, text)| text.len()).collect::<Vec<_>>()
        };
        let kept = [20, 30, 10, 40, 5, 90, 200, 60].map(&mut lens);
        let expected: [&[usize]; 8] =
            [&[20], &[20, 30], &[20, 30, 10], &[20, 30, 10, 40], &[30, 10, 40, 5], &[5, 90], &[200], &[60]];
        assert_eq!(kept, expected);
    }
}
