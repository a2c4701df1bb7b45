//! Decoded extents that stay in memory until the image is closed: a caller that pins them knows
//! that they will be read again.

use super::byte_cache::SharedBytes;
use crate::map::encoded_extent::EncodedExtent;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Bytes of memory that an extent takes beside its own: key, slot and allocation headers.
pub(crate) const PINNED_COST: u64 = 128;

/// The extents. Nothing evicts them, so the caller that inserts bounds them.
#[derive(Default)]
pub(crate) struct PinnedExtents {
    extents: RwLock<HashMap<EncodedExtent, SharedBytes>>,
    /// Bytes of all of them. Where nothing is pinned, reads look no further.
    len: AtomicU64,
}

impl PinnedExtents {
    /// Returns the extent, if it is pinned.
    pub(crate) fn get(&self, encoded: &EncodedExtent) -> Option<SharedBytes> {
        if self.len() == 0 {
            return None;
        }
        self.extents.read().unwrap_or_else(PoisonError::into_inner).get(encoded).cloned()
    }

    /// Returns the bytes of decoded data, [`PINNED_COST`] not counted.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory that they take.
    pub(crate) fn cost(&self) -> u64 {
        let count = self.extents.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        self.len() + count * PINNED_COST
    }

    /// Keeps an extent from now on.
    pub(crate) fn insert(&self, encoded: EncodedExtent, bytes: SharedBytes) {
        let mut extents: RwLockWriteGuard<'_, _> = self.extents.write().unwrap_or_else(PoisonError::into_inner);
        let len = bytes.len() as u64;
        if extents.insert(encoded, bytes).is_none() {
            self.len.fetch_add(len, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::byte_cache::CachedBytes;
    use crate::map::extent::Pcluster;
    use kiln_format::Algorithm;

    #[test]
    fn an_extent_counts_once() {
        let pcluster = Pcluster { device: 0, inline: None, pa: 4096, plen: 4096 };
        let encoded = EncodedExtent { pcluster, algorithm: Algorithm::Zstd, partial: false, llen: 9000 };
        let pinned = PinnedExtents::default();
        assert!(pinned.get(&encoded).is_none());
        for _ in 0..2 {
            pinned.insert(encoded, CachedBytes::new(vec![7; 9000].into_boxed_slice()));
            assert_eq!((pinned.len(), pinned.cost()), (9000, 9000 + PINNED_COST));
        }
        assert_eq!(pinned.get(&encoded).unwrap()[8999], 7);
        assert!(pinned.get(&EncodedExtent { llen: 8999, ..encoded }).is_none());
    }
}
