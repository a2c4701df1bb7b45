//! What is drawn of a stratum.

use crate::pack::jobs::PackJob;

/// Text at the front of a piece: extents that start in it count.
pub(super) const PIECE_LEN: u64 = 512 << 10;

/// The sample of a stratum, in plan order.
pub(super) struct Draw {
    /// Text that is packed.
    pub files: Vec<DrawnFile>,
    /// Text that only LZ4 sees.
    pub lz4_samples: Vec<PackJob>,
}

/// Text that becomes a file of the sample.
#[derive(Clone, Debug)]
pub(super) struct DrawnFile {
    /// Which job, as a place among all, if it is all of it.
    pub member: Option<u32>,
    /// The text.
    pub job: PackJob,
}
