//! Bytes in memory as a source.

use super::read_at::{LENT_FETCH_LEN, RangeMut, ReadAt};
use std::io;

/// Bytes in memory.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{Image, MemorySource};
/// use std::sync::Arc;
///
/// # let bytes = std::fs::read("tests/golden/zstd.erofs").expect("a file");
/// let image = Image::open(Arc::new(MemorySource::new(bytes)), vec![], &Default::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemorySource {
    bytes: Vec<u8>,
}

impl MemorySource {
    /// Returns a source of exactly these bytes.
    pub fn new(bytes: Vec<u8>) -> MemorySource {
        MemorySource { bytes }
    }
}

impl ReadAt for MemorySource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        buf.copy_from_slice(self.borrow(off, buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(off).ok()?..)?.get(..len)
    }

    fn will_need(&self, _off: u64, _len: u64) {}

    /// Returns 0, as nothing is fetched: bytes in memory are lent.
    fn fetch_max_len(&self) -> usize {
        LENT_FETCH_LEN
    }
}
