//! Data and metadata that a program reads first.

use crate::NodeId;
use std::ops::Range;

/// Data and metadata to store first in an image, because a program reads them first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotZone {
    /// Ranges of files, in bytes, in the order of storage. Of files that a previous image stores,
    /// the extents that hold these bytes come first. Other files come first as a whole if the order
    /// of data names them.
    pub ranges: Vec<(NodeId, Range<u64>)>,
    /// Nodes whose inodes, and directories whose entries, come first, in this order.
    pub metadata: Vec<NodeId>,
}
