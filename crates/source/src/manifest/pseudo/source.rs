//! Source that reads a file of definitions as a whole tree.

use kiln_read::ReadAt;
use kiln_tree::policy::{PolicyError, TreeEdits};
use kiln_tree::{Builder, NoContents};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read;
use crate::error::SourceError;
use crate::input::candidate::Candidate;
use crate::kind::SourceKind;
use crate::manifest::lines::ListError;
use crate::source::{ScanOptions, Scanned, Source};

/// The kind "pseudo file definitions": files that begin with the definition of the root directory.
pub(crate) const KIND: SourceKind = SourceKind {
    name: "pseudo",
    title: "a file of pseudo file definitions",
    is: |candidate| {
        let head = candidate.plain_head();
        let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii_start);
        let first = lines.find(|line| !matches!(line, [] | [b'#', ..]));
        first.is_some_and(|line| line.starts_with(b"/ D ") || line.starts_with(b"/ d "))
    },
    open: |candidate| Ok(Box::new(PseudoSource::new(candidate)?)),
};

struct PseudoSource {
    path: PathBuf,
    edits: TreeEdits,
}

impl PseudoSource {
    fn new(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let path = candidate.path().to_owned();
        let bytes: Arc<dyn ReadAt> = candidate.into_plain_bytes()?;
        match read(bytes, &path) {
            Ok(edits) => Ok(Self { path, edits }),
            Err(ListError::Line(error)) => Err(error.into()),
            Err(ListError::Unreadable(error)) => Err(error.into()),
        }
    }
}

impl Source for PseudoSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, _: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let builder = Builder::default();
        let empty = builder.finish(Box::new(NoContents)).map_err(SourceError::tree(&self.path))?;
        match self.edits.apply(empty) {
            Ok(tree) => Ok(Scanned::Everything(tree.into())),
            Err(PolicyError::Edit(error)) => Err(error.into()),
            Err(PolicyError::Tree(error)) => Err(SourceError::tree(&self.path)(error)),
            Err(other) => Err(SourceError::Unsupported { path: self.path.clone(), reason: other.to_string() }),
        }
    }
}
