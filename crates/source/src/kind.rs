//! What a kind of source is.

use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::source::Source;
use crate::unknown::refusal;

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

/// Open `candidate` as the first of `kinds` that recognises it. One kind alone opens whatever it is given, and says what is wrong with
/// it. What is recognised only once it is decompressed, as an image of a filesystem, is decompressed into a nameless file.
///
/// # Errors
/// No kind recognises it; those of the kind.
pub(crate) fn open_candidate(kinds: &[SourceKind], candidate: Candidate<'_>) -> Result<Box<dyn Source>, SourceError> {
    let find = |candidate: &Candidate<'_>| kinds.iter().find(|kind| (kind.is)(candidate));
    if let Some(kind) = find(&candidate) {
        return (kind.open)(candidate);
    }
    if candidate.preview().is_some_and(|preview| find(&preview).is_some()) {
        let plain = candidate.decompressed()?;
        return match find(&plain) {
            Some(kind) => (kind.open)(plain),
            None => Err(refusal(&plain)),
        };
    }
    match kinds {
        [kind] => (kind.open)(candidate),
        _ => Err(refusal(&candidate)),
    }
}
