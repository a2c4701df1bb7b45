//! Counts of files and bytes that were written.

use super::contents::Contents;
use crate::console::size::Human;
use serde::Serialize;
use std::fmt;

/// Counts of files and bytes that were written. Displayed as a line without its end.
#[derive(Clone, Copy, Serialize)]
pub struct Counts {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Further names.
    pub hard_links: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Bytes among these that match stored digests.
    pub digested_bytes: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, directories, others, hard_links, bytes, digested_bytes } = *self;
        let contents = Contents { bytes, digested_bytes, what: "verified" };
        let bytes = Human(bytes);
        write!(f, "{files} files ({bytes}), {directories} directories, {others} others, {hard_links} hard links; ")?;
        write!(f, "{contents}")
    }
}
