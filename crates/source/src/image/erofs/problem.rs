//! Conversion of read errors to errors of contents.

use kiln_read::ReadError;
use kiln_tree::ContentError;
use std::io;

/// Wraps the read error in an I/O error of the matching kind.
pub(super) fn failed(error: ReadError) -> ContentError {
    let kind = match &error {
        ReadError::Io { source, .. } => source.kind(),
        ReadError::Corrupt { .. } => io::ErrorKind::InvalidData,
        ReadError::Unsupported { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error).into()
}
