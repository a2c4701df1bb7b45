//! Filter of the files that an index has, and arithmetic of their paths.

use kiln_read::ScanFilter;
use kilnfs::tree::filter::{PathGlob, PathGlobs};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Filter of the files that an index has.
#[derive(Clone, Default)]
pub(crate) struct IndexFilter {
    /// Ends of names, such as `.jpg`; upper and lower case of ASCII letters are the same.
    pub(super) endings: Vec<Vec<u8>>,
    /// A glob for paths below the root.
    pub(super) glob: Option<Vec<u8>>,
    pub(super) matcher: Option<PathGlobs>,
    /// Path of the index's root from the root of the image, without slashes around it.
    pub(super) root: Vec<u8>,
}

impl IndexFilter {
    /// # Errors
    /// `ValueError` for a glob that cannot be parsed.
    pub(crate) fn new(endings: Vec<Vec<u8>>, glob: Option<Vec<u8>>) -> PyResult<Self> {
        let filter = IndexFilter { endings, ..IndexFilter::default() };
        filter.with_glob(glob).map_err(PyValueError::new_err)
    }

    /// Returns the filter with a glob.
    ///
    /// # Errors
    /// The reason why the glob cannot be parsed.
    pub(super) fn with_glob(mut self, glob: Option<Vec<u8>>) -> Result<Self, String> {
        if let Some(glob) = &glob {
            let compiled = PathGlob::new(glob).and_then(|glob| PathGlobs::new([glob]));
            self.matcher = Some(compiled.map_err(|error| error.to_string())?);
        }
        self.glob = glob;
        Ok(self)
    }

    /// Returns the part of the filter that a scan applies itself: the ends of names.
    pub(super) fn endings(&self) -> ScanFilter {
        ScanFilter::all().ending_in(&self.endings)
    }

    /// Returns true if there is no glob, or it matches a name of the directory `below` the root.
    pub(super) fn takes_path(&self, below: &[u8], name: &[u8]) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        matcher.is_match(&join(below, name))
    }

    /// Returns the part of a path that is below the root.
    pub(super) fn below<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let below = path.strip_prefix(self.root.as_slice()).unwrap_or(path);
        below.strip_prefix(b"/").unwrap_or(below)
    }
}

/// Joins two parts of a path, either of which may be empty.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir, name) {
        ([], name) => name.to_vec(),
        (dir, []) => dir.to_vec(),
        (dir, name) => [dir, b"/", name].concat(),
    }
}

/// Returns a path without leading, trailing and double slashes, and without ".".
pub(super) fn normal(path: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    parts.join(&b'/')
}
