//! Decoded text of stored pclusters.

use kiln_codec::{DecodeLimits, Decoder};
use std::collections::VecDeque;

/// Decoded pclusters that are kept: equal text is compared front to back, often at several places by turns.
pub(super) const KEPT: usize = 4;

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
}

impl Default for TextCache {
    fn default() -> Self {
        let decoder = Decoder::new(DecodeLimits::default());
        Self { decoder, kept: VecDeque::new(), raw: Vec::new(), read_back: 0 }
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
