//! A source that records which ranges are read.

use kiln_read::{RangeMut, ReadAt};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Granularity in bytes of recorded ranges.
const UNIT: u64 = 4096;
/// Length in bytes of gaps that count as read, to keep the list of ranges short.
const GAP_MAX_LEN: u64 = 64 << 10;

/// Source that forwards reads and records them.
pub(crate) struct Recorder {
    inner: Arc<dyn ReadAt>,
    /// Recorded ranges: start -> end.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl Recorder {
    pub(crate) fn new(inner: Arc<dyn ReadAt>) -> Self {
        Self { inner, ranges: Mutex::default() }
    }

    /// Returns all recorded ranges below `len`, in order.
    pub(crate) fn ranges(&self, len: u64) -> Vec<Range<u64>> {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.iter().map(|(start, end)| *start..(*end).min(len)).filter(|range| !range.is_empty()).collect()
    }

    fn note(&self, off: u64, len: usize) {
        let (mut start, mut end) = (off / UNIT * UNIT, (off + len as u64).next_multiple_of(UNIT));
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((&first, &last)) = ranges.range(..=end + GAP_MAX_LEN).next_back() {
            if last + GAP_MAX_LEN < start {
                break;
            }
            if first <= start && last >= end {
                return;
            }
            ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        ranges.insert(start, end);
    }
}

impl ReadAt for Recorder {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.note(off, buf.len());
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter().for_each(|range| self.note(range.off, range.buf.len()));
        self.inner.read_ranges(ranges)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None // else it would not be seen
    }

    fn will_need(&self, off: u64, len: u64) {
        self.inner.will_need(off, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::MemorySource;

    #[test]
    fn reads_are_recorded() {
        let recorder = Recorder::new(Arc::new(MemorySource::new(vec![0; 1 << 20])));
        let read = |off, len| recorder.read_exact_at(&mut vec![0; len], off).unwrap();
        read(5000, 10);
        read(500_000, 5000);
        read(90_000, 1);
        read(5100, 10);
        assert_eq!(recorder.ranges(1 << 20), [4096..8192, 86016..90112, 499_712..507_904]);
        read(40_000, 1);
        assert_eq!(recorder.ranges(1 << 20), [4096..90112, 499_712..507_904]);
        read(0, 1 << 20);
        assert_eq!(recorder.ranges(1_000_000), vec![Range { start: 0, end: 1_000_000 }]);
    }
}
