//! A draft as a source.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use super::draft::Draft;
use crate::error::SourceError;
use crate::source::{ScanOptions, Scanned, Source};

/// A tree that a program makes, as a source. It is read once.
pub struct DraftSource {
    name: PathBuf,
    draft: Mutex<Option<Draft>>,
}

impl DraftSource {
    /// The draft, if nothing has read it.
    pub fn into_draft(self) -> Option<Draft> {
        self.draft.into_inner()
    }
}

impl From<Draft> for DraftSource {
    fn from(draft: Draft) -> Self {
        Self { name: draft.name().to_owned(), draft: Mutex::new(Some(draft)) }
    }
}

impl Source for DraftSource {
    fn path(&self) -> &Path {
        &self.name
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        options.check_stop()?;
        let reason = "its tree was taken before: a draft is read once";
        let taken = || SourceError::Options { path: self.name.clone(), reason };
        let draft = self.draft.lock().take().ok_or_else(taken)?;
        draft.finish_scan().map(Scanned::Everything)
    }
}
