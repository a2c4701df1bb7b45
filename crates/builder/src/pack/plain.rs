//! Uncompressed files: contiguous, or in chunks, which may have a device of their own.

use kiln_format::Blkaddr;

use super::{Packing, Stored};
use crate::error::BuildError;
use crate::pack::append::Destination;
use crate::pack::chunks::ChunkText;
use crate::pack::jobs::PackJob;
use crate::plan::file::Storage;

impl Packing<'_, '_> {
    pub(super) fn append_chunks(
        &mut self,
        file: u32,
        part: &PackJob,
        chunk_bits: u8,
        bytes: &[u8],
        texts: &[ChunkText],
    ) -> Result<(), BuildError> {
        let stored = &mut self.packed.stored[file as usize];
        if *stored == Stored::Nothing {
            *stored = Stored::Chunks { chunk_bits, runs: Box::default() };
        }
        let Stored::Chunks { runs, .. } = stored else {
            return Err(BuildError::Internal(format!("file {file} is stored twice")));
        };
        let device = self.data.device(Destination::Chunks);
        self.chunks.append(device, (part.range.start >> chunk_bits, chunk_bits), bytes, texts, runs)
    }

    pub(super) fn append_flat(
        &mut self,
        file: u32,
        part: &PackJob,
        at: Blkaddr,
        blocks: &[u8],
        tail: &[u8],
    ) -> Result<(), BuildError> {
        let tail = if tail.is_empty() { None } else { Some(self.packed.tails.push(tail)?) };
        let block_bits = self.block_bits;
        let stored = &mut self.packed.stored[file as usize];
        match (&self.plan.files[file as usize].storage, &mut *stored) {
            (Storage::Chunks { chunk_bits, .. }, stored) => {
                let bits = *chunk_bits;
                if *stored == Stored::Nothing {
                    *stored = Stored::Chunks { chunk_bits: bits, runs: Box::default() };
                }
                let Stored::Chunks { runs, .. } = stored else {
                    return Err(BuildError::Internal(format!("file {file} is stored twice")));
                };
                let (first, end) = (part.range.start >> bits, part.range.end.div_ceil(1 << bits));
                let blocks_per_chunk = 1 << (bits - block_bits.bits());
                match runs.last_mut() {
                    // The part continues the run before it, perhaps inside a chunk.
                    Some((run, count, _)) if *run + *count >= first => *count = end - *run,
                    _ => {
                        debug_assert!(part.range.start.is_multiple_of(blocks_per_chunk << block_bits.bits()));
                        runs.push((first, end - first, at));
                    }
                }
            }
            (_, Stored::Flat(start)) => *stored = Stored::flat(Some(*start), tail),
            (_, stored) => *stored = Stored::flat((!blocks.is_empty()).then_some(at), tail),
        }
        Ok(())
    }
}
