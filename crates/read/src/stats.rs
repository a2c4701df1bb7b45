//! Counters of what reading an image costs.
//!
//! They are always on, so they must cost nothing that can be measured: a few relaxed additions for
//! each read, into one of several sets, chosen by thread, so that threads do not fight for cache
//! lines. A snapshot adds the sets up.

use crate::data::plan::DecodeTarget;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds in bytes of the first classes of [`Sizes`]; the last class has none.
pub const SIZE_BOUNDS: [u64; 9] = {
    let mut bounds = [4096; 9];
    let mut class = 1;
    while class < bounds.len() {
        bounds[class] = bounds[class - 1] * 2;
        class += 1;
    }
    bounds
};

/// Numbers of requests of at most 4 KiB, 8 KiB and so on to 1 MiB, each counted once; the rest in
/// the last class.
pub type Sizes = [u64; SIZE_BOUNDS.len() + 1];

/// Costs of reading an image since it was opened, by all its clones.
///
/// The counters are read one after the other while other threads count on: they are consistent only
/// if no thread reads the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reads of contents by callers.
    pub reads: u64,
    /// Bytes that these reads got.
    pub served_bytes: u64,
    /// Reads of contents by size.
    pub read_sizes: Sizes,
    /// Ranges that were read of sources, for contents and metadata; one call of a source may read
    /// several.
    pub fetches: u64,
    /// Bytes of these ranges.
    pub fetched_bytes: u64,
    /// Ranges that were read of sources by size.
    pub fetch_sizes: Sizes,
    /// Streams decoded straight into the reader's memory.
    pub decoded_direct: u64,
    /// Streams decoded whole into the cache.
    pub decoded_kept: u64,
    /// Streams decoded up to the last byte wanted, into scratch memory.
    pub decoded_scratch: u64,
    /// Bytes that came out of decoders.
    pub decoded_bytes: u64,
    /// Reads of extents that found them decoded in the cache.
    pub hits: u64,
    /// Decodes that did not happen, as another thread had just begun the same.
    pub avoided: u64,
    /// Bytes of decoded data that are [pinned](crate::Image::pin) now.
    pub pinned_bytes: u64,
}

impl Stats {
    /// Returns streams decoded.
    pub fn decodes(&self) -> u64 {
        self.decoded_direct + self.decoded_kept + self.decoded_scratch
    }

    /// Returns the bytes fetched for each byte served; `None` before anything is served.
    pub fn fetch_amplification(&self) -> Option<f64> {
        self.per_served(self.fetched_bytes)
    }

    /// Returns the bytes decoded for each byte served; `None` before anything is served.
    pub fn decode_amplification(&self) -> Option<f64> {
        self.per_served(self.decoded_bytes)
    }

    fn per_served(&self, bytes: u64) -> Option<f64> {
        (self.served_bytes > 0).then(|| bytes as f64 / self.served_bytes as f64)
    }
}

/// Sets of counters.
const SHARDS: usize = 8;

/// One set, on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    served_bytes: AtomicU64,
    read_sizes: [AtomicU64; SIZE_BOUNDS.len() + 1],
    fetched_bytes: AtomicU64,
    fetch_sizes: [AtomicU64; SIZE_BOUNDS.len() + 1],
    /// By [`DecodeTarget`].
    decoded: [AtomicU64; 3],
    decoded_bytes: AtomicU64,
    hits: AtomicU64,
    avoided: AtomicU64,
}

/// The counters of an image.
#[derive(Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
}

thread_local! {
    /// Its address tells threads apart, without a number that must be given out.
    static HERE: u8 = const { 0 };
}

impl Counters {
    pub(crate) fn read(&self, len: usize) {
        let shard = self.shard();
        add(&shard.served_bytes, len as u64);
        add(&shard.read_sizes[class(len)], 1);
    }

    pub(crate) fn fetched(&self, len: usize) {
        let shard = self.shard();
        add(&shard.fetched_bytes, len as u64);
        add(&shard.fetch_sizes[class(len)], 1);
    }

    pub(crate) fn decoded(&self, target: DecodeTarget, len: usize) {
        let shard = self.shard();
        add(&shard.decoded[target as usize], 1);
        add(&shard.decoded_bytes, len as u64);
    }

    pub(crate) fn hit(&self) {
        add(&self.shard().hits, 1);
    }

    pub(crate) fn avoided(&self) {
        add(&self.shard().avoided, 1);
    }

    /// Returns all counters but the pinned bytes.
    pub(crate) fn snapshot(&self) -> Stats {
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64| {
            self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum::<u64>()
        };
        let read_sizes: Sizes = array::from_fn(|class| sum(&|shard| &shard.read_sizes[class]));
        let fetch_sizes: Sizes = array::from_fn(|class| sum(&|shard| &shard.fetch_sizes[class]));
        let decoded = |target: DecodeTarget| sum(&|shard| &shard.decoded[target as usize]);
        Stats {
            reads: read_sizes.iter().sum(),
            served_bytes: sum(&|shard| &shard.served_bytes),
            read_sizes,
            fetches: fetch_sizes.iter().sum(),
            fetched_bytes: sum(&|shard| &shard.fetched_bytes),
            fetch_sizes,
            decoded_direct: decoded(DecodeTarget::Destination),
            decoded_kept: decoded(DecodeTarget::Cache),
            decoded_scratch: decoded(DecodeTarget::Scratch),
            decoded_bytes: sum(&|shard| &shard.decoded_bytes),
            hits: sum(&|shard| &shard.hits),
            avoided: sum(&|shard| &shard.avoided),
            pinned_bytes: 0,
        }
    }

    fn shard(&self) -> &Shard {
        // Thread-local storage of two threads is at least a page apart; the factor is 2^64 divided
        // by the golden ratio.
        let here = HERE.with(|here| std::ptr::from_ref(here) as usize as u64 >> 12);
        &self.shards[(here.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as usize]
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Returns the class of a request of `len` bytes.
fn class(len: usize) -> usize {
    let pages = len.div_ceil(SIZE_BOUNDS[0] as usize).max(1);
    (pages.next_power_of_two().trailing_zeros() as usize).min(SIZE_BOUNDS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_bounds() {
        for (idx, bound) in SIZE_BOUNDS.into_iter().enumerate() {
            assert_eq!(class(bound as usize), idx);
            assert_eq!(class(bound as usize + 1), idx + 1);
        }
        assert_eq!((class(0), class(1), class(usize::MAX >> 1)), (0, 0, SIZE_BOUNDS.len()));
    }

    #[test]
    fn threads_add_up() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for len in [1, 5000, 1 << 20, 1 << 24] {
                        counters.read(len);
                        counters.fetched(2 * len);
                    }
                    counters.decoded(DecodeTarget::Scratch, 7);
                });
            }
        });
        let stats = counters.snapshot();
        assert_eq!((stats.reads, stats.served_bytes), (64, 16 * (5001 + (1 << 20) + (1 << 24))));
        assert_eq!((stats.fetches, stats.fetched_bytes), (64, 2 * stats.served_bytes));
        assert_eq!(
            (stats.read_sizes[0], stats.read_sizes[1], stats.read_sizes[8], stats.read_sizes[9]),
            (16, 16, 16, 16)
        );
        assert_eq!((stats.decodes(), stats.decoded_scratch, stats.decoded_bytes), (16, 16, 112));
        assert_eq!(stats.fetch_amplification(), Some(2.0));
    }
}
