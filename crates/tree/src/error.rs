//! Errors of trees and of the contents of their files.

use kiln_digest::contents::{ContentDigest, Described};
use kiln_format::dirent::NAME_MAX_LEN;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Error of opening or reading contents.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// Error of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is not the one that was scanned.
    #[error("changed while the image was being built ({0})")]
    Changed(&'static str),
    /// The file has another length than when it was scanned.
    #[error("changed while the image was being built ({0})")]
    Resized(&'static str),
    /// The contents are not those whose digest an image stores.
    #[error(transparent)]
    Digest(#[from] Box<DigestMismatch>),
}

impl ContentError {
    /// Returns true if the file is not the one that was scanned, or not in the same state.
    pub fn is_change(&self) -> bool {
        matches!(self, ContentError::Changed(_) | ContentError::Resized(_))
    }
}

/// A regular file of a tree whose contents cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", String::from_utf8_lossy(path))]
pub struct UnreadableFile {
    /// Path in the tree.
    pub path: Vec<u8>,
    /// The error.
    pub source: ContentError,
}

/// Contents that do not have the digest that an image stores for them: contents or digest are damaged.
#[derive(Debug, thiserror::Error)]
#[error("damaged in {}: its {} is {computed}, but {stored} is stored for it", image.display(), Described(stored.hash()))]
pub struct DigestMismatch {
    /// Name of the image in errors.
    pub image: Arc<Path>,
    /// Stored digest.
    pub stored: ContentDigest,
    /// Digest of the contents as read, of the same function.
    pub computed: ContentDigest,
}

/// Error of the structure of a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) })]
pub struct TreeError {
    /// Path in the tree, as far as known.
    pub path: Vec<u8>,
    /// The problem.
    pub problem: TreeProblem,
}

/// Problem of a path, or of the node at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeProblem {
    /// The root is another kind of file.
    #[error("the root is no directory")]
    RootNotADirectory,
    /// The root was to be removed.
    #[error("the root cannot be removed")]
    RootRemoved,
    /// An entry whose name no directory can hold.
    #[error("not a file name")]
    BadName,
    /// A path that leads up.
    #[error("`..` has no meaning here")]
    DotDot,
    /// A path with a zero byte.
    #[error("a zero byte in a name")]
    ZeroByte,
    /// A path with a name that is too long.
    #[error("a name of {0} bytes: names have {NAME_MAX_LEN} at most")]
    NameTooLong(usize),
    /// Two entries of one name.
    #[error("the name is there twice")]
    DoubleName,
    /// An entry whose node does not exist.
    #[error("names a node that does not exist")]
    NoSuchNode,
    /// A path at which a node must exist and does not.
    #[error("nothing is there")]
    NothingThere,
    /// Another type of file where a regular file must be.
    #[error("not a regular file")]
    NotAFile,
    /// A directory that has two names, or is in itself.
    #[error("a second name of a directory")]
    SecondNameOfDirectory,
    /// A node without a name.
    #[error("has no name")]
    NoName,
    /// Longer names than one directory can have.
    #[error("a directory's names take 4 GiB or more")]
    NamesTooLong,
    /// More files than a tree can have.
    #[error("more than 2^32 files")]
    TooManyNodes,
    /// An entry in a file that is not a directory.
    #[error("{} is no directory", String::from_utf8_lossy(.0))]
    ParentNotADirectory(Vec<u8>),
    /// A hard link to a missing file.
    #[error("a hard link to {}, which does not exist", String::from_utf8_lossy(.0))]
    DanglingLink(Vec<u8>),
    /// A hard link to a directory.
    #[error("a hard link to {}, which is a directory", String::from_utf8_lossy(.0))]
    LinkToDirectory(Vec<u8>),
    /// Hard links that lead to each other.
    #[error("a hard link to {}, which leads back to it", String::from_utf8_lossy(.0))]
    LinkLoop(Vec<u8>),
}

impl TreeProblem {
    /// Returns the error of this problem at `path`.
    pub(crate) fn at(self, path: impl Into<Vec<u8>>) -> TreeError {
        TreeError { path: path.into(), problem: self }
    }
}
