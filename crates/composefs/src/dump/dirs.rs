//! Directories of a dump by path.
//!
//! Dumps go depth first, so the parent of a line is nearly always a directory on the way to the last
//! one. Others are found by a table of (parent, name).

use crate::tree::{Builder, NodeIdx};
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// Directories of the lines so far.
#[derive(Default)]
pub(super) struct Dirs {
    /// Path of the last directory that was used, without trailing slash: empty for the root.
    path: Vec<u8>,
    /// Directories on that path below the root, each with the length of its path.
    way: Vec<(usize, NodeIdx)>,
    table: HashTable<(u64, NodeIdx)>,
    hashes: RandomState,
}

impl Dirs {
    /// Adds a directory.
    pub(super) fn add(&mut self, parent: NodeIdx, path: &[u8], name: &[u8], dir: NodeIdx) {
        let hash = self.hash(parent, name);
        self.table.insert_unique(hash, (hash, dir), |&(hash, _)| hash);
        // `find` made the way lead to the parent.
        self.path.clear();
        self.path.extend_from_slice(path);
        self.way.push((path.len(), dir));
    }

    /// Returns the directory at `path`, which has no trailing slash.
    pub(super) fn find(&mut self, path: &[u8], builder: &Builder) -> Option<NodeIdx> {
        let common = self.path.iter().zip(path).take_while(|(a, b)| a == b).count();
        let is_on_way = |len: usize| len <= common && (len == path.len() || path[len] == b'/');
        while self.way.last().is_some_and(|&(len, _)| !is_on_way(len)) {
            self.way.pop();
        }
        let (mut len, mut dir) = self.way.last().copied().unwrap_or((0, NodeIdx::ROOT));
        self.path.truncate(len);
        while len < path.len() {
            let rest = &path[len + 1..];
            let name = &rest[..rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len())];
            dir = self.child(dir, name, builder)?;
            len += 1 + name.len();
            self.path.extend_from_slice(&path[self.path.len()..len]);
            self.way.push((len, dir));
        }
        Some(dir)
    }

    fn child(&self, parent: NodeIdx, name: &[u8], builder: &Builder) -> Option<NodeIdx> {
        let is_it = |&(_, dir): &(u64, NodeIdx)| builder.parent(dir) == parent && builder.name(dir) == name;
        self.table.find(self.hash(parent, name), is_it).map(|&(_, dir)| dir)
    }

    fn hash(&self, parent: NodeIdx, name: &[u8]) -> u64 {
        self.hashes.hash_one((parent, name))
    }
}
