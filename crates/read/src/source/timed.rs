//! A source whose fetches are timed.

use super::latency::Latency;
use super::read_at::{RangeMut, ReadAt};
use std::io;

/// A source that notes in a [`Latency`] which of its fetches are slow. Bytes that it lends are in
/// memory, and not noted.
#[derive(Clone, Debug)]
pub struct TimedSource<S> {
    inner: S,
    latency: Latency,
}

impl<S: ReadAt> TimedSource<S> {
    /// Wraps `inner`. Its fetches are noted in `latency`.
    pub fn new(inner: S, latency: Latency) -> Self {
        Self { inner, latency }
    }
}

impl<S: ReadAt> ReadAt for TimedSource<S> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.latency.time(buf.len(), || self.inner.read_exact_at(buf, off))
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        let len = ranges.iter().map(|range| range.buf.len()).sum();
        self.latency.time(len, || self.inner.read_ranges(ranges))
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.inner.borrow(off, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        self.inner.will_need(off, len);
    }

    fn fetch_max_len(&self) -> usize {
        self.inner.fetch_max_len()
    }

    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        self.inner.is_resident(off, len)
    }
}
