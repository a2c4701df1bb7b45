//! A source that notes what it is asked for.

use kiln_read::{MemorySource, RangeMut, ReadAt};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Ranges that were announced, and ranges that were read, each after a while.
pub struct Noting {
    inner: MemorySource,
    delay: Duration,
    pub announced: Mutex<Vec<Range<u64>>>,
    pub reads: Mutex<Vec<Range<u64>>>,
}

impl Noting {
    pub fn new(bytes: Vec<u8>) -> Arc<Self> {
        Self::late(bytes, Duration::ZERO)
    }

    /// One whose reads take so long at least.
    pub fn late(bytes: Vec<u8>, delay: Duration) -> Arc<Self> {
        let inner = MemorySource::new(bytes);
        Arc::new(Self { inner, delay, announced: Mutex::default(), reads: Mutex::default() })
    }

    /// Returns the reads since the last call.
    pub fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.reads.lock().unwrap())
    }
}

impl ReadAt for Noting {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.reads.lock().unwrap().push(off..off + buf.len() as u64);
        std::thread::sleep(self.delay);
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        self.announced.lock().unwrap().push(off..off + len);
    }
}
