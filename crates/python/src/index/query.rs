//! A request for an index, which is answered by a scan of the image or by the index behind it.

use super::behind::{self, Origin};
use super::columns::Columns;
use super::filter::IndexFilter;
use super::labels::LabelDepth;
use super::scan::scan;
use crate::arguments::{FileRef, Name};
use kiln_parallel::Threads;
use kiln_read::{FollowLast, Image, ReadError};
use pyo3::prelude::*;

/// Arguments of `Image.index`.
pub(crate) struct IndexQuery {
    /// Directory below which files are found.
    pub root: FileRef,
    filter: IndexFilter,
    depth: Option<LabelDepth>,
    threads: Threads,
}

impl IndexQuery {
    /// # Errors
    /// `ValueError` for a glob that cannot be parsed.
    pub(crate) fn new(
        root: FileRef,
        extensions: Vec<Name>,
        glob: Option<Name>,
        depth: Option<u64>,
        threads: Threads,
    ) -> PyResult<Self> {
        let endings = extensions.into_iter().map(|Name(ending)| ending).collect();
        let filter = IndexFilter::new(endings, glob.map(|Name(glob)| glob))?;
        let depth = depth.map(|depth| LabelDepth(usize::try_from(depth).unwrap_or(usize::MAX)));
        Ok(IndexQuery { root, filter, depth, threads })
    }

    /// Returns the query as bytes: equal queries have equal answers.
    pub(crate) fn key(&self) -> Vec<u8> {
        behind::key(&self.root, &self.filter, self.depth)
    }

    /// Returns the index behind the image if it answers this query, else scans the image, which
    /// begins at byte `offset` of `origin`.
    pub(crate) fn find_or_scan(&self, image: &Image, origin: &Origin, offset: u64) -> Result<Columns, ReadError> {
        behind::find(image, origin, offset, &self.key()).map_or_else(|| self.scan(image), Ok)
    }

    /// Makes the index from the directories and inodes of the image.
    pub(crate) fn scan(&self, image: &Image) -> Result<Columns, ReadError> {
        let dir = self.root.inode(image, FollowLast::Follow)?;
        scan(image, &self.root, &dir, &self.filter, self.depth, self.threads)
    }
}
