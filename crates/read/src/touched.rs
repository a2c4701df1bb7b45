//! Which extents somebody has wanted a part of lately.
//!
//! Who reads here and there comes back to an extent only by chance; who reads on, or reads the files of one directory, comes back
//! at once. So an extent is worth the cache at its second touch, if that is not too far from the first; but not if it is a long
//! step ahead of the first and another step like it ends behind the extent, for that is how strides look. A table of hashes
//! remembers the last touches, each until another extent falls on its slot.

use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of cache for one slot: about as many extents are remembered as the cache holds.
const BYTES_PER_SLOT: u64 = 64 << 10;
const SLOTS_MAX: u64 = 1 << 16;
/// The low bits of a slot: where the part ended that was wanted. The others are a hash.
const END: u64 = (1 << 24) - 1;
const _: () = assert!(EXTENT_MAX_LEN as u64 <= END);

/// Whether an extent was touched lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    First,
    Again,
    /// Again, as a step of a stride that now leaves the extent.
    Leaving,
    /// By who reads its file here and there, for the first time or not.
    AtRandom,
}

impl Touch {
    /// A touch of bytes `wanted` of an extent of `llen` bytes, after one that ended at byte `last`.
    pub fn after(last: Option<u64>, wanted: &Range<u64>, llen: u64) -> Self {
        match last {
            None => Touch::First,
            Some(last) if wanted.end + wanted.start.saturating_sub(last) > llen => Touch::Leaving,
            Some(_) => Touch::Again,
        }
    }
}

pub(crate) struct Touched {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Touched {
    /// A table for a cache of so many bytes.
    pub fn new(cache_bytes: u64) -> Self {
        let count = (cache_bytes / BYTES_PER_SLOT).clamp(16, SLOTS_MAX).next_power_of_two();
        Self { slots: (0..count).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }

    /// Remember that bytes up to `end` of `key`'s extent are wanted. Returns the `end` of last time, if it is remembered.
    pub fn touch(&self, key: &impl Hash, end: u64) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        let slot = &self.slots[hash as usize & (self.slots.len() - 1)];
        let last = slot.swap(hash & !END | end & END, Ordering::Relaxed);
        (last & !END == hash & !END).then_some(last & END)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_touch_is_known_until_others_came() {
        let touched = Touched::new(1 << 20);
        assert_eq!([touched.touch(&7, 5), touched.touch(&7, 9), touched.touch(&8, 1)], [None, Some(5), None]);
        for key in 100..10_000 {
            touched.touch(&key, END);
        }
        assert_eq!(touched.touch(&7, 1), None);
    }

    #[test]
    fn steps_that_leave_the_extent_are_known() {
        let touch = |last, start, end| Touch::after(last, &(start..end), 100);
        assert_eq!(touch(None, 90, 100), Touch::First);
        // On and on, back, a short step ahead.
        for (last, start, end) in [(40, 40, 50), (90, 10, 20), (10, 30, 50), (10, 50, 60), (90, 90, 100)] {
            assert_eq!(touch(Some(last), start, end), Touch::Again, "{last} {start}..{end}");
        }
        for (last, start, end) in [(10, 51, 60), (10, 60, 70), (0, 90, 100)] {
            assert_eq!(touch(Some(last), start, end), Touch::Leaving, "{last} {start}..{end}");
        }
    }
}
