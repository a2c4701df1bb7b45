//! Regular expressions that exclude paths.

use regex::bytes::RegexBuilder;

use crate::syntax::{SyntaxError, regex_reason};

/// Extended regular expressions over paths relative to the root of the source, without a leading
/// slash. They match anywhere in a path, and match bytes. The syntax is that of the crate `regex`,
/// which has everything that POSIX has except collating symbols, and treats a backslash within
/// brackets as an escape.
#[derive(Clone, Debug, Default)]
pub struct Regexes(Vec<regex::bytes::Regex>);

impl Regexes {
    /// Adds a regular expression.
    ///
    /// # Errors
    /// A regular expression that is invalid or too large.
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
