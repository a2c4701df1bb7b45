//! Filter that selects the entries of a source.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;

use super::ignore::IgnoreRules;
use super::path_list::PathList;
use super::regexes::Regexes;
use super::rules::{Rules, Verdict};
use crate::path::normal;

/// Selection of entries of a source; the default selects everything. The root itself is always
/// selected.
///
/// Entries that a path or regular expression excludes are out. For others the last matching rule of
/// `rules` decides; without one, the rules of ignore files do, those of the nearest directory
/// first. Entries below an excluded directory cannot be included again.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Rules for the whole source; later ones override earlier ones.
    pub rules: Vec<Rules>,
    /// Regular expressions that exclude paths.
    pub regexes: Regexes,
    /// Names of ignore files. In any directory a file of such a name has rules for the entries
    /// below. Within a directory, files named later in this list override earlier ones. Ignore
    /// files are not excluded themselves.
    pub ignore_files: Vec<CString>,
    /// The only paths to scan, unless something else excludes them.
    pub only: Option<PathList>,
    /// True to scan mount points, and directories on another device than the root, as empty
    /// directories. Other files are unaffected, even if a filesystem is mounted over them. Only
    /// sources that are directories have mount points.
    pub one_file_system: bool,
    /// Excluded files and directories, by path relative to the root of the source, without leading
    /// or trailing slashes. [`Filter::exclude_path`] adds paths in any form.
    pub paths: HashSet<Vec<u8>>,
}

impl Filter {
    /// Excludes `path`, relative to the root of the source. No byte of it has a special meaning.
    pub fn exclude_path(&mut self, path: &[u8]) {
        self.paths.insert(normal(path));
    }

    /// Returns true if the filter excludes nothing by name or path.
    pub fn is_everything(&self) -> bool {
        let Self { rules, regexes, ignore_files, only, paths, .. } = self;
        rules.iter().all(Rules::is_empty)
            && regexes.is_empty()
            && ignore_files.is_empty()
            && only.is_none()
            && paths.is_empty()
    }

    /// Returns true if the entry at `path` is selected, with the rules of the ignore files above it.
    /// `is_dir` is called only if needed.
    ///
    /// # Errors
    /// Those of `is_dir`.
    pub fn wants(&self, path: &[u8], ignored: &IgnoreRules, is_dir: &dyn Fn() -> io::Result<bool>) -> io::Result<bool> {
        if self.paths.contains(path) || self.regexes.is_match(path) {
            return Ok(false);
        }
        for rules in self.rules.iter().rev() {
            if let Some(verdict) = rules.verdict(path, is_dir)? {
                return Ok(verdict == Verdict::Include);
            }
        }
        Ok(ignored.verdict(path, is_dir)? != Some(Verdict::Exclude))
    }
}
