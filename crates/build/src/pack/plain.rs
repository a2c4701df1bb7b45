//! Uncompressed files: contiguous, or in chunks, which may have a device of their own.

use super::{Packing, Stored};
use crate::BuildError;
use crate::chunks::ChunkText;
use crate::device::Device;
use crate::jobs::{Part, Stream};
use crate::part::Shape;
use crate::plan::Storage;
use kiln_format::Blkaddr;

/// What bytes are, for the device that they go to.
#[derive(Clone, Copy)]
pub(super) enum Home {
    Image,
    /// Data of a file in chunks.
    Chunks,
}

impl<'a> Packing<'a> {
    /// Where the bytes of a part go.
    pub(super) fn home(&self, stream: Stream, shape: &Shape) -> Home {
        let is_in_chunks = |file: u32| matches!(self.plan.files[file as usize].storage, Storage::Chunks { .. });
        match (shape, stream) {
            (Shape::Chunks { .. }, _) => Home::Chunks,
            (Shape::Flat { .. }, Stream::File(file)) if is_in_chunks(file) => Home::Chunks,
            _ => Home::Image,
        }
    }

    pub(super) fn device(&mut self, home: Home) -> &mut Device<'a> {
        match (home, &mut self.blob) {
            (Home::Chunks, Some(blob)) => blob,
            _ => &mut self.image,
        }
    }

    pub(super) fn append_chunks(
        &mut self,
        file: u32,
        part: &Part,
        chunk_bits: u8,
        bytes: &[u8],
        texts: &[ChunkText],
    ) -> Result<(), BuildError> {
        let stored = &mut self.packed.stored[file as usize];
        if *stored == Stored::Nothing {
            *stored = Stored::Chunks { chunk_bits, runs: Vec::new() };
        }
        let Stored::Chunks { runs, .. } = stored else {
            return Err(BuildError::Internal(format!("file {file} is stored twice")));
        };
        let device = match &mut self.blob {
            Some(blob) => blob,
            None => &mut self.image,
        };
        self.chunks.append(device, (part.range.start >> chunk_bits, chunk_bits), bytes, texts, runs)
    }

    pub(super) fn append_flat(
        &mut self,
        file: u32,
        part: &Part,
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
                    *stored = Stored::Chunks { chunk_bits: bits, runs: Vec::new() };
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
            (_, Stored::Flat { tail: old, .. }) => *old = tail.or(*old),
            (_, stored) => {
                let start = if blocks.is_empty() { Blkaddr(0) } else { at };
                *stored = Stored::Flat { start, tail };
            }
        }
        Ok(())
    }
}
