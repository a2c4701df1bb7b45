//! Why a source is no tree.

use kiln_read::{Escaped, ReadError};
use kiln_tree::TreeError;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::filter::error::FileError;
use crate::input::stream::is_stopped;

/// Why a source is no tree. Each error but an interruption names the source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An entry, or the source itself, cannot be read.
    #[error(transparent)]
    Unreadable(Unreadable),
    /// An image cannot be opened or read.
    #[error("{}: {source}", Escaped::path(path))]
    Image {
        /// The image.
        path: PathBuf,
        /// Where it begins in its file, in bytes.
        offset: u64,
        /// What is wrong with it.
        source: ReadError,
    },
    /// An archive is not what its format wants.
    #[error("{}: at byte {offset}: {reason}", Escaped::path(path))]
    Malformed {
        /// The archive.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong: the record, the field and its value.
        reason: String,
    },
    /// A line of a manifest is not what it should be.
    #[error(transparent)]
    Line(#[from] FileError),
    /// What was found is no tree.
    #[error("{}: {source}", Escaped::path(path))]
    Tree {
        /// The source.
        path: PathBuf,
        /// Where in it, and what is wrong.
        source: TreeError,
    },
    /// Names, attributes and targets far larger than the source.
    #[error(
        "{}: names and attributes take more than {limit} bytes: far more than such an image should hold",
        Escaped::path(path)
    )]
    TooLarge {
        /// The source.
        path: PathBuf,
        /// The most that is allowed, in bytes.
        limit: u64,
    },
    /// No kind of source.
    #[error("{}: {reason}", Escaped::path(path))]
    Unknown {
        /// What is there.
        path: PathBuf,
        /// What it seems to be, and what to do.
        reason: String,
    },
    /// A source in a version or form that is not read.
    #[error("{}: {reason}", Escaped::path(path))]
    Unsupported {
        /// The source.
        path: PathBuf,
        /// What is not supported: the field and its value.
        reason: String,
    },
    /// It is not clear which of several things in a source is meant.
    #[error("{}: {reason}", Escaped::path(path))]
    Choice {
        /// The source.
        path: PathBuf,
        /// What there is to choose from.
        reason: String,
    },
    /// The source is what is to be written.
    #[error("{}: this is what is to be written, so it cannot be read as well", Escaped::path(path))]
    IsOutput {
        /// The source.
        path: PathBuf,
    },
    /// Options that such a source does not have.
    #[error("{}: {reason}", Escaped::path(path))]
    Options {
        /// The source.
        path: PathBuf,
        /// Which options.
        reason: &'static str,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// An entry that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", Escaped::path(path))]
pub struct Unreadable {
    /// Its path, that of the source in front.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

impl Unreadable {
    /// The same for another report.
    pub(crate) fn again(&self) -> Self {
        Self { path: self.path.clone(), source: io::Error::new(self.source.kind(), self.source.to_string()) }
    }
}

impl From<Unreadable> for SourceError {
    /// A stream that was asked to stop cannot be read either, and nothing is wrong with it.
    fn from(error: Unreadable) -> Self {
        if is_stopped(&error.source) { SourceError::Interrupted } else { SourceError::Unreadable(error) }
    }
}

impl SourceError {
    /// A closure that makes an error of what is wrong with the tree of the source at `path`.
    pub fn tree(path: &Path) -> impl Fn(TreeError) -> Self {
        move |source| SourceError::Tree { path: path.to_owned(), source }
    }
}

/// Paths in a source that cannot be read, and why.
pub(crate) type Errors = Vec<(Vec<u8>, io::Error)>;

/// The entries of the source `root` to report as left out, by path, if those can be left out. The root itself cannot.
///
/// # Errors
/// The first of `errors`.
pub(crate) fn settle(mut errors: Errors, root: &Path, keep_going: bool) -> Result<Vec<Unreadable>, Unreadable> {
    errors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let with_root = |(path, source): (Vec<u8>, io::Error)| {
        let path = if path.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(&path)) };
        Unreadable { path, source }
    };
    let root_failed = errors.first().is_some_and(|(path, _)| path.is_empty());
    if (!keep_going || root_failed) && !errors.is_empty() {
        return Err(with_root(errors.swap_remove(0)));
    }
    Ok(errors.into_iter().map(with_root).collect())
}
