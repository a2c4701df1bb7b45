//! What a program reads first.

use std::ops::Range;

use kiln_tree::NodeId;

/// What comes first in an image, because a program reads it first: in the data zone, and in the metadata zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotZone {
    /// Ranges of files, in bytes, in the order in which they are wanted. Of files that are reused from a base, the extents that hold these
    /// bytes come first. Other files come first as a whole if [`BuildOptions::order`](crate::BuildOptions::order) names them.
    pub ranges: Vec<(NodeId, Range<u64>)>,
    /// Nodes whose inodes, and directories whose entries, are wanted, in this order.
    pub metadata: Vec<NodeId>,
}
