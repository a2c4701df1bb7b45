//! Latency of sources: which fetches did not find their bytes in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A fetch of at most [`SLOW_LEN`] bytes that takes longer than this did not find them in memory.
/// Longer fetches are allowed as much for each such part.
const SLOW: Duration = Duration::from_micros(100);
const SLOW_LEN: usize = 64 << 10;
/// Milliseconds after a slow fetch during which the next ones are likely to be slow, too, even if
/// some are not.
const COLD_MS: u64 = 250;
const NEVER: u64 = u64::MAX;

/// Latency of the sources of one image. Clones share it: [`TimedSource`](crate::TimedSource)s note
/// their fetches in it, and the image whose [policy](crate::ReadPolicy) has it asks.
#[derive(Clone)]
pub struct Latency {
    fetches: Arc<Fetches>,
}

struct Fetches {
    is_slow: AtomicBool,
    start: Instant,
    /// End of the last slow fetch, in milliseconds after `start`.
    slow_at: AtomicU64,
}

impl Latency {
    /// Returns a latency without any fetch.
    pub fn new() -> Self {
        let (is_slow, slow_at) = (AtomicBool::new(false), AtomicU64::new(NEVER));
        Self { fetches: Arc::new(Fetches { is_slow, start: Instant::now(), slow_at }) }
    }

    /// Runs a fetch of `len` bytes, and note whether it is slow.
    pub(super) fn time<T>(&self, len: usize, fetch: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let fetched = fetch();
        self.note(len, start.elapsed());
        fetched
    }

    /// Notes that a fetch of `len` bytes took this time.
    pub fn note(&self, len: usize, took: Duration) {
        let is_slow = took > SLOW * len.div_ceil(SLOW_LEN).max(1) as u32;
        self.fetches.is_slow.store(is_slow, Ordering::Relaxed);
        if is_slow {
            self.fetches.slow_at.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Returns true if the last fetch took so long that its bytes were not in memory: over 100
    /// microseconds for each 64 KiB.
    pub fn is_slow(&self) -> bool {
        self.fetches.is_slow.load(Ordering::Relaxed)
    }

    /// Returns true if a fetch was slow in the last 250 milliseconds.
    pub fn is_cold(&self) -> bool {
        match self.fetches.slow_at.load(Ordering::Relaxed) {
            NEVER => false,
            slow_at => self.now().saturating_sub(slow_at) < COLD_MS,
        }
    }

    /// Returns the milliseconds since the latency was made.
    fn now(&self) -> u64 {
        self.fetches.start.elapsed().as_millis() as u64
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

/// Two are equal if they are clones of one.
impl PartialEq for Latency {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fetches, &other.fetches)
    }
}

impl Eq for Latency {}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_slow, is_cold) = (self.is_slow(), self.is_cold());
        f.debug_struct("Latency").field("is_slow", &is_slow).field("is_cold", &is_cold).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_is_for_each_part_and_ends_with_the_next_fetch() {
        let latency = Latency::new();
        assert!(!latency.is_slow() && !latency.is_cold());
        for (len, micros, is_slow) in [(1, 101, true), (1, 100, false), (0, 101, true), (64 << 10, 101, true)] {
            latency.note(len, Duration::from_micros(micros));
            assert_eq!(latency.is_slow(), is_slow, "{len} bytes in {micros}");
        }
        assert!(latency.clone().is_cold());
        for (len, micros, is_slow) in [(1 << 20, 1600, false), (1 << 20, 1601, true), ((64 << 10) + 1, 200, false)] {
            latency.note(len, Duration::from_micros(micros));
            assert_eq!(latency.is_slow(), is_slow, "{len} bytes in {micros}");
        }
        assert!(!latency.is_slow() && latency.is_cold());
    }

    #[test]
    fn what_was_cold_warms_up() {
        let latency = Latency::new();
        latency.note(1, Duration::from_secs(1));
        assert!(latency.is_cold());
        std::thread::sleep(Duration::from_millis(COLD_MS + 10));
        assert!(!latency.is_cold() && latency.is_slow());
    }
}
