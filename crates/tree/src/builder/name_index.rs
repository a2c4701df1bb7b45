//! Index of the names in directories that grow.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

use crate::entries::Entries;
use crate::{Kind, Node, NodeId};

/// Index of the names of all directories. It has 12 bytes for each name: its place and a part of its
/// hash, so that a table that grows reads no names again. The hash has a random seed, so that no
/// archive can choose names that collide; the order of the tree does not depend on it.
pub(super) struct NameIndex {
    table: HashTable<Indexed>,
    hasher: RandomState,
}

/// Place of a name: the directory, and the index of the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    dir: NodeId,
    idx: u32,
}

#[derive(Clone, Copy)]
struct Indexed {
    place: Place,
    hash: NameHash,
}

/// Hash of a directory and a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NameHash(u32);

impl NameHash {
    /// Returns the hash for the table, which uses the lowest and the highest bits.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl NameIndex {
    /// Creates the index of all directories among `nodes`.
    pub(super) fn of(nodes: &[Node]) -> Self {
        let mut index = Self { table: HashTable::new(), hasher: RandomState::new() };
        for dir in (0..nodes.len() as u32).map(NodeId) {
            for (idx, entry) in entries(nodes, dir).iter().enumerate() {
                index.insert(dir, idx, index.hash(dir, entry.name));
            }
        }
        index
    }

    /// Returns the hash of `name` in a directory.
    pub(super) fn hash(&self, dir: NodeId, name: &[u8]) -> NameHash {
        NameHash(self.hasher.hash_one((dir, name)) as u32)
    }

    /// Returns the index of the entry `name` of a directory, given its hash.
    pub(super) fn find(&self, nodes: &[Node], dir: NodeId, name: &[u8], hash: NameHash) -> Option<usize> {
        let is_it = |one: &Indexed| one.hash == hash && one.place.dir == dir && name_at(nodes, one.place) == name;
        self.table.find(hash.spread(), is_it).map(|one| one.place.idx as usize)
    }

    /// Adds an entry, given the hash of its name.
    pub(super) fn insert(&mut self, dir: NodeId, idx: usize, hash: NameHash) {
        let place = Place { dir, idx: idx as u32 };
        self.table.insert_unique(hash.spread(), Indexed { place, hash }, |one| one.hash.spread());
    }

    /// Removes all entries of a directory, which still has them.
    pub(super) fn remove_all(&mut self, nodes: &[Node], dir: NodeId) {
        for (idx, entry) in entries(nodes, dir).iter().enumerate() {
            let place = Place { dir, idx: idx as u32 };
            let hash = self.hash(dir, entry.name).spread();
            if let Ok(found) = self.table.find_entry(hash, |one| one.place == place) {
                found.remove();
            }
        }
    }
}

/// Returns the entries of a directory; none of other nodes.
pub(super) fn entries(nodes: &[Node], dir: NodeId) -> &Entries {
    static NONE: Entries = Entries::new();
    match &nodes[dir.idx()].kind {
        Kind::Directory(entries) => entries,
        _ => &NONE,
    }
}

fn name_at(nodes: &[Node], place: Place) -> &[u8] {
    entries(nodes, place.dir).at(place.idx as usize).name
}
