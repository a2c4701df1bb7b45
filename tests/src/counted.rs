//! A source that counts reads, and may be slow.

use kiln_read::{RangeMut, ReadAt};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Source that counts reads of `S`.
pub struct Counted<S> {
    inner: S,
    calls: AtomicU64,
    bytes: AtomicU64,
    delay: Duration,
}

impl<S: ReadAt> Counted<S> {
    /// Creates a source with counts of 0.
    pub fn new(inner: S) -> Self {
        Self::late(inner, Duration::ZERO)
    }

    /// Creates a source whose reads take at least `delay`.
    pub fn late(inner: S, delay: Duration) -> Self {
        Self { inner, calls: AtomicU64::new(0), bytes: AtomicU64::new(0), delay }
    }

    /// Returns the number of ranges read so far, and their total length in bytes.
    pub fn counts(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn count(&self, len: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
    }
}

impl<S: ReadAt> ReadAt for Counted<S> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.count(buf.len());
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter().for_each(|range| self.count(range.buf.len()));
        self.inner.read_ranges(ranges)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        self.inner.will_need(off, len);
    }
}
