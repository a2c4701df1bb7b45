//! Blocks of an image, where they lie and how they are decoded.

use kiln_read::ReadAt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::codec::Compressor;
use super::problem::{Problem, corrupt};

/// The bytes of an image and what decodes its blocks.
pub(super) struct Blocks {
    bytes: Arc<dyn ReadAt>,
    /// Bytes of the image without padding.
    len: u64,
    compressor: Compressor,
}

impl Blocks {
    /// The first `len` bytes of `bytes`, which are there.
    pub(super) fn new(bytes: Arc<dyn ReadAt>, len: u64, compressor: Compressor) -> Self {
        Self { bytes, len, compressor }
    }

    /// Bytes of the image without padding.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fill `buf` from byte `offset`; `what` it is, for messages.
    ///
    /// # Errors
    /// A range that is not in the image; errors of the system.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64, what: &str) -> Result<(), Problem> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            let message = format!("{what}: {} bytes, with bytes_used = {}", buf.len(), self.len);
            return Err(corrupt(offset, message));
        }
        match self.bytes.read_exact_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(corrupt(offset, format!("{what}: the image became shorter")))
            }
            read => Ok(read?),
        }
    }

    /// Decode the block at `stored`, or read it where it is not compressed: how many bytes of `plain` it fills. `packed` is room for
    /// what is read.
    ///
    /// # Errors
    /// As [`Blocks::read`]; a block that is damaged, or longer than `plain`.
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
                return Err(corrupt(start, format!("a block of {len} bytes where {} are left", plain.len())));
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
            corrupt(start, format!("a block of {len} bytes is not what {name} makes of {most} bytes or less"))
        })
    }
}

/// Where a block lies in the image, and how. No block is longer than its plain text may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredBlock {
    pub range: Range<u64>,
    pub is_compressed: bool,
}

/// Set in the length of a block of data that is stored as it is.
const PLAIN: u32 = 1 << 24;

impl StoredBlock {
    /// A block of data or fragments at `start`, whose stored length and form are `size`, in an image with blocks of `block_len` bytes.
    ///
    /// # Errors
    /// A longer block.
    pub(super) fn of_data(start: u64, size: u32, block_len: u32) -> Result<Self, Problem> {
        let len = size & !PLAIN;
        match start.checked_add(u64::from(len)) {
            Some(end) if len <= block_len => Ok(Self { range: start..end, is_compressed: size & PLAIN == 0 }),
            _ => Err(corrupt(start, format!("a block with size = {size:#x}, where block_size = {block_len}"))),
        }
    }
}
