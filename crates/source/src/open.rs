//! The door for sources.

use std::path::Path;

use crate::dir::source as dir;
use crate::erofs::source as erofs;
use crate::error::SourceError;
use crate::kind::{Candidate, SourceKind, SourceOptions};
use crate::source::Source;

/// All kinds of sources. The first that recognises something opens it.
pub const KINDS: &[SourceKind] = &[dir::KIND, erofs::KIND];

/// What is at the path `what`, by its content: a directory, or an EROFS image.
///
/// # Errors
/// What no kind recognises is opened as an image, whose reader says what is missing.
pub fn open(what: &Path, options: &SourceOptions) -> Result<Box<dyn Source>, SourceError> {
    open_as(KINDS, what, options)
}

/// As [`open`], where only these kinds are known.
///
/// # Errors
/// As [`open`].
pub fn open_as(kinds: &[SourceKind], what: &Path, options: &SourceOptions) -> Result<Box<dyn Source>, SourceError> {
    let candidate = Candidate::new(what, options);
    let kind = kinds.iter().find(|kind| (kind.is)(&candidate)).unwrap_or(&erofs::KIND);
    (kind.open)(&candidate)
}
