//! Directory in which a node was last named: an inode does not store its parent, and an error
//! message should contain its path.

use super::node;
use fuser::INodeNo;
use std::sync::atomic::{AtomicU64, Ordering};

/// log2 of the number of nodes that are remembered, 16 bytes each, until another one takes the
/// slot.
const BITS: u32 = 12;

/// Nodes and their directories, in a hash table without locks.
pub(super) struct Parents(Box<[[AtomicU64; 2]]>);

impl Parents {
    pub(super) fn new() -> Self {
        Self((0..1 << BITS).map(|_| Default::default()).collect())
    }

    /// Records that `node` was named in `dir`.
    pub(super) fn note(&self, node: INodeNo, dir: INodeNo) {
        let [named, parent] = &self.0[node::slot(node.0, BITS)];
        named.store(node.0, Ordering::Relaxed);
        parent.store(dir.0, Ordering::Relaxed);
    }

    /// Returns the directory of a node, if it is remembered. Threads that record nodes at the same
    /// time may mix up two of them: check that the node is there.
    pub(super) fn find(&self, node: INodeNo) -> Option<INodeNo> {
        let [named, parent] = &self.0[node::slot(node.0, BITS)];
        (named.load(Ordering::Relaxed) == node.0).then(|| INodeNo(parent.load(Ordering::Relaxed)))
    }
}
