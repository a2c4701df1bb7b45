//! What was seen of one sample.

use crate::pack::chunks::ChunkText;
use crate::pack::worker::{PackOutput, Shape};

/// What was seen of a job, of a piece, or at an LZ4 sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    /// Which job, if it was packed whole.
    pub part: Option<u32>,
    /// Bytes of text that were packed; 0 of an LZ4 sample.
    pub text: u64,
    /// Bytes of blocks that they became.
    pub blocks: u64,
    /// Bytes that go beside the inode.
    pub inline: u64,
    /// It stays uncompressed.
    pub is_flat: bool,
    /// It is in chunks.
    pub in_chunks: bool,
    /// It is all of its file.
    pub is_file: bool,
    /// What LZ4 makes of the text, by its length; not of jobs.
    pub lz4: f64,
    /// CPU time that packing took.
    pub secs: f64,
}

impl Observed {
    /// Whether nothing was packed.
    pub(super) fn is_lz4_sample(&self) -> bool {
        self.text == 0
    }

    pub(super) fn of(text: u64, packed: &PackOutput, secs: f64) -> Self {
        let (is_flat, inline) = match &packed.shape {
            Shape::Flat { tail } => (true, tail.len()),
            Shape::Chunks { .. } => (true, 0),
            Shape::Extents { inline, .. } => (false, inline.len()),
        };
        let blocks = packed.bytes.len() as u64 - zeros_len(packed);
        Self { text, blocks, inline: inline as u64, is_flat, secs, ..Self::default() }
    }
}

/// Chunks of a part, with their lengths.
pub(super) fn chunks(packed: &PackOutput) -> impl Iterator<Item = (u64, ChunkText)> {
    let (chunk_bits, texts) = match &packed.shape {
        Shape::Chunks { chunk_bits, texts } => (*chunk_bits, &texts[..]),
        _ => (0, &[][..]),
    };
    let lens = packed.bytes.chunks(1 << chunk_bits).map(|chunk| chunk.len() as u64);
    texts.iter().copied().zip(lens).map(|(text, len)| (len, text))
}

/// Bytes of chunks that are not stored.
fn zeros_len(packed: &PackOutput) -> u64 {
    chunks(packed).filter(|(_, text)| matches!(text, ChunkText::Zeros)).map(|(len, _)| len).sum()
}
