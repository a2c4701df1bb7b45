//! Errors of the syntax of filters, policies and definitions.

use std::fmt::Display;

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

impl SyntaxError {
    /// Creates the error of `value`, of which a message shows the first 120 characters.
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

    /// Returns the error with its line in the file called `name`; `line_idx` counts from 0.
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
