//! Errors of the library with the names that the user knows, and the time of the environment.

use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln_builder::BuildError;
use kiln_source::SourceError;
use kiln_tree::ContentError;
use kilnfs::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Returns the failure for an error of the library about the image or layout `image`.
pub fn failure(error: impl Into<Error>, signals: &Signals, image: &Path) -> Failure {
    match (error.into(), signals.caught()) {
        (Error::Source(error), caught) => Failure::of_source(error, caught, DEVICE_OPTION),
        (Error::Policy(error), _) => Failure::Policy(error),
        (Error::Xattr(error), _) => Failure::Xattr(error),
        (Error::Build(BuildError::Interrupted), Some(number)) => Failure::Signal(number),
        (Error::Build(source), _) => Failure::Build { image: image.to_owned(), source },
        (Error::Read { image, source }, _) => Failure::of_image(&image, 0, DEVICE_OPTION, source),
        (Error::Update { image, source }, _) => Failure::Update { image, source },
        (Error::Output(error), _) => error.into(),
        (Error::Extract(error), _) => Failure::Sink(error),
        (Error::Mount(error), _) => Failure::Mount(error),
        (Error::Diff(error), _) => Failure::Diff(error),
        (error @ (Error::Options(_) | Error::NotALayout { .. } | Error::NoConfig | Error::ArchiveName { .. }), _) => {
            Failure::Usage(error.to_string())
        }
        (error, _) => Failure::Library(error),
    }
}

/// Adds to a failure how the rest of the source at `root` can be packed, if only a part of it may not be read.
pub fn advised(failure: Failure, root: &Path) -> Failure {
    let is_denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
    let in_part = match &failure {
        Failure::Source(SourceError::Unreadable(entry)) => entry.path != root && is_denied(&entry.source),
        Failure::Build { source: BuildError::Read { source: ContentError::Io(error), .. }, .. } => is_denied(error),
        _ => false,
    };
    if in_part { Failure::Denied(Box::new(failure)) } else { failure }
}

/// Returns the environment's latest time, in seconds since 1970.
///
/// # Errors
/// A value that is no number.
pub fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else { return Ok(None) };
    let secs = text.to_str().and_then(|text| text.parse().ok());
    let refuse = || Failure::Usage("SOURCE_DATE_EPOCH: not a number of seconds since 1970".into());
    secs.map(Some).ok_or_else(refuse)
}
