//! Share of contents that have digests.

use crate::console::size::Human;
use std::fmt;

/// Share of contents that have digests. Displayed as part of a line for people.
pub struct Contents {
    /// Bytes of all contents.
    pub bytes: u64,
    /// Bytes of contents with digests.
    pub digested_bytes: u64,
    /// Word for the latter: `verified`, or `verifiable` later.
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
