//! A cache of byte strings, bounded by the sum of their lengths. Threads that want the same missing
//! value load it once (singleflight).

use crate::error::ReadError;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Cached bytes, shared by the cache and the threads that read them.
pub(crate) type SharedBytes = Arc<CachedBytes>;

/// Bytes, and how many of them consumers have got.
#[derive(Debug)]
pub(crate) struct CachedBytes {
    bytes: Box<[u8]>,
    consumed: AtomicU64,
}

impl CachedBytes {
    pub(crate) fn new(bytes: Box<[u8]>) -> SharedBytes {
        Self::with_consumed(bytes, 0)
    }

    /// Returns bytes of which consumers got `len` before they were cached.
    pub(crate) fn with_consumed(bytes: Box<[u8]>, len: u64) -> SharedBytes {
        Arc::new(CachedBytes { bytes, consumed: AtomicU64::new(len) })
    }

    /// Notes that a consumer gets `len` bytes. Returns whether all are consumed now, provided that
    /// none is consumed twice.
    pub(crate) fn consume(&self, len: usize) -> bool {
        self.consumed.fetch_add(len as u64, Ordering::Relaxed) + len as u64 >= self.bytes.len() as u64
    }
}

impl Deref for CachedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Result of a load. An error stays in the cache only until the threads that wait for it have taken
/// it.
type LoadResult = Result<SharedBytes, Arc<ReadError>>;

/// Bytes of memory that an entry takes beside its value: key, slot and allocation headers.
const ENTRY_COST: u64 = 128;

/// The part of a cache for values that were wanted once: so many values that are read once drive
/// out few that are read often.
const RECENT_SHARE: f64 = 0.03;

/// Most shards; more would help only machines with more cores than decode at the same time.
const SHARDS_MAX: u64 = 64;

#[derive(Clone)]
struct ByLen;

impl<K> Weighter<K, LoadResult> for ByLen {
    fn weight(&self, _: &K, outcome: &LoadResult) -> u64 {
        ENTRY_COST + outcome.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }
}

/// A bounded cache with one load per key in flight.
///
/// Capacity is split over shards without borrowing, and what exceeds a shard's share would be
/// dropped at once, whatever else is free. So there are only as many shards as leave each a share
/// of eight times the largest value; where even the whole is smaller than that, there is one.
pub(crate) struct ByteCache<K> {
    inner: Cache<K, LoadResult, ByLen>,
    largest: u64,
    capacity: AtomicU64,
}

impl<K: Clone + Eq + Hash> ByteCache<K> {
    /// Returns a cache of `capacity` bytes for values of up to `largest` and usually `typical`
    /// bytes.
    pub(super) fn new(capacity: u64, largest: u64, typical: u64) -> Self {
        Self::with_recent(capacity, largest, typical, RECENT_SHARE)
    }

    /// Returns the same cache, of which values that were wanted once may take the part `recent`.
    pub(super) fn with_recent(capacity: u64, largest: u64, typical: u64, recent: f64) -> Self {
        let shards = (capacity / (8 * largest)).clamp(1, SHARDS_MAX);
        // Rounded down: the cache rounds up to a power of two.
        let shards = 1usize << shards.ilog2();
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(capacity)
            .hot_allocation(1.0 - recent)
            .estimated_items_capacity((capacity / typical).clamp(32 * shards as u64, 1 << 20) as usize)
            .build()
            .expect("both capacities are set");
        let inner = Cache::with_options(options, ByLen, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { inner, largest: largest.min(capacity / 4), capacity: capacity.into() }
    }

    /// Returns the bound, in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the bound. It must stay at least half of the one that the cache was made with, so
    /// that the largest values have room.
    pub(super) fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        self.inner.set_capacity(capacity);
    }

    /// Returns the longest value in bytes that the cache is meant for: one that holds fewer than
    /// four of them would only churn.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    /// Forgets a value.
    pub(crate) fn remove(&self, key: &K) {
        self.inner.remove(key);
    }

    /// Returns the value, if it is there.
    pub(crate) fn get(&self, key: &K) -> Option<SharedBytes> {
        self.inner.get(key)?.ok()
    }

    /// Returns true if the value is there.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.inner.contains_key(key)
    }

    /// Inserts a value that was loaded together with another one.
    pub(crate) fn put(&self, key: K, bytes: SharedBytes) {
        self.inner.insert(key, Ok(bytes));
    }

    /// Returns the value, which `load` makes unless it is there or another thread is making it.
    ///
    /// If `load` fails, all threads that wait for it get its error, and the next call tries again.
    /// (`quick_cache` alone would let each waiting thread repeat the load, one after the other.)
    pub(crate) fn get_or_load(
        &self,
        key: &K,
        load: impl FnOnce() -> Result<SharedBytes, ReadError>,
    ) -> Result<SharedBytes, ReadError> {
        match self.inner.get_value_or_guard(key, None) {
            GuardResult::Value(outcome) => outcome.map_err(|error| (*error).clone()),
            GuardResult::Guard(guard) => LoadGuard { cache: self, key: key.clone(), guard }.finish(load),
            GuardResult::Timeout => Err(ReadError::Internal { what: "a cache without a timeout timed out".into() }),
        }
    }

    /// Returns the value, or the right to make it unless another thread has that, without waiting.
    pub(crate) fn try_claim(&self, key: &K) -> Result<Claim<'_, K>, ReadError> {
        match self.inner.get_value_or_guard(key, Some(Duration::ZERO)) {
            GuardResult::Value(outcome) => outcome.map(Claim::Cached).map_err(|error| (*error).clone()),
            GuardResult::Guard(guard) => Ok(Claim::Ours(LoadGuard { cache: self, key: key.clone(), guard })),
            GuardResult::Timeout => Ok(Claim::Elsewhere),
        }
    }
}

