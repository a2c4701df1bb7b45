//! Extended attributes of a tree, each pair of key and value once: most files have the same few.

use super::Span;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// A pair of key and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    key: Span,
    value: Span,
    hash: u64,
}

/// Distinct pairs, with a table to find them.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pairs: Vec<Pair>,
    table: HashTable<u32>,
    /// Random, so that no dump can choose keys that collide. No result depends on it.
    hashes: RandomState,
}

impl Pairs {
    /// Returns the index of a pair, which is appended if there is none; `None` after 2^32 pairs.
    pub(super) fn intern(&mut self, text: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Option<u32> {
        let hash = self.hashes.hash_one((key, value));
        let pairs = &self.pairs;
        let is_same = |&at: &u32| {
            let pair = &pairs[at as usize];
            pair.hash == hash && pair.key.of(text) == key && pair.value.of(text) == value
        };
        if let Some(&at) = self.table.find(hash, is_same) {
            return Some(at);
        }
        let at = u32::try_from(self.pairs.len()).ok()?;
        self.pairs.push(Pair { key: Span::append(text, key), value: Span::append(text, value), hash });
        let pairs = &self.pairs;
        self.table.insert_unique(hash, at, |&at| pairs[at as usize].hash);
        Some(at)
    }

    /// Returns a pair's key and value.
    pub(super) fn get<'t>(&self, at: u32, text: &'t [u8]) -> (&'t [u8], &'t [u8]) {
        let pair = &self.pairs[at as usize];
        (pair.key.of(text), pair.value.of(text))
    }

    /// Returns all pairs, in the order of their indexes.
    pub(super) fn iter<'t>(&'t self, text: &'t [u8]) -> impl ExactSizeIterator<Item = (&'t [u8], &'t [u8])> {
        self.pairs.iter().map(|pair| (pair.key.of(text), pair.value.of(text)))
    }
}
