//! Errors of filters and policies.

use kiln_tree::TreeError;
use std::fmt::Display;

use super::left_out_xattrs::LeftOutXattr;
use kiln_format::acl::IdKind;
use kiln_read::hotlist::HotListError;

/// Maximum number of characters of an invalid value in a message.
const VALUE_MAX_CHARS: usize = 120;

/// A text with a syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} `{value}`: {reason}")]
pub struct SyntaxError {
    /// Name of the expected syntax.
    pub field: &'static str,
    /// The text, escaped where it is not printable.
    pub value: String,
    /// Description of the error.
    pub reason: String,
}

/// A line of a file with a syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}, line {line}: {source}")]
pub struct FileError {
    /// Name of the file, as given by the caller.
    pub name: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// The syntax error.
    pub source: SyntaxError,
}

impl From<HotListError> for FileError {
    fn from(error: HotListError) -> Self {
        let HotListError { name, line, field, value, reason } = error;
        Self { name, line, source: SyntaxError { field, value, reason: reason.to_owned() } }
    }
}

/// Error of applying a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// An owner that is in no range of the map.
    #[error("{}: {kind} {id} is in no range of the map", lossy(path))]
    Unmapped {
        /// Path in the tree.
        path: Vec<u8>,
        /// Kind of the id.
        kind: IdKind,
        /// The owner.
        id: u32,
    },
    /// An owner that is out of range after the offset was added.
    #[error("{}: {kind} {id} with the offset {offset} is not in 0..=4294967294", lossy(path))]
    OutOfRange {
        /// Path in the tree.
        path: Vec<u8>,
        /// Kind of the id.
        kind: IdKind,
        /// The owner.
        id: u32,
        /// Offset that was added.
        offset: i64,
    },
    /// A definition that cannot be applied.
    #[error(transparent)]
    Edit(#[from] FileError),
    /// A file that is missing in a list.
    #[error("{}: not in {name}, which must list all files", lossy(path))]
    NotListed {
        /// Path in the list.
        path: Vec<u8>,
        /// Name of the list, as given by the caller.
        name: String,
    },
    /// An attribute or an ACL entry that cannot be stored, under a strict policy.
    #[error(
        "{}: {_0}: to leave it out, use --xattr-exclude '{}', or neither --strict-xattrs nor --preset backup",
        lossy(&_0.path),
        lossy(&_0.name)
    )]
    Xattr(Box<LeftOutXattr>),
    /// The changed tree is invalid: two files of one name, or more than 2^32 files.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl SyntaxError {
    /// Creates the error of `value` where `field` is expected.
    pub fn new(field: &'static str, value: &[u8], reason: impl Display) -> Self {
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

    /// Returns the error of the line `line_idx`, from 0, of the file `name`.
    pub fn at(self, name: &str, line_idx: usize) -> FileError {
        FileError { name: name.to_owned(), line: line_idx + 1, source: self }
    }
}

/// Returns the last line of the message for an invalid regular expression; the lines before it show
/// the position.
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
