//! Plain text to be compressed: its source, and the part of it that one worker compresses.

/// Source of a part's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TextSource {
    /// The file with this index in the plan.
    File(u32),
    /// The packed stream.
    Fragments,
}

/// Returns the most plain text that one worker fills front to back. It depends on options only, or the image would
/// depend on the number of threads.
pub(crate) fn segment_len(pcluster_len: u32) -> u64 {
    if pcluster_len <= 64 << 10 { 4 << 20 } else { 8 << 20 }
}
