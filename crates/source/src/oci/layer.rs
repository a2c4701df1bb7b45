//! One layer of an image as a source.

use kiln_builder::tree::Builder;
use kiln_read::ReadAt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archive::tar::source as tar;
use crate::error::SourceError;
use crate::filter::overlay::from_aufs;
use crate::image::erofs::source as erofs;
use crate::input::candidate::{Candidate, SourceOptions};
use crate::kind::{SourceKind, open_candidate};
use crate::source::{Scan, ScanOptions, Scanned, Source};

/// What layers can be.
const KINDS: &[SourceKind] = &[tar::KIND, erofs::KIND];

/// A layer, whose marks for lower layers are those of overlayfs.
pub(super) struct Layer {
    path: PathBuf,
    inner: Box<dyn Source>,
    /// A tar layer: its marks are names.
    has_aufs_marks: bool,
}

impl Layer {
    /// The layer in `blob`, which errors call `path`.
    pub(super) fn open(path: PathBuf, blob: Arc<dyn ReadAt>, options: &SourceOptions) -> Result<Self, SourceError> {
        let options = SourceOptions { spool_dir: options.spool_dir.clone(), ..SourceOptions::default() };
        let candidate = Candidate::of_bytes(&path, &options, blob)?;
        let has_aufs_marks = (tar::KIND.is)(&candidate);
        let inner = open_candidate(KINDS, candidate)?;
        Ok(Self { path, inner, has_aufs_marks })
    }
}

impl Source for Layer {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let Scan { mut tree, skipped, outputs } = self.inner.scan(options)?;
        if self.has_aufs_marks {
            let (mut builder, contents) = Builder::from_tree(tree);
            let marked = from_aufs(&mut builder).and_then(|()| builder.finish(contents));
            tree = marked.map_err(SourceError::tree(&self.path))?;
        }
        Ok(Scanned::Selected(Scan { tree, skipped, outputs }))
    }
}
