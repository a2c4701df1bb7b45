//! Why a text is no hot list.

use kiln_format::Escaped;

/// Characters of a wrong value that a message shows.
const VALUE_MAX_CHARS: usize = 120;

/// A line that does not belong to a hot list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}, line {line}: {field} `{value}`: {reason}")]
pub struct HotListError {
    /// Name of the list, as the caller calls it.
    pub name: String,
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Name of the value.
    pub field: &'static str,
    /// The value, escaped where it is not printable, and cut if it is long.
    pub value: String,
    /// Reason why it is wrong.
    pub reason: &'static str,
}

/// A field that is not what it should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong<'a> {
    pub(super) field: &'static str,
    pub(super) value: &'a [u8],
    pub(super) reason: &'static str,
}

impl Wrong<'_> {
    /// Returns the error with its place: the line with index `line_idx` of the list called `name`.
    pub(super) fn at(self, name: &str, line_idx: usize) -> HotListError {
        let mut value = Escaped(self.value).to_string();
        if let Some((end, _)) = value.char_indices().nth(VALUE_MAX_CHARS) {
            value.truncate(end);
            value.push_str("...");
        }
        HotListError { name: name.to_owned(), line: line_idx + 1, field: self.field, value, reason: self.reason }
    }
}
