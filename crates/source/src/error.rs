//! Errors of reading a source.

use kiln_format::Escaped;
use kiln_read::ReadError;
use kiln_tree::TreeError;
use kiln_tree::filter::PathErrors;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::input::stream::is_stopped;
use kiln_tree::FileError;

/// Error of reading a source. All variants except `Interrupted` name the source.
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
        /// Offset of the image in its file, in bytes.
        offset: u64,
        /// The problem.
        source: ReadError,
    },
    /// An archive violates its format.
    #[error("{}: at byte {offset}: {reason}", Escaped::path(path))]
    Malformed {
        /// The archive.
        path: PathBuf,
        /// Offset of the problem in bytes.
        offset: u64,
        /// Description of the problem: record, field and value.
        reason: String,
    },
    /// A line of a manifest is invalid.
    #[error(transparent)]
    Line(#[from] FileError),
    /// The entries of a source do not form a tree.
    #[error("{}: {source}", Escaped::path(path))]
    Tree {
        /// The source.
        path: PathBuf,
        /// Path within the source, and the problem.
        source: TreeError,
    },
    /// Names, attributes and targets that are far larger than the source.
    #[error(
        "{}: names and attributes take more than {limit} bytes, which is far too much for the size of the source",
        Escaped::path(path)
    )]
    TooLarge {
        /// The source.
        path: PathBuf,
        /// Limit in bytes.
        limit: u64,
    },
    /// The file is not of any known kind.
    #[error("{}: {reason}", Escaped::path(path))]
    Unknown {
        /// Path of the file.
        path: PathBuf,
        /// Kind that the file seems to be, and advice.
        reason: String,
    },
    /// A source in a version or form that is not supported.
    #[error("{}: {reason}", Escaped::path(path))]
    Unsupported {
        /// The source.
        path: PathBuf,
        /// Unsupported feature, or field and value.
        reason: String,
    },
    /// The source contains several candidates and the options do not select one.
    #[error("{}: {reason}", Escaped::path(path))]
    Choice {
        /// The source.
        path: PathBuf,
        /// The candidates.
        reason: String,
    },
    /// The source is also the output.
    #[error("{}: the output cannot also be the source", Escaped::path(path))]
    IsOutput {
        /// The source.
        path: PathBuf,
    },
    /// Options that do not apply to this kind of source.
    #[error("{}: {reason}", Escaped::path(path))]
    Options {
        /// The source.
        path: PathBuf,
        /// The options.
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
    /// Path, starting with that of the source.
    pub path: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

impl Unreadable {
    /// Returns a copy of the error.
    pub(crate) fn again(&self) -> Self {
        Self { path: self.path.clone(), source: io::Error::new(self.source.kind(), self.source.to_string()) }
    }
}

impl From<Unreadable> for SourceError {
    /// A read that fails because of a request to stop becomes [`SourceError::Interrupted`].
    fn from(error: Unreadable) -> Self {
        if is_stopped(&error.source) { SourceError::Interrupted } else { SourceError::Unreadable(error) }
    }
}

impl SourceError {
    /// Returns a closure that converts an error of the tree of the source at `path`.
    pub fn tree(path: &Path) -> impl Fn(TreeError) -> Self {
        move |source| SourceError::Tree { path: path.to_owned(), source }
    }
}

/// Converts `errors` to a list of left-out entries of the source `root`, sorted by path. The root
/// itself cannot be left out.
///
/// # Errors
/// The first of `errors` by path, if they may not be left out.
pub(crate) fn settle(mut errors: PathErrors, root: &Path, keep_going: bool) -> Result<Vec<Unreadable>, Unreadable> {
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
