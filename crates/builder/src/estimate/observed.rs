//! Results of packing a sample.

use kiln_format::Blkaddr;
use std::collections::HashSet;

use super::drawn::{DrawnFile, PIECE_LEN};
use crate::format::Format;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::Stored;
use crate::pack::chunks::ChunkRun;
use crate::pack::jobs::Task;

/// Results of a stratum's sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// The files of the sample.
    pub observed: Vec<Observed>,
    /// Ratios that LZ4 reaches at the other places.
    pub lz4_samples: Vec<f64>,
    /// Bytes of text in all files.
    pub text: u64,
    /// CPU time in seconds of reading and packing them.
    pub secs: f64,
}

/// Result of packing a job or a piece.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    /// Index of the job, if it was packed whole.
    pub part: Option<u32>,
    /// Bytes of text that count.
    pub text: u64,
    /// Bytes of blocks that store them.
    pub blocks: u64,
    /// Bytes that are stored beside the inode.
    pub inline: u64,
    /// It stays uncompressed.
    pub is_flat: bool,
    /// It is in chunks.
    pub in_chunks: bool,
    /// It is all of its file.
    pub is_file: bool,
    /// Ratio that LZ4 reaches on the text; only for pieces.
    pub lz4: f64,
}

impl Observed {
    /// Reads off the result of `len` bytes of text. `chunks` are those of the files before.
    pub(super) fn of(
        stored: &Stored,
        len: u64,
        drawn: &DrawnFile,
        format: &Format,
        chunks: &mut HashSet<Blkaddr>,
    ) -> Self {
        let block_len = format.block_bits.len();
        let is_file = matches!(drawn.job.task, Task::Whole { .. });
        let whole = Self { part: drawn.member, text: len, is_file, is_flat: true, ..Self::default() };
        match stored {
            Stored::Chunks { chunk_bits, runs } => {
                let (bits, blocks_per_chunk) = (*chunk_bits, 1 << (chunk_bits - format.block_bits.bits()));
                let all = runs.iter().flat_map(|&ChunkRun { first, count, start, .. }| {
                    (0..count).map(move |n| (first + n, Blkaddr(start.0 + n * blocks_per_chunk)))
                });
                let new =
                    all.filter(|&(_, start)| chunks.insert(start)).map(|(n, _)| (len - (n << bits)).min(1 << bits));
                Self { blocks: new.map(|len| len.next_multiple_of(block_len)).sum(), in_chunks: true, ..whole }
            }
            Stored::Compressed(extents) => {
                let inline = extents.inline.map_or(0, |tail| u64::from(tail.len));
                let counts = |extent: &&ZExtent| drawn.member.is_some() || extent.la < PIECE_LEN;
                let counted = || extents.list.iter().filter(counts);
                let (text, bytes) = match drawn.member {
                    Some(_) => (len, extents.bytes),
                    None => (
                        counted().map(|extent| u64::from(extent.llen)).sum(),
                        counted().map(|extent| u64::from(extent.plen)).sum(),
                    ),
                };
                Self { text, blocks: bytes - inline, inline, is_flat: false, ..whole }
            }
            // All of its chunks are shared with another file.
            Stored::Nothing => Self { in_chunks: true, ..whole },
            stored => {
                let inline = stored.as_flat().and_then(|(_, tail)| tail).map_or(0, |tail| u64::from(tail.len));
                Self { blocks: (len - inline).next_multiple_of(block_len), inline, ..whole }
            }
        }
    }
}
