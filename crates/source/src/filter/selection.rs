//! What of a source is scanned.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;

use super::ignore::Layers;
use super::path_list::PathList;
use super::regexes::Regexes;
use super::rules::{Rules, Verdict};

/// What of a source is scanned; the default is everything. The root itself is never left out.
///
/// What a path or an expression excludes is out. Of `rules`, the last that is about an entry decides; if none is, the rules
/// of ignore files do, those of the nearest directory first. What lies below a directory that is left out cannot come back.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Rules for the whole source; later ones override earlier ones.
    pub rules: Vec<Rules>,
    /// Expressions for paths that are left out.
    pub regexes: Regexes,
    /// Names of ignore files: in any directory, a file of that name has rules for what is below. Of several in one
    /// directory, those named later here override. The files themselves are not left out.
    pub ignore_files: Vec<CString>,
    /// The only paths that are scanned, as far as nothing else leaves them out.
    pub only: Option<PathList>,
    /// Mount points and whatever lies on another device than the root are scanned as empty directories. Other files are
    /// what they are, even if something is mounted over them. Only a directory has mount points.
    pub one_file_system: bool,
    /// Files and directories that are left out, by path from the root of the source on, without slashes at the ends.
    /// [`Filter::exclude_path`] adds paths of any form.
    pub paths: HashSet<Vec<u8>>,
}

impl Filter {
    /// Leave out what is at `path`, from the root of the source on. No byte of it has a special meaning.
    pub fn exclude_path(&mut self, path: &[u8]) {
        let components = path.split(|&b| b == b'/').filter(|component| !matches!(*component, b"" | b"."));
        self.paths.insert(components.collect::<Vec<_>>().join(&b'/'));
    }

    /// Whether everything is scanned, whatever it is called.
    pub(super) fn is_everything(&self) -> bool {
        let Self { rules, regexes, ignore_files, only, paths, .. } = self;
        rules.is_empty() && regexes.is_empty() && ignore_files.is_empty() && only.is_none() && paths.is_empty()
    }

    /// Whether the entry at `path` is scanned. `is_dir` is asked only if it matters.
    ///
    /// # Errors
    /// Those of `is_dir`.
    pub(crate) fn wants(
        &self,
        path: &[u8],
        layers: &Layers,
        is_dir: &dyn Fn() -> io::Result<bool>,
    ) -> io::Result<bool> {
        if self.paths.contains(path) || self.regexes.is_match(path) {
            return Ok(false);
        }
        for rules in self.rules.iter().rev() {
            if let Some(verdict) = rules.verdict(path, is_dir)? {
                return Ok(verdict == Verdict::Include);
            }
        }
        Ok(layers.verdict(path, is_dir)? != Some(Verdict::Exclude))
    }
}
