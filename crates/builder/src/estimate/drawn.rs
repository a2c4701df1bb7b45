//! Text that is drawn from a stratum.

use crate::pack::jobs::PackJob;

/// Text at the front of a piece, in bytes: extents that start in it count.
pub(super) const PIECE_LEN: u64 = 512 << 10;

/// The sample of a stratum, in plan order.
pub(super) struct Draw {
    /// Text that is packed, as files.
    pub files: Vec<DrawnFile>,
    /// Text that is only compressed with LZ4, as a probe.
    pub lz4_samples: Vec<PackJob>,
}

/// Text that becomes a file of the sample.
#[derive(Clone, Debug)]
pub(super) struct DrawnFile {
    /// Index of the job, if the text is all of it.
    pub member: Option<u32>,
    /// The text.
    pub job: PackJob,
}
