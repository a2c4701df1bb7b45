//! Concatenation of two sources.

use kiln_read::{RangeMut, ReadAt};
use std::io;
use std::sync::Arc;

/// The start of a source, followed by another source.
pub(super) struct JoinedSource {
    front: Arc<dyn ReadAt>,
    front_len: u64,
    behind: Arc<dyn ReadAt>,
}

impl JoinedSource {
    /// Concatenates the first `front_len` bytes of `front`, which must exist, and `behind`.
    pub(super) fn new(front: Arc<dyn ReadAt>, front_len: u64, behind: Arc<dyn ReadAt>) -> Self {
        Self { front, front_len, behind }
    }
}

impl ReadAt for JoinedSource {
    fn len(&self) -> io::Result<u64> {
        self.front_len.checked_add(self.behind.len()?).ok_or_else(|| io::ErrorKind::FileTooLarge.into())
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        let in_front = usize::try_from(self.front_len.saturating_sub(off)).unwrap_or(usize::MAX).min(buf.len());
        let (front, behind) = buf.split_at_mut(in_front);
        if !front.is_empty() {
            self.front.read_exact_at(front, off)?;
        }
        if behind.is_empty() && off < self.front_len {
            return Ok(());
        }
        self.behind.read_exact_at(behind, off.saturating_sub(self.front_len))
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        match off.checked_sub(self.front_len) {
            Some(off) => self.behind.borrow(off, len),
            None if len as u64 <= self.front_len - off => self.front.borrow(off, len),
            None => None,
        }
    }

    fn will_need(&self, off: u64, len: u64) {
        let in_front = len.min(self.front_len.saturating_sub(off));
        if in_front > 0 {
            self.front.will_need(off, in_front);
        }
        if len > in_front {
            self.behind.will_need(off.saturating_sub(self.front_len), len - in_front);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::MemorySource;
    use kiln_read::conformance::assert_conforms;

    #[test]
    fn joined_sources_conform() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at >> 2) as u8).collect();
        for at in [0, 1, 70_000, 200_000] {
            // The front continues after the part that is used.
            let front = [&bytes[..at], b"more"].concat();
            let behind = Arc::new(MemorySource::new(bytes[at..].to_vec()));
            let joined = JoinedSource::new(Arc::new(MemorySource::new(front)), at as u64, behind);
            assert_conforms(&joined, &bytes);
        }
    }
}
