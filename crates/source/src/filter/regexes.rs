//! Regular expressions of what is left out.

use regex::bytes::RegexBuilder;

use super::error::{SyntaxError, regex_reason};

/// Extended regular expressions over paths from the root of the source on, without a slash in front. They match anywhere in
/// a path, and are about bytes. The syntax is that of the crate `regex`, which has what POSIX has but collating symbols, and
/// takes a backslash within brackets as an escape.
#[derive(Clone, Debug, Default)]
pub struct Regexes(Vec<regex::bytes::Regex>);

impl Regexes {
    /// Add one.
    ///
    /// # Errors
    /// What is no regular expression, or a too large one.
    pub fn add(&mut self, regex: &str) -> Result<(), SyntaxError> {
        let compiled = RegexBuilder::new(regex).unicode(false).dot_matches_new_line(true).build();
        let compiled =
            compiled.map_err(|error| SyntaxError::new("regular expression", regex.as_bytes(), regex_reason(&error)))?;
        self.0.push(compiled);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_match(&self, path: &[u8]) -> bool {
        self.0.iter().any(|regex| regex.is_match(path))
    }
}
