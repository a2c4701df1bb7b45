//! Manifests of mtree(5), as FreeBSD, NetBSD and `bsdtar --format=mtree` write them: names and
//! metadata of a tree as text. The contents are in a separate directory.

mod contents;
mod escapes;
mod keywords;
mod listing;

use kiln_read::ReadAt;
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{SourceError, Unreadable};
use crate::input::candidate::Candidate;
use crate::input::tape::Tape;
use crate::kind::SourceKind;
use crate::source::{Scan, ScanOptions, Source, SourceEntries};
use listing::Listing;

/// First bytes of manifests of FreeBSD and bsdtar. Those of NetBSD start with any comment, or none.
const SIGNATURE: &[u8] = b"#mtree";

/// The kind "mtree manifest".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "mtree",
    title: "an mtree manifest",
    is: |candidate| candidate.plain_head().starts_with(SIGNATURE),
    open: |candidate| Ok(Box::new(ManifestSource::new(candidate)?)),
};

struct ManifestSource {
    path: PathBuf,
    /// Text of the manifest.
    bytes: Arc<dyn ReadAt>,
    /// Directory with the contents.
    root: Option<PathBuf>,
}

impl ManifestSource {
    fn new(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let (path, root) = (candidate.path().to_owned(), candidate.options().root_dir.clone());
        Ok(Self { path, bytes: candidate.into_plain_bytes()?, root })
    }
}

impl Source for ManifestSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let tape = Tape::in_place(Arc::clone(&self.bytes));
        let tape = tape.map_err(|source| Unreadable { path: self.path.clone(), source })?;
        let root = self.root.as_deref().map(open_root).transpose()?;
        let listing = Listing::new(&self.path, options, root.as_ref());
        let (builder, files, skipped) = listing.read(tape)?;
        let contents = Box::new(files.below(root));
        let tree = builder.finish(contents).map_err(SourceError::tree(&self.path))?;
        Ok(SourceEntries::Everything(Scan { skipped, ..Scan::from(tree) }))
    }
}

fn open_root(path: &Path) -> Result<OwnedFd, Unreadable> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|error| Unreadable { path: path.to_owned(), source: error.into() })
}
