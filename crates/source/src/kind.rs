//! What a kind of source is.

use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::source::Source;

/// A kind of source.
#[derive(Clone, Copy)]
pub struct SourceKind {
    /// One word, by which options name it.
    pub name: &'static str,
    /// What people call it, with an article.
    pub title: &'static str,
    /// Whether something is of this kind, by its content.
    pub is: fn(&Candidate<'_>) -> bool,
    /// Open it.
    pub open: fn(Candidate<'_>) -> Result<Box<dyn Source>, SourceError>,
}
