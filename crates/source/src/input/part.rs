//! Part of another source.

use kiln_read::{RangeMut, ReadAt};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A range of another source, as a source: for example a file within an archive.
pub(crate) struct PartSource {
    whole: Arc<dyn ReadAt>,
    range: Range<u64>,
}

impl PartSource {
    /// Creates the part `range` of `whole`.
    pub(crate) fn new(whole: Arc<dyn ReadAt>, range: Range<u64>) -> Self {
        Self { whole, range }
    }

    /// Returns the position of byte `off` in the whole, if `len` bytes from it are within the part.
    fn at(&self, off: u64, len: u64) -> Option<u64> {
        let end = off.checked_add(len)?;
        (end <= self.range.end - self.range.start).then(|| self.range.start + off)
    }
}

impl ReadAt for PartSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.range.end - self.range.start)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        let at = self.at(off, buf.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.whole.read_exact_at(buf, at)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        for range in &mut *ranges {
            range.off = self.at(range.off, range.buf.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        self.whole.read_ranges(ranges)
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.whole.borrow(self.at(off, len as u64)?, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        let own_len = self.range.end - self.range.start;
        let start = off.min(own_len);
        self.whole.will_need(self.range.start + start, len.min(own_len - start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::MemorySource;
    use kiln_read::conformance::assert_conforms;

    #[test]
    fn parts_conform() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at >> 2) as u8).collect();
        let whole: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes.clone()));
        for range in [0..200_000, 1000..150_000, 7..7, 200_000..200_000] {
            let part = PartSource::new(Arc::clone(&whole), range.start as u64..range.end as u64);
            assert_conforms(&part, &bytes[range]);
        }
    }
}
