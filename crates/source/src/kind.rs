//! Kinds of sources.

use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::source::Source;
use crate::unknown::refusal;

/// A kind of source.
#[derive(Clone, Copy)]
pub struct SourceKind {
    /// Name in options, a single word.
    pub name: &'static str,
    /// Name in messages, with an article.
    pub title: &'static str,
    /// Function that returns true if the contents of a candidate are of this kind.
    pub is: fn(&Candidate<'_>) -> bool,
    /// Function that opens a candidate of this kind.
    pub open: fn(Candidate<'_>) -> Result<Box<dyn Source>, SourceError>,
}

/// Opens `candidate` as the first of `kinds` that recognises it. If there is only one kind, opens
/// the candidate as that kind, whose error then explains the problem. Contents that are only
/// recognised when decompressed, such as a filesystem image, are decompressed to a spool.
///
/// # Errors
/// A candidate that no kind recognises; errors of the kind.
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
