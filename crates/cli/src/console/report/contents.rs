//! Share of contents that have digests.

use crate::console::size::Human;
use std::fmt;

/// Share of contents that have digests. As text, for people, a part of a line.
pub struct Contents {
    /// All of them, in bytes.
    pub bytes: u64,
    /// Those with digests.
    pub digested_bytes: u64,
    /// Word for those: `verified`, or `verifiable` later.
    pub what: &'static str,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, digested_bytes, what } = *self;
        match digested_bytes {
            0 if bytes > 0 => f.write_str("contents: not verifiable"),
            digested if digested < bytes => {
                write!(f, "contents: {} of {} {what}", Human(digested), Human(bytes))
            }
            _ => write!(f, "contents: {what}"),
        }
    }
}
