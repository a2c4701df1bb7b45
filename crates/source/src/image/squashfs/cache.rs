//! Cache with a bounded number of blocks.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

/// Cache of recently used values. Two generations approximate the order of use: a value found in
/// the old generation moves to the young one, and when the young one is full, it replaces the old
/// one.
pub(super) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Maximum number of blocks in a generation.
    generation_count: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    /// Creates a cache for at most `count` blocks.
    pub(super) fn new(count: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation_count: count.div_ceil(2) }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(key.clone(), value.clone());
        Some(value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.generation_count {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_values_stay() {
        let mut cache = Cache::new(8);
        for key in 0..100 {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(0));
            assert_eq!(cache.get(&key), Some(key));
            assert!(cache.young.len() + cache.old.len() <= 8);
        }
        assert_eq!(cache.get(&50), None);
    }
}
