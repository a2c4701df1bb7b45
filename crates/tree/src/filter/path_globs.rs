//! Globs that select paths, for commands that name files of an image.

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::glob::{FLAGS, Slash, to_regex};
use super::rules::COMPILED_MAX_LEN;
use crate::syntax::{SyntaxError, regex_reason};

/// Glob that matches whole paths, in the language of [`Rule`](super::Rule) without its marks: `*`,
/// `?` and `[...]` do not match slashes, `**` does, a backslash escapes. Braces are ordinary
/// characters.
#[derive(Clone, Debug)]
pub struct PathGlob(String);

impl PathGlob {
    /// Parses a glob.
    ///
    /// # Errors
    /// Brackets that do not end, or a backslash at the end.
    pub fn new(glob: &[u8]) -> Result<Self, SyntaxError> {
        let regex = to_regex(glob, Slash::Separates).map_err(|reason| SyntaxError::new("glob", glob, reason))?;
        Ok(Self(format!("{FLAGS}^{regex}$")))
    }
}

/// Globs that are matched at once.
///
/// ```
/// use kiln_tree::filter::{PathGlob, PathGlobs};
///
/// let globs = [&b"etc/*.conf"[..], b"**/*.so"].map(|glob| PathGlob::new(glob).unwrap());
/// let globs = PathGlobs::new(globs).unwrap();
/// assert_eq!(globs.matching(b"usr/lib/libc.so").collect::<Vec<_>>(), [1]);
/// assert!(!globs.is_match(b"etc/ssh/sshd.conf"));
/// ```
#[derive(Clone, Debug)]
pub struct PathGlobs(RegexSet);

impl PathGlobs {
    /// Compiles globs.
    ///
    /// # Errors
    /// Globs that need more memory than allowed.
    pub fn new(globs: impl IntoIterator<Item = PathGlob>) -> Result<Self, SyntaxError> {
        let regexes: Vec<String> = globs.into_iter().map(|glob| glob.0).collect();
        let built = RegexSetBuilder::new(&regexes).size_limit(COMPILED_MAX_LEN).build();
        built.map(Self).map_err(|error| {
            let count = format!("{} of them", regexes.len());
            SyntaxError::new("globs", count.as_bytes(), regex_reason(&error))
        })
    }

    /// Returns true if there are no globs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a glob matches `path`, which has no leading slash.
    pub fn is_match(&self, path: &[u8]) -> bool {
        self.0.is_match(path)
    }

    /// Returns the indexes of the globs that match `path`, in ascending order.
    pub fn matching(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        self.0.matches(path).into_iter()
    }
}
