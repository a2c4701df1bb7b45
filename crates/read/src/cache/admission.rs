//! Cache admission: the history of accesses to encoded extents (a doorkeeper).
//!
//! A random reader comes back to an extent only by chance; a sequential reader, and one that reads
//! the files of a directory, comes back at once. So an extent enters the cache at its second
//! access, if the table still remembers the first. A second access that is a long step ahead of the
//! first does not count if another step like it ends behind the extent: that is a stride. A table
//! of hashes remembers the last access to an extent until another extent falls on its slot, and how
//! many bytes of the extent readers have got.

use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of cache for one slot: about as many extents are remembered as the cache holds.
const BYTES_PER_SLOT: u64 = 64 << 10;
const SLOTS_MAX: u64 = 1 << 16;
/// The low bits of a slot: the byte of the extent behind the last access. The others are a hash of
/// the extent.
const END: u64 = (1 << 24) - 1;
const _: () = assert!(EXTENT_MAX_LEN as u64 <= END);

/// An access to an extent, in the light of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// None is remembered.
    First,
    /// Another one is remembered.
    Repeated,
    /// Another one is remembered, and the stride of the two leaves the extent with the next step.
    StridePast,
    /// The first one or not: the file is read at random.
    Random,
}

impl Access {
    /// Classifies an access to bytes `wanted` of an extent of `llen` bytes, after one that ended at
    /// byte `last`.
    pub(crate) fn after(last: Option<u64>, wanted: &Range<u64>, llen: u64) -> Self {
        match last {
            None => Access::First,
            Some(last) if wanted.end + wanted.start.saturating_sub(last) > llen => Access::StridePast,
            Some(_) => Access::Repeated,
        }
    }
}

/// Record of the accesses to an extent before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastAccesses {
    /// The byte of the extent behind the last access.
    pub end: u64,
    /// Bytes of the extent that all of them got together.
    pub len: u32,
}

#[derive(Default)]
struct AccessSlot {
    /// See [`END`].
    last: AtomicU64,
    /// Bytes of the extent that readers got.
    len: AtomicU32,
}

pub(crate) struct AccessHistory {
    slots: Box<[AccessSlot]>,
    hasher: RandomState,
}

impl AccessHistory {
    /// Returns a table for a cache of `cache_bytes` bytes.
    pub(super) fn new(cache_bytes: u64) -> Self {
        let count = (cache_bytes / BYTES_PER_SLOT).clamp(16, SLOTS_MAX).next_power_of_two();
        Self { slots: (0..count).map(|_| AccessSlot::default()).collect(), hasher: RandomState::new() }
    }

    /// Remembers an access to bytes `wanted` of the extent `key`. Returns what is remembered of
    /// those before.
    pub(crate) fn record(&self, key: &impl Hash, wanted: &Range<u64>) -> Option<PastAccesses> {
        let hash = self.hasher.hash_one(key);
        let slot = &self.slots[hash as usize & (self.slots.len() - 1)];
        let len = (wanted.end - wanted.start) as u32;
        let last = slot.last.swap(hash & !END | wanted.end & END, Ordering::Relaxed);
        if last & !END != hash & !END {
            slot.len.store(len, Ordering::Relaxed);
            return None;
        }
        Some(PastAccesses { end: last & END, len: slot.len.fetch_add(len, Ordering::Relaxed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_access_is_known_until_others_came() {
        // No other keys between two accesses: which keys share a slot differs from run to run.
        let history = AccessHistory::new(1 << 20);
        assert_eq!(history.record(&7, &(0..5)), None);
        assert_eq!(history.record(&7, &(8..9)), Some(PastAccesses { end: 5, len: 5 }));
        assert_eq!(history.record(&7, &(0..5)), Some(PastAccesses { end: 9, len: 6 }));
        for key in 100..10_000 {
            history.record(&key, &(0..END));
        }
        assert_eq!(history.record(&7, &(0..1)), None);
    }

    #[test]
    fn steps_that_leave_the_extent_are_known() {
        let after = |last, start, end| Access::after(last, &(start..end), 100);
        assert_eq!(after(None, 90, 100), Access::First);
        // Forward, back, a short step ahead.
        for (last, start, end) in [(40, 40, 50), (90, 10, 20), (10, 30, 50), (10, 50, 60), (90, 90, 100)] {
            assert_eq!(after(Some(last), start, end), Access::Repeated, "{last} {start}..{end}");
        }
        for (last, start, end) in [(10, 51, 60), (10, 60, 70), (0, 90, 100)] {
            assert_eq!(after(Some(last), start, end), Access::StridePast, "{last} {start}..{end}");
        }
    }
}
