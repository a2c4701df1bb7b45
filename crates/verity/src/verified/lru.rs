//! Blocks that were used last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A bounded number of blocks. The one that was not used for the longest time makes room for a new one.
pub(super) struct Lru {
    max: usize,
    /// Blocks, with the time of their last use.
    blocks: HashMap<u64, (u64, Arc<[u8]>)>,
    /// Blocks by that time.
    uses: BTreeMap<u64, u64>,
    now: u64,
}

impl Lru {
    /// Creates a cache of `max` blocks, but of one at least.
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), blocks: HashMap::new(), uses: BTreeMap::new(), now: 0 }
    }

    pub(super) fn get(&mut self, idx: u64) -> Option<Arc<[u8]>> {
        let (used, block) = self.blocks.get_mut(&idx)?;
        // The block that was used last stays where it is: the usual case.
        if *used != self.now {
            self.uses.remove(used);
            self.now += 1;
            *used = self.now;
            self.uses.insert(self.now, idx);
        }
        Some(block.clone())
    }

    pub(super) fn insert(&mut self, idx: u64, block: Arc<[u8]>) {
        self.now += 1;
        if let Some((used, _)) = self.blocks.insert(idx, (self.now, block)) {
            self.uses.remove(&used);
        }
        self.uses.insert(self.now, idx);
        if self.blocks.len() > self.max
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.blocks.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let mut lru = Lru::new(2);
        let block = |byte: u8| Arc::from([byte].as_slice());
        lru.insert(1, block(1));
        lru.insert(2, block(2));
        assert_eq!(lru.get(1).as_deref(), Some(&[1][..]));
        lru.insert(3, block(3));
        assert_eq!(lru.get(2), None);
        assert_eq!((lru.get(1).is_some(), lru.get(3).is_some()), (true, true));
        lru.insert(3, block(4));
        assert_eq!(lru.get(3).as_deref(), Some(&[4][..]));
        assert_eq!((lru.blocks.len(), lru.uses.len()), (2, 2));
    }
}
