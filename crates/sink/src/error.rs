//! What can go wrong on the way out of an image.

use kiln_format::Nid;
use kiln_read::{ComposefsObject, Escaped, ReadError};
use std::io;
use std::path::PathBuf;

/// Why something was not extracted.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The image could not be read, is damaged, or lacks what was asked for.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The target could not be written.
    #[error("{}: cannot {action}: {source}", Escaped::path(path))]
    Io {
        /// The file in the target, or the target itself.
        path: PathBuf,
        /// What was tried, in words.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The stream that gets an archive could not be written.
    #[error("cannot write: {0}")]
    Write(io::Error),
    /// A reader or a compressor could not be started.
    #[error("cannot start {0}: {1}")]
    Start(&'static str, io::Error),
    /// The target holds files already, and overwriting was not asked for.
    #[error("{}: not empty: extract into a new or empty directory, or overwrite what is there", Escaped::path(path))]
    TargetNotEmpty {
        /// The target.
        path: PathBuf,
    },
    /// A name that would not stay in its directory: empty, `.`, `..`, or with a slash or zero byte.
    #[error("{}: nid {nid}: the name is not one of a file: the image is corrupt", Escaped(path))]
    BadName {
        /// Path in the image.
        path: Vec<u8>,
        /// The inode it names.
        nid: Nid,
    },
    /// A file of a composefs image whose contents are an object that is not in the image.
    #[error("{}: its contents are {object}, which is not in the image", Escaped(path))]
    NeedsObject {
        /// Path in the image.
        path: Vec<u8>,
        /// The object.
        object: ComposefsObject,
    },
    /// A selection that cannot name anything in an image.
    #[error("{}: {reason}", Escaped(pattern))]
    BadPattern {
        /// As the user wrote it.
        pattern: Vec<u8>,
        /// What is wrong with it.
        reason: String,
    },
    /// A selection that names nothing in this image.
    #[error("{}: nothing in the image matches", Escaped(pattern))]
    NoMatch {
        /// As the user wrote it.
        pattern: Vec<u8>,
    },
    /// The caller's stop flag was set.
    #[error("stopped before the end: the target is incomplete")]
    Stopped,
}

impl SinkError {
    /// Whether the image itself is at fault, not the target and not the caller.
    pub fn is_corrupt(&self) -> bool {
        match self {
            SinkError::Read(error) => error.is_corrupt(),
            SinkError::BadName { .. } => true,
            _ => false,
        }
    }
}
