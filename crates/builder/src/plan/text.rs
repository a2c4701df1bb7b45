//! Plain text to be compressed: where it comes from, and how much of it is compressed by one worker.

/// Where the text of a part comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TextSource {
    /// The file with this index in the plan.
    File(u32),
    /// The packed stream.
    Fragments,
}

/// Plain text that one worker fills front to back, at most: a constant of the options, or the image would depend on the
/// number of threads.
pub(crate) fn segment_len(pcluster_len: u32) -> u64 {
    if pcluster_len <= 64 << 10 { 4 << 20 } else { 8 << 20 }
}
