//! Which extents somebody has wanted a part of lately.
//!
//! Who reads here and there comes back to an extent only by chance; who reads on, or reads the files of one directory, comes back
//! at once. So an extent is worth the cache at its second touch, if that is not too far from the first. A table of hashes
//! remembers the first ones, each until another extent falls on its slot.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of cache for one slot: about as many extents are remembered as the cache holds.
const BYTES_PER_SLOT: u64 = 64 << 10;
const SLOTS_MAX: u64 = 1 << 16;

/// Whether an extent was touched lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    First,
    Again,
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

    /// Remember `key`, and say whether it was remembered already.
    pub fn touch(&self, key: &impl Hash) -> Touch {
        let hash = self.hasher.hash_one(key);
        let slot = &self.slots[hash as usize & (self.slots.len() - 1)];
        match slot.swap(hash, Ordering::Relaxed) == hash {
            true => Touch::Again,
            false => Touch::First,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_touch_is_known_until_others_came() {
        let touched = Touched::new(1 << 20);
        assert_eq!(
            [touched.touch(&7), touched.touch(&7), touched.touch(&8)],
            [Touch::First, Touch::Again, Touch::First]
        );
        for key in 100..10_000 {
            touched.touch(&key);
        }
        assert_eq!(touched.touch(&7), Touch::First);
    }
}
