//! Merges of several sources: later ones over earlier ones, as overlayfs shows its layers, or in
//! directories of their own.

mod draft;
mod draft_source;

pub use draft::Draft;
pub use draft_source::DraftSource;

use kiln_format::BlockBits;
use kiln_tree::filter::Filter;
use kiln_tree::merge::{MergeBuilder, Whiteouts};
use kiln_tree::path::normal;
use kiln_tree::{Builder, Metadata};
use std::path::Path;

use crate::error::SourceError;
use crate::source::{Note, Scan, ScanOptions, Scanned, Source};
use crate::xattrs::left_out::LeftOutXattrs;

/// One of several sources.
pub struct MergePart {
    source: Box<dyn Source>,
    /// Directory in the merged tree for its root: names separated by slashes, or empty for the
    /// root.
    at: Vec<u8>,
}

/// Several sources as one.
///
/// A directory over a directory is merged with it, and gets owner, permissions, times and
/// attributes of the later one. Anything else replaces the earlier file. A directory that is only
/// implied by paths of an archive does not change an existing directory.
pub struct Merged {
    parts: Vec<MergePart>,
    whiteouts: Whiteouts,
}

impl Merged {
    /// Merges sources; the first is the lowest.
    ///
    /// # Panics
    /// If there are no parts.
    pub fn new(parts: Vec<MergePart>, whiteouts: Whiteouts) -> Self {
        assert!(!parts.is_empty(), "a merge has at least one part");
        Self { parts, whiteouts }
    }

    /// Scans one part, before the filter is applied to the whole.
    fn scan_part(&self, part: &MergePart, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        // Rules apply equally to a source at the root. Lists and ignore files need the whole tree.
        let filter = match part.at.is_empty() {
            true => Filter { only: None, ignore_files: Vec::new(), ..options.filter.clone() },
            false => Filter { one_file_system: options.filter.one_file_system, ..Filter::default() },
        };
        part.source.scan(&ScanOptions { filter: &filter, ..*options })
    }
}

impl MergePart {
    /// Creates a part whose root becomes the directory at the path `at`.
    pub fn new(source: Box<dyn Source>, at: &[u8]) -> Self {
        Self { source, at: normal(at) }
    }

    /// Returns the path in the merged tree of `path` in the source.
    fn path(&self, path: &[u8]) -> Vec<u8> {
        match (&*self.at, path) {
            (b"", path) => path.to_vec(),
            (at, b"") => at.to_vec(),
            (at, path) => [at, path].join(&b'/'),
        }
    }
}

impl Source for Merged {
    /// Returns the path of the first source.
    fn path(&self) -> &Path {
        self.parts[0].source.path()
    }

    /// Returns the block size of the last source that has one.
    fn block_bits(&self) -> Option<BlockBits> {
        self.parts.iter().rev().find_map(|part| part.source.block_bits())
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let root = Builder::new(Metadata { permissions: 0o755, ..Metadata::default() });
        let mut merged = MergeBuilder::new(root, self.whiteouts);
        let (mut skipped, mut notes, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        let mut left_out_xattrs = LeftOutXattrs::default();
        for part in &self.parts {
            let scan = self.scan_part(part, options)?;
            skipped.extend(scan.skipped);
            notes.extend(scan.notes);
            left_out_xattrs.extend(scan.left_out_xattrs, |path| part.path(path));
            outputs.extend(scan.outputs.iter().map(|path| part.path(path)));
            let links = merged.put(scan.tree, &part.at).map_err(SourceError::tree(part.source.path()))?;
            notes.extend(Note::of_links(links, part.source.path()));
        }
        outputs.sort();
        let tree = merged.finish().map_err(SourceError::tree(self.path()))?;
        Ok(Scanned::Everything(Scan { skipped, notes, left_out_xattrs, outputs, ..Scan::from(tree) }))
    }
}
