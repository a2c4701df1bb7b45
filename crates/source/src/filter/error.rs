//! Why a filter or policy cannot be had, or a tree cannot follow it.

use kiln_tree::TreeError;
use std::fmt::Display;

use super::left_out_xattrs::LeftOutXattr;
use kiln_format::acl::IdKind;
use kiln_read::hotlist::HotListError;

/// Characters of a wrong value that a message shows.
const VALUE_MAX_CHARS: usize = 120;

/// A text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} `{value}`: {reason}")]
pub struct SyntaxError {
    /// What the text should be.
    pub field: &'static str,
    /// The text, escaped where it is not printable.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A line of a file that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}, line {line}: {source}")]
pub struct FileError {
    /// Name of the file, as the caller calls it.
    pub name: String,
    /// Number of the line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub source: SyntaxError,
}

impl From<HotListError> for FileError {
    fn from(error: HotListError) -> Self {
        let HotListError { name, line, field, value, reason } = error;
        Self { name, line, source: SyntaxError { field, value, reason: reason.to_owned() } }
    }
}

/// Why a tree cannot follow a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// An owner that no range of the map names.
    #[error("{}: {kind} {id} is in no range of the map", lossy(path))]
    Unmapped {
        /// Path in the tree.
        path: Vec<u8>,
        /// Of which kind the id is.
        kind: IdKind,
        /// The owner.
        id: u32,
    },
    /// An owner that is none after the offset was added.
    #[error("{}: {kind} {id} with the offset {offset} is not in 0..=4294967294", lossy(path))]
    OutOfRange {
        /// Path in the tree.
        path: Vec<u8>,
        /// Of which kind the id is.
        kind: IdKind,
        /// The owner.
        id: u32,
        /// What was added.
        offset: i64,
    },
    /// A definition that cannot be followed.
    #[error(transparent)]
    Edit(#[from] FileError),
    /// A file that a list should have.
    #[error("{}: not in {name}, which must have all files", lossy(path))]
    NotListed {
        /// Path in the list.
        path: Vec<u8>,
        /// Name of the list, as the caller calls it.
        name: String,
    },
    /// An attribute, or an entry of an ACL, that would have to be left out.
    #[error(
        "{}: {_0}: --xattr-exclude '{}' leaves it out, and so does the default, without --strict-xattrs and --preset backup",
        lossy(&_0.path),
        lossy(&_0.name)
    )]
    Xattr(Box<LeftOutXattr>),
    /// What has become of the tree is none: two files of one name, more than 2^32 files.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl SyntaxError {
    pub(crate) fn new(field: &'static str, value: &[u8], reason: impl Display) -> Self {
        let mut value = match str::from_utf8(value) {
            Ok(text) if !text.contains(char::is_control) => text.to_owned(),
            _ => value.escape_ascii().to_string(),
        };
        if let Some((end, _)) = value.char_indices().nth(VALUE_MAX_CHARS) {
            value.truncate(end);
            value.push_str("...");
        }
        Self { field, value, reason: reason.to_string() }
    }

    pub(crate) fn at(self, name: &str, line_idx: usize) -> FileError {
        FileError { name: name.to_owned(), line: line_idx + 1, source: self }
    }
}

/// The last line of the message of a regular expression that cannot be compiled: the others draw where in it.
pub(crate) fn regex_reason(error: &regex::Error) -> String {
    let message = error.to_string();
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    match path {
        b"" => "/".into(),
        path => String::from_utf8_lossy(path),
    }
}
