//! What is wrong with choices.

use std::error::Error;
use std::fmt;

/// A choice that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Name of the choice, as its field or parameter is called.
    pub field: &'static str,
    /// What was chosen.
    pub value: u64,
    /// What it must be instead: a phrase that follows "must be".
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
