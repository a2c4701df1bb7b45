//! Index of the names in directories that grow.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

use crate::entries::Entries;
use crate::{Kind, Node, NodeId};

/// Index of the names of all directories. It has 8 bytes for each name, and not the name itself. The
/// hash has a random seed, so that no archive can choose names that collide; the order of the tree
/// does not depend on it.
pub(super) struct NameIndex {
    table: HashTable<Place>,
    hasher: RandomState,
}

/// Place of a name: the directory, and the index of the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    dir: NodeId,
    idx: u32,
}

impl NameIndex {
    /// Creates the index of all directories among `nodes`.
    pub(super) fn of(nodes: &[Node]) -> Self {
        let mut index = Self { table: HashTable::new(), hasher: RandomState::new() };
        for dir in (0..nodes.len() as u32).map(NodeId) {
            (0..entries(nodes, dir).len()).for_each(|idx| index.insert(nodes, dir, idx));
        }
        index
    }

    /// Returns the index of the entry `name` of a directory.
    pub(super) fn find(&self, nodes: &[Node], dir: NodeId, name: &[u8]) -> Option<usize> {
        let is_it = |place: &Place| place.dir == dir && name_at(nodes, *place) == name;
        self.table.find(self.hasher.hash_one((dir, name)), is_it).map(|place| place.idx as usize)
    }

    /// Adds an entry that the directory has.
    pub(super) fn insert(&mut self, nodes: &[Node], dir: NodeId, idx: usize) {
        let place = Place { dir, idx: idx as u32 };
        let hash = |place: &Place| self.hasher.hash_one((place.dir, name_at(nodes, *place)));
        self.table.insert_unique(hash(&place), place, hash);
    }

    /// Removes all entries of a directory, which still has them.
    pub(super) fn remove_all(&mut self, nodes: &[Node], dir: NodeId) {
        for (idx, entry) in entries(nodes, dir).iter().enumerate() {
            let place = Place { dir, idx: idx as u32 };
            if let Ok(found) = self.table.find_entry(self.hasher.hash_one((dir, entry.name)), |other| *other == place) {
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
