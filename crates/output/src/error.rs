//! Errors of outputs.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why an output cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// An operation on a file, its directory or a device failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The name of the output.
        path: PathBuf,
        /// The operation, as in "cannot ...".
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A file has the name already.
    #[error("{}: exists already", path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// The path names no file.
    #[error("{}: not the name of a file", path.display())]
    NotAName {
        /// The path.
        path: PathBuf,
    },
    /// Something other than a regular file has the name.
    #[error("{}: only a regular file is replaced", path.display())]
    NotRegular {
        /// The name.
        path: PathBuf,
    },
}

impl OutputError {
    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }
}
