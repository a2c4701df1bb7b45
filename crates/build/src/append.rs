//! The data of an image, which grows at its end. Only one thread holds it.

use kiln_codec::Method;
use kiln_format::{Blkaddr, BlockBits, FormatError};
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::fill::Filled;
use crate::part::{PackedPart, Shape};
use crate::{BuildError, BuildOptions};

/// Writes data behind the blocks of the superblock.
pub struct Appender<'a> {
    out: &'a File,
    block_bits: BlockBits,
    /// Extents are encoded: byte-granular.
    encoded: bool,
    /// Byte behind the data.
    pub end: u64,
    /// Running digest of the image's contents.
    pub digest: blake3::Hasher,
}

impl<'a> Appender<'a> {
    /// Behind `header_blocks` blocks.
    pub fn new(out: &'a File, header_blocks: u64, options: &BuildOptions) -> Self {
        let block_bits = options.block_bits();
        let (end, digest) = (header_blocks << block_bits.bits(), blake3::Hasher::new());
        Self { out, block_bits, encoded: options.encoded_extents, end, digest }
    }

    /// The block behind the data.
    pub fn next_block(&self) -> Blkaddr {
        Blkaddr(self.block_bits.blocks_for(self.end))
    }

    /// What was packed by `method`, as it must be to lie where the data ends. See
    /// [`Filled::with_deflate_ends_off_page_starts`].
    pub fn settled(&self, packed: PackedPart, method: Option<Method>) -> PackedPart {
        if !self.encoded || method != Some(Method::Deflate) {
            return packed;
        }
        let PackedPart { bytes, shape: Shape::Extents { list: extents, inline }, .. } = packed else { return packed };
        let filled = Filled { bytes, extents, inline };
        let filled = filled.with_deflate_ends_off_page_starts(self.end, self.block_bits);
        let shape = Shape::Extents { list: filled.extents, inline: filled.inline };
        PackedPart { bytes: filled.bytes, shape, ..packed }
    }

    /// Write what was packed, from a block boundary on unless it is encoded extents. The byte address of its start.
    ///
    /// # Errors
    /// An output that cannot be written, or outgrows block addresses.
    pub fn append(&mut self, packed: &PackedPart) -> Result<u64, BuildError> {
        let start = match packed.shape {
            Shape::Extents { .. } if self.encoded => self.end,
            _ => self.end.next_multiple_of(self.block_bits.len()),
        };
        if packed.bytes.is_empty() {
            return Ok(start);
        }
        let end = start + packed.bytes.len() as u64;
        if self.block_bits.blocks_for(end) >= Blkaddr::HOLE32.0 {
            let blocks = self.block_bits.blocks_for(end);
            return Err(FormatError::does_not_fit("erofs_super_block", "blocks_lo", blocks).into());
        }
        let write = self.out.write_all_at(&packed.bytes, start);
        write.map_err(|source| BuildError::Write { action: "write the image", source })?;
        self.digest.update(&packed.digest.to_le_bytes());
        self.end = end;
        Ok(start)
    }
}
