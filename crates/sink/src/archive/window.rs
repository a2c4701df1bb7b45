//! Members with their contents, as many as fit into memory at once.

use super::damage::Damage;
use super::member::Member;
use std::ops::Range;
use std::sync::Arc;

/// Members that follow each other.
pub(super) struct Window {
    pub(super) parts: Vec<Part>,
    /// The contents of all parts.
    pub(super) contents: Vec<u8>,
    /// What was to be in it and could not be read.
    pub(super) damage: Damage,
    /// Bytes of members that end in it and have the digests that are stored for them.
    pub(super) digested_bytes: u64,
}

/// A member, or a part of one that is longer than a window.
pub(super) struct Part {
    pub(super) member: Arc<Member>,
    /// Which bytes of the window's contents.
    pub(super) range: Range<usize>,
    /// Whether it begins the member, and ends it.
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

impl Window {
    /// The contents of a part.
    pub(super) fn bytes(&self, part: &Part) -> &[u8] {
        &self.contents[part.range.clone()]
    }
}
