//! Error of invalid choices.

use std::error::Error;
use std::fmt;

/// Error of a choice that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Name of the choice: that of its field or parameter.
    pub field: &'static str,
    /// Chosen value.
    pub value: u64,
    /// Requirement: a phrase that follows "must be".
    pub expected: String,
}

impl Invalid {
    pub(crate) fn new(field: &'static str, value: impl Into<u64>, expected: impl Into<String>) -> Self {
        Self { field, value: value.into(), expected: expected.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.field, self.value, self.expected)
    }
}

impl Error for Invalid {}
