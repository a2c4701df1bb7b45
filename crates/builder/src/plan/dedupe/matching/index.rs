//! First places of chunks: hash tables within a hard budget of bytes.
//!
//! When the budget is used up, the index halves itself: it keeps only hashes whose lowest bits are zero, one bit
//! more each time, and accepts only such hashes from then on. Its contents depend only on the order of insertions.
//!
//! The index is divided into tables that grow one at a time, so that old and new slots never exist for more than a
//! small part of it; the budget counts both.

use super::Place;
use crate::plan::dedupe::chunker::ChunkHash;

/// Tables of an index whose budget is worth dividing.
const TABLES: usize = 64;
/// Least bytes of each of several tables.
const TABLE_MIN_BYTES: usize = 64 << 10;
/// Slots of a table's first allocation.
const FIRST_SLOTS: usize = 16;
/// Most bits that must be zero.
const SPARSE_MAX_BITS: u32 = 32;
/// Most slots that a search looks at. Random hashes stay far below; chosen ones must not make searches slow.
const PROBE_MAX: usize = 512;

/// A slot.
#[derive(Clone, Copy)]
struct Slot {
    hash: ChunkHash,
    /// [`EMPTY`]: nothing is here.
    stream: u32,
    off: u64,
}

const EMPTY: u32 = u32::MAX;
const SLOT_LEN: usize = size_of::<Slot>();
const _: () = assert!(SLOT_LEN == 24);

/// The first place of each chunk.
pub(super) struct Index {
    tables: Vec<Table>,
    /// Most bytes of all slots, those included that exist only while a table is rebuilt.
    budget: usize,
    /// Bytes of all slots.
    bytes: usize,
    /// Bytes of the largest table.
    largest: usize,
    /// Low bits of a hash that must be zero.
    sparse_bits: u32,
    dropped: u64,
}

impl Index {
    /// Creates an index of at most `budget` bytes; with 0 it remembers nothing.
    pub(super) fn new(budget: usize) -> Self {
        let count = if budget / TABLES >= TABLE_MIN_BYTES { TABLES } else { 1 };
        let tables = std::iter::repeat_with(Table::default).take(count).collect();
        Self { tables, budget, bytes: 0, largest: 0, sparse_bits: 0, dropped: 0 }
    }

    /// Returns the first place of a chunk, if it is remembered.
    pub(super) fn find(&self, hash: ChunkHash) -> Option<Place> {
        self.tables[self.table_of(hash)].find(hash)
    }

    /// Remembers a chunk, unless it is known or there is no room.
    pub(super) fn insert(&mut self, hash: ChunkHash, place: Place) {
        let idx = self.table_of(hash);
        if place.stream == EMPTY || self.tables[idx].find(hash).is_some() {
            return;
        }
        while is_kept(hash, self.sparse_bits) {
            if self.tables[idx].has_room() {
                let is_put = self.tables[idx].put(Slot { hash, stream: place.stream, off: place.off });
                self.dropped += u64::from(!is_put);
                return;
            }
            if !self.grow(idx) && !self.halve() {
                break;
            }
        }
        self.dropped += 1;
    }

    /// Returns the number of chunks that were not remembered or were forgotten.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn table_of(&self, hash: ChunkHash) -> usize {
        hash.0[2] as usize % self.tables.len()
    }

    /// Doubles a table. Returns whether the budget allows it.
    fn grow(&mut self, idx: usize) -> bool {
        let old = self.tables[idx].slots.len();
        let slots = if old == 0 { FIRST_SLOTS } else { 2 * old };
        let (old_bytes, new_bytes) = (old * SLOT_LEN, slots * SLOT_LEN);
        let bytes = self.bytes - old_bytes + new_bytes;
        let largest = self.largest.max(new_bytes);
        // Room is left for a second copy of the largest table, which halving needs; it covers the old slots here.
        if bytes + largest > self.budget {
            return false;
        }
        self.dropped += self.tables[idx].rebuild(slots, 0);
        (self.bytes, self.largest) = (bytes, largest);
        true
    }

    /// Forgets every other chunk. Returns whether there is anything to forget.
    fn halve(&mut self) -> bool {
        if self.sparse_bits == SPARSE_MAX_BITS || self.tables.iter().all(|table| table.len == 0) {
            return false;
        }
        self.sparse_bits += 1;
        for table in &mut self.tables {
            self.dropped += table.rebuild(table.slots.len(), self.sparse_bits);
        }
        true
    }
}

/// Returns whether the lowest `bits` of a hash are zero.
fn is_kept(hash: ChunkHash, bits: u32) -> bool {
    hash.0[0].trailing_zeros() >= bits
}

/// Open addressing, linear probing; the count of slots is a power of two, or 0.
#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    /// Slots in use.
    len: usize,
}

impl Table {
    /// Returns whether there is room: at most three quarters are used, as an empty slot ends every search.
    fn has_room(&self) -> bool {
        (self.len + 1) * 4 <= self.slots.len() * 3
    }

