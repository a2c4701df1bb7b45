//! Reader and decoder of blocks.

use kiln_read::ReadAt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::codec::Compressor;
use super::problem::{Problem, corrupt};

/// Bytes of an image, with the decoder of its blocks.
pub(super) struct Blocks {
    bytes: Arc<dyn ReadAt>,
    /// Length of the image without padding, in bytes.
    len: u64,
    compressor: Compressor,
}

impl Blocks {
    /// Creates a reader for the first `len` bytes of `bytes`, which must exist.
    pub(super) fn new(bytes: Arc<dyn ReadAt>, len: u64, compressor: Compressor) -> Self {
        Self { bytes, len, compressor }
    }

    /// Returns the length of the image without padding, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from byte `offset`. `what` names the data in messages.
    ///
    /// # Errors
    /// A range that is not in the image; read errors.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64, what: &str) -> Result<(), Problem> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            let message = format!("{what}: {} bytes are beyond bytes_used = {}", buf.len(), self.len);
            return Err(corrupt(offset, message));
        }
        match self.bytes.read_exact_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(corrupt(offset, format!("{what}: the image has become shorter")))
            }
            read => Ok(read?),
        }
    }

    /// Decodes the block at `stored`, or reads it if it is not compressed. Returns its plain length
    /// in bytes. `packed` is a buffer for the compressed bytes.
    ///
    /// # Errors
    /// Those of [`Blocks::read`]; a block that is damaged, or longer than `plain`.
    pub(super) fn decode(
        &self,
        stored: &StoredBlock,
        packed: &mut Vec<u8>,
        plain: &mut [u8],
    ) -> Result<usize, Problem> {
        let Range { start, end } = stored.range;
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        if !stored.is_compressed {
            let Some(plain) = plain.get_mut(..len) else {
                return Err(corrupt(start, format!("a block of {len} bytes where {} bytes are left", plain.len())));
            };
            return self.read(plain, start, "a block").map(|()| len);
        }
        let decoded = match self.bytes.borrow(start, len).filter(|_| end <= self.len) {
            Some(packed) => self.compressor.decode(packed, plain),
            None => {
                packed.resize(len, 0);
                self.read(packed, start, "a block")?;
                self.compressor.decode(packed, plain)
            }
        };
        decoded.ok_or_else(|| {
            let (name, most) = (self.compressor.name(), plain.len());
            corrupt(start, format!("a block of {len} bytes is not a {name} stream of at most {most} bytes"))
        })
    }
}

/// Position and form of a block in the image. The stored length is at most the maximum plain
/// length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredBlock {
    pub range: Range<u64>,
    pub is_compressed: bool,
}

/// Bit in the length of a data block that is stored uncompressed.
const PLAIN: u32 = 1 << 24;

impl StoredBlock {
    /// Creates the position of a block of data or fragments at `start`. `size` has its stored
    /// length and form; plain blocks have at most `block_len` bytes.
    ///
    /// # Errors
    /// A longer block.
    pub(super) fn of_data(start: u64, size: u32, block_len: u32) -> Result<Self, Problem> {
        let len = size & !PLAIN;
        match start.checked_add(u64::from(len)) {
            Some(end) if len <= block_len => Ok(Self { range: start..end, is_compressed: size & PLAIN == 0 }),
            _ => Err(corrupt(start, format!("a block with size = {size:#x}, but block_size = {block_len}"))),
        }
    }
}
