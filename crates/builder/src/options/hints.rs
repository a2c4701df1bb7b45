//! Files that have a way of compression of their own.

use kiln_codec::Spec;
use std::collections::HashMap;

use crate::tree::NodeId;

/// Files that are stored otherwise than the rest.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Each way once.
    ways: Vec<Option<Spec>>,
    /// Place in `ways`.
    compression_of: HashMap<NodeId, usize>,
}

impl Hints {
    /// Compress a file in this way, or not at all. A later hint for the same file replaces an earlier one.
    pub fn insert(&mut self, file: NodeId, way: Option<Spec>) {
        let idx = self.ways.iter().position(|known| *known == way).unwrap_or_else(|| {
            self.ways.push(way);
            self.ways.len() - 1
        });
        self.compression_of.insert(file, idx);
    }

    /// The hint for a file; `None`: there is none.
    pub fn get(&self, file: NodeId) -> Option<Option<Spec>> {
        self.compression_of.get(&file).map(|&idx| self.ways[idx])
    }

    /// All ways, each once.
    pub(crate) fn ways(&self) -> impl Iterator<Item = Spec> {
        self.ways.iter().copied().flatten()
    }

    /// Files with a hint.
    pub fn len(&self) -> usize {
        self.compression_of.len()
    }

    /// Whether there is no hint.
    pub fn is_empty(&self) -> bool {
        self.compression_of.is_empty()
    }
}