/// Answer to a claim for a value: the thread that makes it.
pub(crate) enum Claim<'a, K> {
    /// None: it is there.
    Cached(SharedBytes),
    /// This one. Others that want the value wait until it is made, or the claim is dropped.
    Ours(LoadGuard<'a, K>),
    /// Another one.
    Elsewhere,
}

/// The right and the duty to make a value.
pub(crate) struct LoadGuard<'a, K> {
    cache: &'a ByteCache<K>,
    key: K,
    guard: PlaceholderGuard<'a, K, LoadResult, ByLen, DefaultHashBuilder, DefaultLifecycle<K, LoadResult>>,
}

impl<K: Clone + Eq + Hash> LoadGuard<'_, K> {
    /// Makes the value. All threads that wait for it get it, or the error.
    pub(crate) fn finish(
        self,
        load: impl FnOnce() -> Result<SharedBytes, ReadError>,
    ) -> Result<SharedBytes, ReadError> {
        match load() {
            Ok(bytes) => {
                // The answer is an error if the key was removed meanwhile: the waiters have their
                // value anyhow.
                let _ = self.guard.insert(Ok(bytes.clone()));
                Ok(bytes)
            }
            Err(error) => {
                let _ = self.guard.insert(Err(Arc::new(error.clone())));
                self.cache.inner.remove_if(&self.key, |outcome| outcome.is_err());
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn bytes(len: usize) -> SharedBytes {
        CachedBytes::new(vec![0; len].into_boxed_slice())
    }

    /// Asks for one key on eight threads at once. Returns the number of loads, and the results.
    fn race(load: impl Fn() -> Result<SharedBytes, ReadError> + Sync) -> (usize, Vec<Result<SharedBytes, ReadError>>) {
        let cache = ByteCache::<u32>::new(1 << 20, 1 << 16, 4096);
        let (loads, barrier) = (AtomicUsize::new(0), Barrier::new(8));
        let results = std::thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                cache.get_or_load(&7, || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(100));
                    load()
                })
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        (loads.into_inner(), results)
    }

    #[test]
    fn one_load_serves_all_waiters() {
        let (loads, results) = race(|| Ok(bytes(100)));
        assert_eq!(loads, 1);
        assert!(results.iter().all(|r| r.as_ref().is_ok_and(|b| b.len() == 100)));
    }

    #[test]
    fn one_failure_serves_all_waiters_and_is_forgotten() {
        let (loads, results) = race(|| Err(ReadError::NotFound { path: b"x".to_vec() }));
        assert_eq!(loads, 1);
        assert!(results.iter().all(Result::is_err));
        let cache = ByteCache::<u32>::new(1 << 20, 1 << 16, 4096);
        assert!(cache.get_or_load(&1, || Err(ReadError::NotFound { path: vec![] })).is_err());
        assert!(cache.get_or_load(&1, || Ok(bytes(1))).is_ok());
    }

    #[test]
    fn a_claim_is_one_threads_until_it_is_given_up() {
        let cache = ByteCache::<u32>::new(1 << 20, 1 << 16, 4096);
        let claim = || cache.try_claim(&7);
        let Ok(Claim::Ours(first)) = claim() else { panic!("claimed by another") };
        assert!(matches!(claim(), Ok(Claim::Elsewhere)));
        drop(first);
        let Ok(Claim::Ours(second)) = claim() else { panic!("still claimed") };
        let waiter = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| cache.get_or_load(&7, || panic!("loaded twice")));
            std::thread::sleep(Duration::from_millis(20));
            second.finish(|| Ok(bytes(5))).unwrap();
            waiter.join().unwrap()
        });
        assert_eq!(waiter.unwrap().len(), 5);
        assert!(matches!(claim(), Ok(Claim::Cached(bytes)) if bytes.len() == 5));
        cache.remove(&7);
        let Ok(Claim::Ours(third)) = claim() else { panic!("claimed by another") };
        assert!(third.finish(|| Err(ReadError::NotFound { path: vec![] })).is_err());
        assert!(matches!(claim(), Ok(Claim::Ours(_))));
    }

    #[test]
    fn the_largest_value_is_kept() {
        for capacity in [1 << 20, 3 << 20, 64 << 20, 1 << 30] {
            let cache = ByteCache::<u32>::new(capacity, 12 << 20, 64 << 10);
            let len = cache.largest() as usize;
            cache.get_or_load(&1, || Ok(bytes(len))).unwrap();
            assert!(cache.get(&1).is_some(), "{len} bytes in a cache of {capacity}");
            assert!(cache.inner.weight() <= capacity);
        }
    }

    #[test]
    fn the_bound_holds() {
        let cache = ByteCache::<u32>::new(1 << 20, 64 << 10, 64 << 10);
        for key in 0..1000 {
            cache.get_or_load(&key, || Ok(bytes(60_000))).unwrap();
            assert!(cache.inner.weight() <= 1 << 20);
        }
    }

    #[test]
    fn no_capacity_is_no_error() {
        let cache = ByteCache::<u32>::new(0, 12 << 20, 64 << 10);
        assert_eq!(cache.largest(), 0);
        assert!(cache.get_or_load(&1, || Ok(bytes(10))).is_ok());
        assert!(cache.get(&1).is_none());
    }
}
