//! Source that reads a draft.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use super::draft::Draft;
use crate::error::SourceError;
use crate::source::{ScanOptions, Source, SourceEntries};

/// A draft as a source. It can be read once.
pub struct DraftSource {
    name: PathBuf,
    draft: Mutex<Option<Draft>>,
}

impl DraftSource {
    /// Returns the draft, if it has not been read.
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

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        options.check_stop()?;
        let reason = "the draft has been read already; it can be read only once";
        let taken = || SourceError::Options { path: self.name.clone(), reason };
        let draft = self.draft.lock().take().ok_or_else(taken)?;
        draft.finish_scan().map(SourceEntries::Everything)
    }
}
