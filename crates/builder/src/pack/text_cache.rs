//! Decoded text of stored pclusters.

use kiln_codec::{DecodeLimits, Decoder};
use std::collections::VecDeque;

/// Decoded pclusters that are kept: equal text is compared front to back, often at several places by turns.
const KEPT: usize = 4;

/// Decoded pclusters.
pub(super) struct TextCache {
    /// The decoder.
    pub decoder: Decoder,
    /// Places, and text; the latest last.
    pub kept: VecDeque<(Source, Vec<u8>)>,
    /// Stored bytes.
    pub raw: Vec<u8>,
    /// Stored bytes that were read.
    pub read_back: u64,
    /// Most bytes of text that are kept; one text may exceed it.
    budget: usize,
}

impl TextCache {
    /// Creates a cache that keeps at most `budget` bytes of text, or one text.
    pub(super) fn new(budget: usize) -> Self {
        let decoder = Decoder::new(DecodeLimits::default());
        Self { decoder, kept: VecDeque::new(), raw: Vec::new(), read_back: 0, budget }
    }

    /// Makes room for a text of `len` bytes. Returns a buffer for it, which is empty.
    pub(super) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = Vec::new();
        while self.kept.len() >= KEPT || !self.kept.is_empty() && self.kept_len() + len > self.budget {
            buffer = self.kept.pop_front().map(|(_, text)| text).unwrap_or_default();
        }
        buffer.clear();
        // A much longer buffer would stay as long as its text.
        if buffer.capacity() / 2 > len {
            buffer = Vec::new();
        }
        buffer.reserve_exact(len);
        buffer
    }

    fn kept_len(&self) -> usize {
        self.kept.iter().map(|(_, text)| text.len()).sum()
    }
}

/// Place of a pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// At this byte of the image.
    Image(u64),
    /// At this byte of the tails.
    Tail(u64),
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
            cache.kept.push_back((Source::Image(0), text));
            cache.kept.iter().map(|(_, text)| text.len()).collect::<Vec<_>>()
        };
        let kept = [20, 30, 10, 40, 5, 90, 200, 60].map(&mut lens);
        let expected: [&[usize]; 8] =
            [&[20], &[20, 30], &[20, 30, 10], &[20, 30, 10, 40], &[30, 10, 40, 5], &[5, 90], &[200], &[60]];
        assert_eq!(kept, expected);
    }
}
