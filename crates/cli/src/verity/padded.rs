//! The front of a file, with zeros up to a whole block.

use kiln_read::{RangeMut, ReadAt};
use std::io;

/// The first `len` bytes of a source, and zeros up to `padded_len`.
pub(super) struct Padded<S> {
    pub(super) source: S,
    pub(super) len: u64,
    pub(super) padded_len: u64,
}

impl<S: ReadAt> ReadAt for Padded<S> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.padded_len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        if off.checked_add(buf.len() as u64).is_none_or(|end| end > self.padded_len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // No more than the buffer has.
        let front = self.len.saturating_sub(off).min(buf.len() as u64) as usize;
        let (front, zeros) = buf.split_at_mut(front);
        zeros.fill(0);
        if front.is_empty() { Ok(()) } else { self.source.read_exact_at(front, off) }
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        self.source.will_need(off, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::{MemorySource, conformance};

    #[test]
    fn it_conforms() {
        let source = MemorySource::new(vec![7; 70_000]);
        let mut expected = vec![7; 66_000];
        expected.resize(69_632, 0);
        conformance::assert_conforms(&Padded { source, len: 66_000, padded_len: 69_632 }, &expected);
    }
}
