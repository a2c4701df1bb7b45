//! Errors of the reader as those of contents.

use kiln_read::ReadError;
use kiln_tree::ContentError;
use std::io;

/// The reader's error, whole, as one of the system.
pub(super) fn failed(error: ReadError) -> ContentError {
    let kind = match &error {
        ReadError::Io { source, .. } => source.kind(),
        ReadError::Corrupt { .. } => io::ErrorKind::InvalidData,
        ReadError::Unsupported { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error).into()
}
