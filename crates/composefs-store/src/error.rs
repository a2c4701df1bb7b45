//! Error of all operations.

use kiln_format::Escaped;
use kiln_output::OutputError;
use kiln_tree::UnreadableFile;
use std::io;
use std::path::{Path, PathBuf};

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Error of the system.
    #[error("{}: cannot {action}: {source}", Escaped::path(path))]
    File {
        /// File or directory.
        path: PathBuf,
        /// The step that failed, as in "cannot ...".
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// An object that cannot be created.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A file of the source that cannot be read, or changes meanwhile.
    #[error(transparent)]
    Source(#[from] UnreadableFile),
    /// Something else with the name of an object.
    #[error("{}: no object of a store: {found}", Escaped::path(path))]
    NoObject {
        /// Its path.
        path: PathBuf,
        /// Its type, in words.
        found: &'static str,
    },
    /// An object of another length than its contents.
    #[error("{}: {len} bytes instead of {expected}: it is damaged", Escaped::path(path))]
    Damaged {
        /// The object.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// Length of the contents that the name stands for.
        expected: u64,
    },
    /// A repository of composefs-rs, which was to be changed.
    #[error("{}: a repository of composefs-rs, which is only read: use its own programs", Escaped::path(path))]
    Repository {
        /// The directory.
        path: PathBuf,
    },
    /// A store that other processes add to.
    #[error("{}: another process is using the store", Escaped::path(path))]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The caller has asked to stop.
    #[error("stopped")]
    Stopped,
}

impl StoreError {
    pub(crate) fn file<E: Into<io::Error>>(path: impl AsRef<Path>, action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::File { path: path.as_ref().to_owned(), action, source: source.into() }
    }
}
