//! How much was written of a tree.

use super::contents::Contents;
use crate::console::size::Human;
use serde::Serialize;
use std::fmt;

/// How much was written of a tree. As text, a line without its end.
#[derive(Clone, Copy, Serialize)]
pub struct Counts {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Further names.
    pub hard_links: u64,
    /// Of contents.
    pub bytes: u64,
    /// Of these, compared with digests, and right.
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