    fn find(&self, hash: ChunkHash) -> Option<Place> {
        let slot = self.slots[self.search(hash)?];
        (slot.stream != EMPTY).then_some(Place { stream: slot.stream, off: slot.off })
    }

    /// Fills a slot with a hash that is not there. Returns whether one is near enough.
    fn put(&mut self, slot: Slot) -> bool {
        let Some(at) = self.search(slot.hash) else { return false };
        self.slots[at] = slot;
        self.len += 1;
        true
    }

    /// Returns the slot of a hash, or the empty one where it would be.
    fn search(&self, hash: ChunkHash) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let home = hash.0[1] as usize;
        let mut probes = (0..PROBE_MAX).map(|step| (home + step) & mask);
        probes.find(|&at| self.slots[at].stream == EMPTY || self.slots[at].hash == hash)
    }

    /// Moves chunks that `sparse_bits` allows to `slots` slots. Returns the number of forgotten chunks.
    fn rebuild(&mut self, slots: usize, sparse_bits: u32) -> u64 {
        let empty = Slot { hash: ChunkHash([0; 3]), stream: EMPTY, off: 0 };
        let old = std::mem::replace(&mut self.slots, vec![empty; slots]);
        let before = std::mem::take(&mut self.len);
        for slot in old.into_iter().filter(|slot| slot.stream != EMPTY && is_kept(slot.hash, sparse_bits)) {
            self.put(slot);
        }
        (before - self.len) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use std::collections::HashMap;
    use xxhash_rust::xxh3::xxh3_128;

    fn hash(n: u64) -> ChunkHash {
        ChunkHash::of(&n.to_le_bytes())
    }

    fn place(off: u64) -> Place {
        Place { stream: (off % 7) as u32, off }
    }

    /// Bytes allocated, as counted slot by slot.
    fn allocated(index: &Index) -> usize {
        index.tables.iter().map(|table| table.slots.capacity() * SLOT_LEN).sum()
    }

    #[test]
    fn the_budget_is_kept_and_half_is_forgotten_at_a_time() {
        for budget in [0, 1, 500, 767, 768, 10_000, 1 << 20, 6 << 20] {
            let mut index = Index::new(budget);
            let count = 400_000;
            for n in 0..count {
                index.insert(hash(n), place(n));
                let rebuilt = index.tables.iter().map(|table| table.slots.len() * SLOT_LEN).max().unwrap();
                assert!(n % 1000 != 0 || allocated(&index) + rebuilt <= budget, "budget {budget}");
            }
            assert_eq!(allocated(&index), index.bytes);
            let bits = index.sparse_bits;
            let found = (0..count).filter(|&n| index.find(hash(n)).is_some());
            let found: Vec<u64> = found.inspect(|&n| assert!(is_kept(hash(n), bits))).collect();
            assert_eq!(found.len() as u64 + index.dropped(), count, "budget {budget}");
            assert!(found.iter().all(|&n| index.find(hash(n)) == Some(place(n))));
            // A sixth of the budget at least is in use after a halving: 3/4 full, half of it, half for the largest.
            assert!(budget < 10_000 || found.len() * SLOT_LEN * 12 >= budget, "{} of {budget}", found.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, rng_seed: RngSeed::Fixed(0x1D), failure_persistence: None, ..Default::default()
        })]

        /// As long as nothing is dropped, the index is a map in which the first value wins. Hashes collide in any word.
        #[test]
        fn the_first_place_wins(
            keys in proptest::collection::vec((0..4_u32, 0..40_u32, 0..4_u32), 1..500),
            large: bool,
        ) {
            let mut index = Index::new(if large { 64 << 20 } else { 1 << 20 });
            let mut twin = HashMap::new();
            for (off, (a, b, c)) in keys.into_iter().enumerate() {
                let hash = ChunkHash([a, b, c]);
                index.insert(hash, place(off as u64));
                twin.entry(hash).or_insert(place(off as u64));
            }
            for (&hash, &place) in &twin {
                prop_assert_eq!(index.find(hash), Some(place));
            }
            prop_assert_eq!(index.dropped(), 0);
            prop_assert_eq!(index.find(ChunkHash([9, 9, 9])), None);
        }
    }

    /// Chosen hashes make nothing slow: those that fall into one slot are dropped.
    #[test]
    fn hashes_of_one_slot() {
        let mut index = Index::new(64 << 20);
        for n in 0..100_000 {
            index.insert(ChunkHash([n, 5, 5]), place(n.into()));
        }
        let found = (0..100_000).filter(|&n| index.find(ChunkHash([n, 5, 5])).is_some()).count();
        assert_eq!(found as u64 + index.dropped(), 100_000);
        assert_eq!(found, PROBE_MAX);
    }

    /// Nor can they outgrow the budget by surviving every halving.
    #[test]
    fn hashes_that_all_survive_halving() {
        let mut index = Index::new(10_000);
        for n in 0..5000_u64 {
            let wide = xxh3_128(&n.to_le_bytes());
            index.insert(ChunkHash([0, wide as u32 & 7, (wide >> 32) as u32]), place(n));
        }
        assert!(allocated(&index) <= 10_000 && index.dropped() > 4000);
    }
}
