//! Uncompressed files: contiguous, or in chunks, which may have a device of their own.

use kiln_format::Blkaddr;

use super::{Packing, Stored};
use crate::error::BuildError;
use crate::pack::append::Destination;
use crate::pack::chunks::{ChunkRun, ChunkedText};
use crate::pack::jobs::PackJob;

impl Packing<'_, '_> {
    pub(super) fn append_chunks(
        &mut self,
        file: u32,
        job: &PackJob,
        chunks: ChunkedText<'_>,
    ) -> Result<(), BuildError> {
        let chunk_bits = chunks.chunk_bits;
        let stored = &mut self.stored[file as usize];
        if *stored == Stored::Nothing {
            *stored = Stored::Chunks { chunk_bits, runs: Box::default() };
        }
        let Stored::Chunks { runs, .. } = stored else {
            return Err(BuildError::Internal(format!("file {file} is stored twice")));
        };
        let device = self.data.device(Destination::Chunks);
        self.chunks.append(device, job.range.start >> chunk_bits, chunks, runs)
    }

    /// Appends blocks from `start` on, if there are any, then perhaps a tail.
    pub(super) fn append_flat(
        &mut self,
        file: u32,
        job: &PackJob,
        start: Option<Blkaddr>,
        tail: &[u8],
    ) -> Result<(), BuildError> {
        let tail = if tail.is_empty() { None } else { Some(self.tails.push(tail)?) };
        let block_bits = self.block_bits;
        let device = self.data.device(Destination::Chunks).number;
        let stored = &mut self.stored[file as usize];
        match (job.chunk_bits, &mut *stored) {
            (Some(bits), stored) => {
                if *stored == Stored::Nothing {
                    *stored = Stored::Chunks { chunk_bits: bits, runs: Box::default() };
                }
                let Stored::Chunks { runs, .. } = stored else {
                    return Err(BuildError::Internal(format!("file {file} is stored twice")));
                };
                let (first, end) = (job.range.start >> bits, job.range.end.div_ceil(1 << bits));
                let blocks_per_chunk = 1 << (bits - block_bits.bits());
                match runs.last_mut() {
                    // The part continues the run before it, perhaps inside a chunk.
                    Some(run) if run.first + run.count >= first => run.count = end - run.first,
                    _ => {
                        debug_assert!(job.range.start.is_multiple_of(blocks_per_chunk << block_bits.bits()));
                        let start = start.unwrap_or(Blkaddr(0));
                        runs.push(ChunkRun { first, count: end - first, device, start });
                    }
                }
            }
            (_, Stored::Flat(first)) => *stored = Stored::flat(Some(*first), tail),
            (_, stored) => *stored = Stored::flat(start, tail),
        }
        Ok(())
    }
}
