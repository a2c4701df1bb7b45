//! Data and metadata that a program reads first.

use std::ops::Range;

use kiln_tree::NodeId;

/// Data and metadata that come first in their zones, because a program reads them first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotZone {
    /// Ranges of files in bytes, in the order in which they are wanted. Of files that are reused from a base, the
    /// extents that hold these bytes come first. Other files come first as a whole if
    /// [`LayoutOptions::order`](crate::LayoutOptions::order) names them.
    pub ranges: Vec<(NodeId, Range<u64>)>,
    /// Nodes whose inodes come first, and directories whose entries do, in this order.
    pub metadata: Vec<NodeId>,
}
