//! Destinations of data: the image, which grows at its end, and the extra device, if there is one. Only one thread
//! holds them.

use kiln_codec::{Method, Spec};
use kiln_format::{Blkaddr, BlockBits};

use crate::error::BuildError;
use crate::format::Format;
use crate::out::Out;
use crate::pack::device::Device;
use crate::pack::fill::Filled;
use crate::pack::jobs::PackJob;
use crate::pack::worker::{PackOutput, Shape};

/// Kind of data, which determines its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Any other data.
    Image,
    /// Data of a file in chunks.
    Chunks,
}

impl Destination {
    /// Returns the destination of the result of a job.
    pub(crate) fn of(job: &PackJob, shape: &Shape) -> Self {
        match shape {
            Shape::Chunks { .. } => Destination::Chunks,
            Shape::Flat { .. } if job.chunk_bits.is_some() => Destination::Chunks,
            _ => Destination::Image,
        }
    }
}

/// Amount of data that was appended.
pub(crate) struct AppendedData {
    /// Byte behind it in the image.
    end: u64,
    /// Byte behind it on the extra device.
    blob_end: u64,
    /// Running digest of it.
    digest: blake3::Hasher,
}

/// Writes data behind the blocks of the superblock.
pub(crate) struct Appender<'a> {
    image: Device<'a>,
    /// The extra device for chunks, if there is one.
    blob: Option<Device<'a>>,
    block_bits: BlockBits,
    /// Extents are encoded: byte-granular.
    encoded: bool,
    /// Running digest of the image's contents.
    pub digest: blake3::Hasher,
}

impl<'a> Appender<'a> {
    /// Starts behind `header_blocks` blocks. The extra device, if there is one, has the number `blob_number`.
    pub(crate) fn new(out: Out<'a>, header_blocks: u64, blob_number: u16, format: &Format) -> Self {
        let (block_bits, encoded) = (format.block_bits, format.compression.encoded_extents);
        let image = Device::new(0, (out.image, out.offset), block_bits, header_blocks << block_bits.bits());
        let blob = out.blob.map(|blob| Device::new(blob_number, (blob.file, 0), block_bits, 0));
        Self { image, blob, block_bits, encoded, digest: blake3::Hasher::new() }
    }

    /// Continues where another appender of the same outputs stopped.
    pub(crate) fn resume(self, at: AppendedData) -> Self {
        let AppendedData { end, blob_end, digest } = at;
        Self { image: self.image.at(end), blob: self.blob.map(|blob| blob.at(blob_end)), digest, ..self }
    }

    /// Stops, and tells how much was appended.
    pub(crate) fn stop(self) -> AppendedData {
        let blob_end = self.blob.map_or(0, |blob| blob.end);
        AppendedData { end: self.image.end, blob_end, digest: self.digest }
    }

    /// Returns the end of the data in the image.
    pub(crate) fn end(&self) -> u64 {
        self.image.end
    }

    /// Returns the block behind the data in the image.
    pub(crate) fn next_block(&self) -> Blkaddr {
        Blkaddr(self.block_bits.blocks_for(self.image.end))
    }

    /// Returns the blocks of the extra device, if there is one.
    pub(crate) fn blob_blocks(&self) -> Option<u64> {
        self.blob.as_ref().map(|blob| self.block_bits.blocks_for(blob.end))
    }

    /// Returns the device for a kind of data.
    pub(crate) fn device(&mut self, home: Destination) -> &mut Device<'a> {
        match (home, &mut self.blob) {
            (Destination::Chunks, Some(blob)) => blob,
            _ => &mut self.image,
        }
    }

    /// Adjusts compressed data to its place at the end of the data. See
    /// [`Filled::with_deflate_ends_off_page_starts`].
    pub(crate) fn adjust_for_position(&self, packed: PackOutput, compression: Option<Spec>) -> PackOutput {
        if !self.encoded || compression.is_none_or(|spec| spec.method != Method::Deflate) {
            return packed;
        }
        let PackOutput { bytes, shape: Shape::Extents { list: extents, inline }, .. } = packed else { return packed };
        let filled = Filled { bytes, extents, inline, left: 0 };
        let filled = filled.with_deflate_ends_off_page_starts(self.image.end, self.block_bits);
        let shape = Shape::Extents { list: filled.extents, inline: filled.inline };
        PackOutput { bytes: filled.bytes, shape, ..packed }
    }

    /// Writes a part, from a block boundary on unless it is encoded extents. Returns the byte address of its start.
    ///
    /// # Errors
    /// An output that cannot be written, or outgrows block addresses.
    pub(crate) fn append(&mut self, packed: &PackOutput, home: Destination) -> Result<u64, BuildError> {
        let encoded = self.encoded && matches!(packed.shape, Shape::Extents { .. });
        self.hash(packed);
        let device = self.device(home);
        if packed.bytes.is_empty() {
            return Ok(device.end);
        }
        if !encoded {
            device.align_to_block();
        }
        device.append(&packed.bytes)
    }

    /// Hashes a part, whatever its destination.
    pub(crate) fn hash(&mut self, packed: &PackOutput) {
        if !packed.bytes.is_empty() {
            self.digest.update(&packed.digest.to_le_bytes());
        }
    }
}
