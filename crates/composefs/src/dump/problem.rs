//! Errors and warnings of dumps.

use crate::error::TreeProblem;

use kiln_format::dirent::PATH_MAX_LEN;
use std::io;

/// Longest line in bytes, without its end.
pub(super) const LINE_MAX_LEN: usize = 1 << 20;
/// Longest text of the attributes of one line in bytes.
pub(super) const XATTRS_MAX_TEXT: usize = 65535;

/// Error of a dump that is read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// Error of the input.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line that is refused.
    #[error("line {line}, column {column}: {problem}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Byte in the line, from 1, at which the field or the escape with the problem begins.
        column: usize,
        /// The problem.
        problem: DumpProblem,
    },
}

/// Problem of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpProblem {
    /// A dump without lines.
    #[error("the dump is empty")]
    Empty,
    /// A line without fields.
    #[error("an empty line")]
    EmptyLine,
    /// A line that is longer than any file needs.
    #[error("the line is longer than {LINE_MAX_LEN} bytes")]
    LineTooLong,
    /// A zero byte as such.
    #[error("a zero byte")]
    ZeroByte,
    /// A zero byte as an escape, in a field that cannot have one.
    #[error("`\\x00` in a field that cannot have it: only contents and values of attributes can")]
    EscapedZero,
    /// A line with too few fields.
    #[error("{0} fields: a line has 11, and attributes")]
    MissingFields(usize),
    /// A backslash before anything but an escape.
    #[error("not an escape: `\\xHH`, `\\\\`, `\\n`, `\\r` and `\\t` are")]
    BadEscape,
    /// A path that does not begin with a slash.
    #[error("the path has no leading slash")]
    NotAbsolute,
    /// A path that ends with a slash.
    #[error("the path has a trailing slash")]
    TrailingSlash,
    /// A path with an empty name.
    #[error("the path has an empty name")]
    EmptyName,
    /// A path with `.` or `..`.
    #[error("the path has `.` or `..`")]
    DotName,
    /// A path that is too long.
    #[error("the path is longer than {PATH_MAX_LEN} bytes")]
    PathTooLong,
    /// A first line that is not the root.
    #[error("the first line must be the root, `/`")]
    NoRoot,
    /// A root that is no directory.
    #[error("the root is no directory")]
    RootNotADirectory,
    /// A second line for the root.
    #[error("a second line for the root")]
    SecondRoot,
    /// A file whose directory no earlier line has.
    #[error("no line before this one has the parent directory")]
    MissingParent,
    /// A field that is no decimal number.
    #[error("{0} is no number, or too large")]
    Number(&'static str),
    /// A mode that is no octal number of a file.
    #[error("the mode is not that of a file: an octal number such as 100644")]
    Mode,
    /// A time that is not seconds, a dot, and nanoseconds.
    #[error("the time is not SECONDS.NANOSECONDS, from 1970 on")]
    Time,
    /// A size that does not suit the contents.
    #[error("{content} bytes of contents, but a size of {size}")]
    SizeOfContent {
        /// Length of the contents in bytes.
        content: usize,
        /// The size field.
        size: u64,
    },
    /// A digest that is no digest.
    #[error("the digest has neither 64 hexadecimal digits nor 128")]
    Digest,
    /// A symbolic link without a target.
    #[error("the symbolic link has no target")]
    NoTarget,
    /// Attributes whose text is too long.
    #[error("the attributes take more than {XATTRS_MAX_TEXT} bytes of the line")]
    XattrsTooLong,
    /// An attribute without `=`.
    #[error("the attribute has no `=`")]
    NoEquals,
    /// A hard link without a target.
    #[error("the hard link has no target")]
    NoLinkTarget,
    /// A file that no image can have.
    #[error(transparent)]
    Tree(#[from] TreeProblem),
}

/// A line that is taken as it is, but may not be meant so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpWarning {
    /// A path of an object that is not made of its digest.
    #[error("line {line}: the payload is not the digest's path in a store")]
    OtherObject {
        /// Number of the line, from 1.
        line: u64,
    },
    /// A link count that is not the number of names.
    #[error("line {line}: a link count of {nlink}, but {names} names")]
    Links {
        /// Number of the line, from 1.
        line: u64,
        /// The link count.
        nlink: u32,
        /// Number of names in the dump.
        names: u32,
    },
}
