//! Errors of making the next image of an image.

use kiln_builder::BuildError;
use kiln_output::OutputError;
use kiln_read::ReadError;
use kiln_source::SourceError;
use std::path::PathBuf;

use crate::update::error::UpdateError;

/// Error of making the next image of an image.
#[derive(Debug, thiserror::Error)]
pub enum ReviseError {
    /// The image, or a source that changes it, cannot be scanned.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The new image cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The output cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The image cannot be read.
    #[error("{}: {source}", image.display())]
    Read {
        /// Path of the image.
        image: PathBuf,
        /// The problem.
        source: ReadError,
    },
    /// The image cannot be updated in place.
    #[error("{}: {source}", image.display())]
    Update {
        /// Path of the image.
        image: PathBuf,
        /// The problem.
        source: UpdateError,
    },
}
