//! An output that data is appended to: the image, or the extra device for chunks.

use kiln_format::{Blkaddr, BlockBits, FormatError};

use crate::error::BuildError;
use kiln_output as output;
use kiln_output::Output;

/// An output that data is appended to.
pub(crate) struct Device<'a> {
    /// 0 for the image, else its number among the extra devices.
    pub number: u16,
    file: &'a dyn Output,
    /// The output's byte that is byte 0 of the device.
    offset: u64,
    block_bits: BlockBits,
    /// Byte behind the data.
    pub end: u64,
}

impl<'a> Device<'a> {
    /// Creates a device with this number, at this byte of an output, whose data begins at byte `end`.
    pub(crate) fn new(number: u16, (file, offset): (&'a dyn Output, u64), block_bits: BlockBits, end: u64) -> Self {
        Self { number, file, offset, block_bits, end }
    }

    /// Returns the device with data up to byte `end`.
    pub(super) fn at(self, end: u64) -> Self {
        Self { end, ..self }
    }

    /// Bytes in a block.
    pub(super) fn block_bits(&self) -> BlockBits {
        self.block_bits
    }

    /// Returns the output, and the byte at which the device begins in it.
    pub(super) fn output(&self) -> (&'a dyn Output, u64) {
        (self.file, self.offset)
    }

    /// Continues at the next multiple of `align` bytes.
    pub(crate) fn align(&mut self, align: u64) {
        self.end = self.end.next_multiple_of(align);
    }

    /// Continues at the next block.
    pub(crate) fn align_to_block(&mut self) {
        self.align(self.block_bits.len());
    }

    /// Writes behind the existing data. Returns the byte address of its start.
    ///
    /// # Errors
    /// Those of the output; an address that takes more than 32 bits.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<u64, BuildError> {
        let (start, end) = (self.end, self.end + bytes.len() as u64);
        let blocks = self.block_bits.blocks_for(end);
        if blocks >= Blkaddr::HOLE32.0 {
            return Err(FormatError::does_not_fit("erofs_super_block", "blocks_lo", blocks).into());
        }
        let written = output::write_all_at(self.file, bytes, self.offset.saturating_add(start));
        written.map_err(|source| BuildError::Write { action: "write the image", source })?;
        self.end = end;
        Ok(start)
    }

    /// Writes over existing data.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn write_at(&self, bytes: &[u8], pa: u64) -> Result<(), BuildError> {
        let written = output::write_all_at(self.file, bytes, self.offset.saturating_add(pa));
        written.map_err(|source| BuildError::Write { action: "write the image", source })
    }

    /// Returns whether the device holds `bytes` at `pa`. `buf` is a buffer for reading.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn holds(&self, bytes: &[u8], pa: u64, buf: &mut Vec<u8>) -> Result<bool, BuildError> {
        buf.resize(bytes.len(), 0);
        let read = output::read_exact_at(self.file, buf, self.offset.saturating_add(pa));
        read.map_err(|source| BuildError::Write { action: "read back the image", source })?;
        Ok(buf == bytes)
    }
}
