//! An image as it was in one of its generations, as a source.

use crate::error::ReadError;
use crate::metadata::generations::Generation;
use crate::metadata::recovery::find_generations;
use crate::source::read_at::{RangeMut, ReadAt};
use kiln_format::generation::HEAD_LEN;
use kiln_format::superblock::SUPERBLOCK_OFF;
use std::io;
use std::sync::Arc;

/// Returns the image of `source` as it was in the generation `number`; also where the image is
/// damaged, and that generation is whole.
///
/// # Errors
/// As [`find_generations`]; a generation that the image does not have.
pub(crate) fn as_of(source: Arc<dyn ReadAt>, number: u32) -> Result<Arc<dyn ReadAt>, ReadError> {
    let found = find_generations(&source)?;
    let last = found.whole.last().map_or(0, |generation| generation.number);
    let generation = found.whole.into_iter().find(|generation| generation.number == number);
    match (generation, found.damage) {
        (Some(generation), _) => generation.source(source),
        (None, None) => Err(ReadError::NoGeneration { number, last }),
        (None, Some(_)) => {
            let reason = "not found in this image, which is damaged (kiln log lists those that are whole)";
            Err(ReadError::corrupt("kiln_generation", SUPERBLOCK_OFF, "number", number.into(), reason))
        }
    }
}

impl Generation {
    /// Returns the image of `source`, which has this generation, as it was then.
    ///
    /// # Errors
    /// A source that cannot tell its length.
    pub fn source(&self, source: Arc<dyn ReadAt>) -> Result<Arc<dyn ReadAt>, ReadError> {
        // Extra devices may follow behind the blocks.
        if self.superblock.extra_devices > 0 {
            return Ok(source);
        }
        let source_len = source.len().map_err(|error| ReadError::io(0, 0, error))?;
        Ok(Arc::new(GenerationSource { inner: source, head: self.head, len: self.end.min(source_len) }))
    }
}

/// An image as it was in a generation: its first blocks, with the sector of the superblock as that
/// was.
struct GenerationSource {
    inner: Arc<dyn ReadAt>,
    head: [u8; HEAD_LEN],
    len: u64,
}

impl GenerationSource {
    fn check(&self, off: u64, len: usize) -> io::Result<()> {
        match off.checked_add(len as u64).is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns true if a range has bytes of the sector that was changed since.
    fn has_head(&self, off: u64, len: u64) -> bool {
        off < SUPERBLOCK_OFF + HEAD_LEN as u64 && off.saturating_add(len) > SUPERBLOCK_OFF
    }

    /// Puts what the sector was into `buf`, which was read from byte `off` on.
    fn put_head(&self, buf: &mut [u8], off: u64) {
        let end = off + buf.len() as u64;
        let (start, stop) = (off.max(SUPERBLOCK_OFF), end.min(SUPERBLOCK_OFF + HEAD_LEN as u64));
        if start < stop {
            let part = &self.head[(start - SUPERBLOCK_OFF) as usize..(stop - SUPERBLOCK_OFF) as usize];
            buf[(start - off) as usize..(stop - off) as usize].copy_from_slice(part);
        }
    }
}

impl ReadAt for GenerationSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.check(off, buf.len())?;
        self.inner.read_exact_at(buf, off)?;
        self.put_head(buf, off);
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter().try_for_each(|range| self.check(range.off, range.buf.len()))?;
        self.inner.read_ranges(ranges)?;
        ranges.iter_mut().for_each(|range| self.put_head(range.buf, range.off));
        Ok(())
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.check(off, len).ok()?;
        if self.has_head(off, len as u64) { None } else { self.inner.borrow(off, len) }
    }

    fn will_need(&self, off: u64, len: u64) {
        if off < self.len {
            self.inner.will_need(off, len.min(self.len - off));
        }
    }

    fn fetch_max_len(&self) -> usize {
        self.inner.fetch_max_len()
    }

    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        if off < self.len { self.inner.is_resident(off, len.min(self.len - off)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::conformance::assert_conforms;
    use crate::source::memory::MemorySource;

    #[test]
    fn a_generation_is_a_source_like_others() {
        let bytes: Vec<u8> = (0..9000).map(|at| (at / 5) as u8).collect();
        for len in [1024, 1200, 1536, 4096, 9000] {
            let head = std::array::from_fn(|at| !(at as u8));
            let mut expected = bytes[..len].to_vec();
            let end = len.min(1024 + HEAD_LEN);
            expected[1024..end].copy_from_slice(&head[..end - 1024]);
            let inner = Arc::new(MemorySource::new(bytes.clone()));
            assert_conforms(&GenerationSource { inner, head, len: len as u64 }, &expected);
        }
    }
}
