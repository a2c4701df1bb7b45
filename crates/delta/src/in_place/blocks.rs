//! Comparison of the new image with the target, block by block.

use kiln_output::Output;

use crate::error::DeltaError;
use crate::in_place::records::{BLOCK_LEN, RecordsWriter};
use crate::in_place::target::Target;

/// Comparer of the new image. Blocks that differ become records, and so does the first block, which
/// is zeros while the others are written. So a journal has at most one block more than
/// [`Header::changed_len`](crate::Header::changed_len) says, plus what precedes its records.
pub(super) struct Blocks<'a, 'b, D> {
    target: &'a Target<D>,
    records: &'a mut RecordsWriter<'b>,
    /// First bytes of an incomplete block.
    front: Vec<u8>,
    /// The target's bytes at the same offset, with zeros after its end.
    there: Vec<u8>,
}

impl<'a, 'b, D: Output> Blocks<'a, 'b, D> {
    pub(super) fn new(target: &'a Target<D>, records: &'a mut RecordsWriter<'b>) -> Self {
        Self { target, records, front: Vec::new(), there: Vec::new() }
    }

    /// Takes the next bytes, which belong at `off`.
    pub(super) fn take(&mut self, mut off: u64, mut bytes: &[u8]) -> Result<(), DeltaError> {
        if !self.front.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_LEN - self.front.len()));
            self.front.extend_from_slice(part);
            (off, bytes) = (off + part.len() as u64, rest);
            if self.front.len() < BLOCK_LEN {
                return Ok(());
            }
            self.end(off)?;
        }
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK_LEN * BLOCK_LEN);
        self.compare(off, whole)?;
        self.front.extend_from_slice(rest);
        Ok(())
    }

    /// Compares the last block, which ends at `end`.
    pub(super) fn end(&mut self, end: u64) -> Result<(), DeltaError> {
        let block = std::mem::take(&mut self.front);
        self.compare(end - block.len() as u64, &block)?;
        self.front = block;
        self.front.clear();
        Ok(())
    }

    fn compare(&mut self, start: u64, bytes: &[u8]) -> Result<(), DeltaError> {
        self.there.resize(bytes.len(), 0);
        self.target.read_padded(&mut self.there, start)?;
        let blocks = bytes.chunks(BLOCK_LEN).zip(self.there.chunks(BLOCK_LEN));
        for (off, (block, there)) in (start..).step_by(BLOCK_LEN).zip(blocks) {
            let is_there = off + block.len() as u64 <= self.target.len;
            if off == 0 || !is_there || block != there {
                self.records.add(off, block, there)?;
            }
        }
        Ok(())
    }
}
