//! Errors of reading an image.

use kiln_format::Escaped;
use kiln_tree::{ContentError, TreeError};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{SourceError, Unreadable};

/// Error of reading an image or a file in it.
#[derive(Debug)]
pub(super) enum Problem {
    /// The bytes at `offset` of the image violate the format.
    Corrupt { offset: u64, reason: String },
    /// The image cannot be read.
    Io(io::Error),
    /// The entries do not form a tree.
    Tree(TreeError),
    /// An error of the source, such as a request to stop.
    Source(SourceError),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Problem::Io(error)
    }
}

impl From<TreeError> for Problem {
    fn from(error: TreeError) -> Self {
        Problem::Tree(error)
    }
}

impl From<SourceError> for Problem {
    fn from(error: SourceError) -> Self {
        Problem::Source(error)
    }
}

/// Returns the error for bytes at `offset` that violate the format.
pub(super) fn corrupt(offset: u64, reason: impl Into<String>) -> Problem {
    Problem::Corrupt { offset, reason: reason.into() }
}

impl Problem {
    /// Adds the path of a file, relative to the root of the image.
    pub(super) fn in_file(self, inner: &[u8]) -> Self {
        match self {
            Problem::Corrupt { offset, reason } => Problem::Corrupt {
                offset,
                reason: format!("{}: {reason}", Escaped::path(Path::new(OsStr::from_bytes(inner)))),
            },
            other => other,
        }
    }

    /// Converts the error to one of the image at `path`.
    pub(super) fn of_image(self, path: &Path) -> SourceError {
        let path = path.to_owned();
        match self {
            Problem::Corrupt { offset, reason } => SourceError::Malformed { path, offset, reason },
            Problem::Io(source) => Unreadable { path, source }.into(),
            Problem::Tree(source) => SourceError::Tree { path, source },
            Problem::Source(error) => error,
        }
    }
}

impl From<Problem> for io::Error {
    fn from(problem: Problem) -> Self {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
        match problem {
            Problem::Corrupt { offset, reason } => invalid(format!("corrupt image: at byte {offset}: {reason}")),
            Problem::Io(error) => error,
            Problem::Tree(error) => invalid(error.to_string()),
            Problem::Source(error) => invalid(error.to_string()),
        }
    }
}

impl From<Problem> for ContentError {
    fn from(problem: Problem) -> Self {
        io::Error::from(problem).into()
    }
}
