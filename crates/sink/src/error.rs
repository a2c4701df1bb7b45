//! Errors of extraction and export.

use kiln_format::{Escaped, Nid};
use kiln_read::{ComposefsObject, ReadError};
use std::io;
use std::path::PathBuf;

/// An error of an extraction or an export.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The image could not be read, is damaged, or does not contain a requested path.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The target could not be written.
    #[error("{}: cannot {action}: {source}", Escaped::path(path))]
    Io {
        /// The file in the target, or the target itself.
        path: PathBuf,
        /// The action that failed, for example `create`.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The output stream of an archive could not be written.
    #[error("cannot write: {0}")]
    Write(io::Error),
    /// A thread or a compressor could not be started.
    #[error("cannot start {0}: {1}")]
    Start(&'static str, io::Error),
    /// The target directory is not empty, and overwriting was not allowed.
    #[error("{}: not empty: extract into a new or empty directory, or overwrite existing files", Escaped::path(path))]
    TargetNotEmpty {
        /// The target.
        path: PathBuf,
    },
    /// An invalid file name: empty, `.`, `..`, or with a slash or a zero byte.
    #[error("{}: nid {nid}: invalid file name: the image is corrupt", Escaped(path))]
    BadName {
        /// Path in the image.
        path: Vec<u8>,
        /// The inode that the name refers to.
        nid: Nid,
    },
    /// The contents of a composefs file are an object that is not in the image.
    #[error("{}: the contents are {object}, which is not in the image", Escaped(path))]
    NeedsObject {
        /// Path in the image.
        path: Vec<u8>,
        /// The object.
        object: ComposefsObject,
    },
    /// An invalid pattern of a selection.
    #[error("{}: {reason}", Escaped(pattern))]
    BadPattern {
        /// The pattern as the user wrote it.
        pattern: Vec<u8>,
        /// The reason.
        reason: String,
    },
    /// A pattern that matches nothing in this image.
    #[error("{}: nothing in the image matches", Escaped(pattern))]
    NoMatch {
        /// The pattern as the user wrote it.
        pattern: Vec<u8>,
    },
    /// The caller set the stop flag.
    #[error("stopped before the end: the target is incomplete")]
    Stopped,
}

impl SinkError {
    /// Returns true if the image itself is at fault, not the target or the caller.
    pub fn is_corrupt(&self) -> bool {
        match self {
            SinkError::Read(error) => error.is_corrupt(),
            SinkError::BadName { .. } => true,
            _ => false,
        }
    }
}
