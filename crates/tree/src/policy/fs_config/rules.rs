//! Rules over paths, as Android builds install them.

use regex::bytes::{Regex, RegexBuilder};

use super::Access;
use crate::filter::glob::{FLAGS, Slash, to_regex};
use crate::syntax::{SyntaxError, regex_reason};

/// Directories whose paths may also be written without the enclosing partition, with the length of
/// that prefix in bytes.
const NESTED: [(&[u8], usize); 4] =
    [(b"system/product/", 7), (b"system/system_ext/", 7), (b"system/vendor/", 7), (b"vendor/odm/", 7)];

/// Rules, in the order of lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessRules {
    pub(super) files: Vec<AccessRule>,
    pub(super) dirs: Vec<AccessRule>,
}

/// Metadata of the files or directories at matching paths.
#[derive(Clone, Debug)]
pub struct AccessRule {
    pattern: Regex,
    access: Access,
}

impl AccessRule {
    /// Creates a rule for files at the paths that match `pattern`: a pattern of fnmatch(3), without
    /// escapes, in which a slash is an ordinary character.
    ///
    /// # Errors
    /// An invalid pattern.
    pub fn files(pattern: &[u8], access: Access) -> Result<Self, SyntaxError> {
        Ok(Self { pattern: compile(pattern, false)?, access })
    }

    /// Creates a rule for directories, which also matches all directories below.
    ///
    /// # Errors
    /// An invalid pattern.
    pub fn dirs(pattern: &[u8], access: Access) -> Result<Self, SyntaxError> {
        Ok(Self { pattern: compile(pattern, true)?, access })
    }
}

impl AccessRules {
    /// Returns the metadata for the file or directory at `path`.
    pub(super) fn get(&self, path: &[u8], is_dir: bool) -> Option<Access> {
        let mut path = path.to_vec();
        if is_dir {
            path.push(b'/');
        }
        let inner = NESTED.iter().find(|(start, _)| path.starts_with(start)).map(|(_, len)| &path[*len..]);
        let rules = if is_dir { &self.dirs } else { &self.files };
        let matches = |rule: &&AccessRule| {
            rule.pattern.is_match(&path) || inner.is_some_and(|inner| rule.pattern.is_match(inner))
        };
        rules.iter().find(matches).map(|rule| rule.access)
    }
}

/// Compiles a pattern of fnmatch(3), without escapes, in which a slash is an ordinary character.
/// The pattern of a directory also matches all directories below it.
fn compile(pattern: &[u8], is_dir: bool) -> Result<Regex, SyntaxError> {
    let refuse = |reason: &str| SyntaxError::new("prefix", pattern, reason);
    let mut glob: Vec<u8> = Vec::new();
    for byte in pattern.strip_prefix(b"/").unwrap_or(pattern) {
        glob.extend((*byte == b'\\').then_some(b'\\').into_iter().chain([*byte]));
    }
    if is_dir && !glob.ends_with(b"/*") {
        glob.extend_from_slice(if glob.ends_with(b"/") { b"*" } else { b"/*" });
    }
    let regex = to_regex(&glob, Slash::Ordinary).map_err(refuse)?;
    let regex = RegexBuilder::new(&format!("{FLAGS}^(?:{regex})$")).size_limit(1 << 20).build();
    regex.map_err(|error| refuse(&regex_reason(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let access = |permissions, uid, capabilities| Access { uid, gid: 7, permissions, capabilities };
        let file = |access, pattern: &str| AccessRule::files(pattern.as_bytes(), access).unwrap();
        let dir = |access, pattern: &str| AccessRule::dirs(pattern.as_bytes(), access).unwrap();
        let rules = AccessRules {
            files: vec![
                file(access(0o700, 1, 1 << 36), "system/bin/special"),
                file(access(0o755, 2, 0), "system/bin/*"),
                file(access(0o640, 3, 0), "vendor/etc/*"),
            ],
            dirs: vec![dir(access(0o751, 4, 0), "system/bin"), dir(access(0o755, 5, 0), "data/")],
        };
        let uid = |path: &str, is_dir| rules.get(path.as_bytes(), is_dir).map(|access| access.uid);
        assert_eq!(rules.get(b"system/bin/special", false).map(|access| access.capabilities), Some(1 << 36));
        assert_eq!((uid("system/bin/sh", false), uid("system/bin/d/sh", false)), (Some(2), Some(2)));
        assert_eq!((uid("system/bin", false), uid("system/binary", false)), (None, None));
        assert_eq!((uid("system/bin", true), uid("system/bin/d", true), uid("system", true)), (Some(4), Some(4), None));
        assert_eq!(uid("data/x", true), Some(5));
        assert_eq!(uid("system/vendor/etc/f", false), Some(3), "the partition may be a directory of system");
    }
}
