//! A window: consecutive members and their contents, as many as are in memory at once.

use super::damage::Damage;
use super::member::Member;
use std::ops::Range;
use std::sync::Arc;

/// Consecutive members of an archive.
pub(super) struct Window {
    pub(super) parts: Vec<Part>,
    /// Contents of all parts.
    pub(super) contents: Vec<u8>,
    /// Damage found while reading this window.
    pub(super) damage: Damage,
    /// Bytes of members that end in this window and match their stored digests.
    pub(super) digested_bytes: u64,
}

/// A member, or a part of a member that is longer than a window.
pub(super) struct Part {
    pub(super) member: Arc<Member>,
    /// Range of the window's contents.
    pub(super) range: Range<usize>,
    /// True if the part begins the member, and if it ends the member.
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

impl Window {
    /// Returns the contents of a part.
    pub(super) fn bytes(&self, part: &Part) -> &[u8] {
        &self.contents[part.range.clone()]
    }
}
