//! A part of another source.

use super::read_at::{RangeMut, ReadAt};
use std::io;

/// A source from one of its bytes on: an image inside a file of another kind, or behind a boot
/// sector.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{Image, MemorySource, OffsetSource};
/// use std::sync::Arc;
///
/// # let mut bytes = vec![0; 512];
/// # bytes.extend(std::fs::read("tests/golden/zstd.erofs").expect("a file"));
/// // An image behind 512 bytes of something else.
/// let part = OffsetSource::new(MemorySource::new(bytes), 512).expect("512 bytes at least");
/// let image = Image::open(Arc::new(part), vec![], &Default::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OffsetSource<S> {
    inner: S,
    /// Byte of `inner` that is this source's byte 0.
    start: u64,
    len: u64,
}

impl<S: ReadAt> OffsetSource<S> {
    /// Returns the bytes of `inner` from byte `start` to its end.
    ///
    /// # Errors
    /// `inner` ends before `start`, or cannot tell its length.
    pub fn new(inner: S, start: u64) -> io::Result<OffsetSource<S>> {
        let whole = inner.len()?;
        match whole.checked_sub(start) {
            Some(len) => Ok(OffsetSource { inner, start, len }),
            None => {
                let reason = format!("nothing at byte {start}: there are only {whole} bytes");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
            }
        }
    }

    /// Returns the first `len` bytes of this source, or all if it has fewer.
    pub fn with_max_len(self, len: u64) -> Self {
        Self { len: self.len.min(len), ..self }
    }

    /// Returns the place of `len` bytes from byte `off` on in `inner`, which may be longer than it
    /// was.
    fn place(&self, off: u64, len: usize) -> io::Result<u64> {
        match off.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(self.start + off),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<S: ReadAt> ReadAt for OffsetSource<S> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        let place = self.place(off, buf.len())?;
        self.inner.read_exact_at(buf, place)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        let shift = |range: &RangeMut<'_>| self.place(range.off, range.buf.len());
        let places = ranges.iter().map(shift).collect::<io::Result<Vec<_>>>()?;
        let shifted = ranges.iter_mut().zip(places).map(|(range, off)| RangeMut { off, buf: range.buf });
        self.inner.read_ranges(&mut shifted.collect::<Vec<_>>())
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.inner.borrow(self.place(off, len).ok()?, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        if off < self.len {
            self.inner.will_need(self.start + off, len.min(self.len - off));
        }
    }

    fn fetch_max_len(&self) -> usize {
        self.inner.fetch_max_len()
    }

    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        if off < self.len { self.inner.is_resident(self.start + off, len.min(self.len - off)) } else { None }
    }
}
