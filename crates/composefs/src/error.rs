//! Errors of trees, dumps and images.

use crate::tree::{FILE_MAX_LEN, INLINE_MAX_LEN, NodeIdx, TARGET_MAX_LEN, XATTRS_MAX_COST};
use kiln_format::dirent::NAME_MAX_LEN;
use kiln_format::{Escaped, FormatError, xattr};
use std::io;

/// Problem of a file that no image can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeProblem {
    /// An entry whose name no directory can hold.
    #[error("not a file name")]
    BadName,
    /// An entry with a longer name than directories hold.
    #[error("a name of {0} bytes: names have {NAME_MAX_LEN} at most")]
    NameTooLong(usize),
    /// Two entries of one name.
    #[error("the path is there twice")]
    DoubleName,
    /// An index that no node of the tree has.
    #[error("no such node in this tree")]
    NoSuchNode,
    /// An entry in a file that is no directory.
    #[error("the parent is no directory")]
    ParentNotADirectory,
    /// More files or attributes than a tree can have.
    #[error("more than 2^32 files or attributes")]
    TooMany,
    /// Permissions over 12 bits.
    #[error("{0:o} are no permissions: they have four octal digits")]
    Permissions(u16),
    /// Nanoseconds of a second or more.
    #[error("{0} nanoseconds: a second has 1000000000")]
    Nanoseconds(u32),
    /// A device number over 32 bits.
    #[error("no device number of 32 bits: {0}:{1}")]
    Device(u32, u32),
    /// Contents of another length than the file has.
    #[error("{0} bytes of contents, but a size of {1}")]
    Contents(usize, u64),
    /// Contents that are too long to be inline.
    #[error("inline contents of {0} bytes: images hold {INLINE_MAX_LEN} at most")]
    InlineTooLong(usize),
    /// A file that is too large for its chunks.
    #[error("a file of {0} bytes: images hold {FILE_MAX_LEN} at most")]
    FileTooLarge(u64),
    /// A path of an object that is too long, or has a zero byte.
    #[error("a payload of {0} bytes: it has {TARGET_MAX_LEN} at most, and no zero byte")]
    Object(usize),
    /// A target of a symbolic link that is empty, too long, or has a zero byte.
    #[error("a symbolic link of {0} bytes: its target has 1 to {TARGET_MAX_LEN}, and no zero byte")]
    Target(usize),
    /// A key of an attribute that is empty, too long, or has a zero byte.
    #[error("an attribute's key of {0} bytes: it has 1 to {max}, and no zero byte", max = xattr::NAME_MAX_LEN)]
    XattrKey(usize),
    /// Attributes that take too much room.
    #[error("too many attributes: keys, values and 7 bytes for each have {XATTRS_MAX_COST} bytes at most")]
    XattrsTooLong,
    /// A hard link to a file that does not exist.
    #[error("the target of the hard link does not exist")]
    MissingTarget,
    /// Hard links that lead to each other.
    #[error("the hard link leads back to itself")]
    LinkLoop,
    /// A hard link to a directory.
    #[error("a hard link to a directory")]
    LinkToDirectory,
    /// A hard link to a whiteout.
    #[error("a hard link to a whiteout")]
    LinkToWhiteout,
}

/// A file that no image can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", Escaped(path))]
pub struct TreeError {
    /// Path in the tree, with a leading slash.
    pub path: Vec<u8>,
    /// Its node; the root if it got none.
    pub node: NodeIdx,
    /// The problem.
    pub problem: TreeProblem,
}

/// Error of writing an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Error of the output.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A value that does not fit the format.
    #[error(transparent)]
    Format(#[from] FormatError),
}
