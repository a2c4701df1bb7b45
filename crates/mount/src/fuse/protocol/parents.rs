//! Which directory a node was named in last: a file does not know its own path, and an error should tell it.

use super::node;
use fuser::INodeNo;
use std::sync::atomic::{AtomicU64, Ordering};

/// log2 of how many nodes are remembered, 16 bytes each, until another falls on the same slot.
const BITS: u32 = 12;

/// Nodes and their directories.
pub struct Parents(Box<[[AtomicU64; 2]]>);

impl Parents {
    pub fn new() -> Self {
        Self((0..1 << BITS).map(|_| Default::default()).collect())
    }

    pub fn note(&self, node: INodeNo, dir: INodeNo) {
        let [named, parent] = &self.0[node::slot(node.0, BITS)];
        named.store(node.0, Ordering::Relaxed);
        parent.store(dir.0, Ordering::Relaxed);
    }

    /// The directory of a node, if it is remembered. Threads may note nodes at the same time: the node has to be looked for there.
    pub fn find(&self, node: INodeNo) -> Option<INodeNo> {
        let [named, parent] = &self.0[node::slot(node.0, BITS)];
        (named.load(Ordering::Relaxed) == node.0).then(|| INodeNo(parent.load(Ordering::Relaxed)))
    }
}
