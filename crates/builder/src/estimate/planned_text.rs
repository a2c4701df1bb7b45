//! The text of jobs, read from the places that the plan gives.

use crate::error::BuildError;
use crate::pack::jobs::PackJob;
use crate::plan::Plan;
use crate::plan::fragments::FragmentStream;
use crate::plan::text::TextSource;
use kiln_tree::Tree;

/// Sources of text.
pub(super) struct PlannedText<'a> {
    pub tree: &'a Tree,
    pub plan: &'a Plan,
    /// The packed stream.
    pub fragments: &'a FragmentStream,
}

impl PlannedText<'_> {
    /// Reads the text of a job into `text`, whose memory is reused.
    ///
    /// # Errors
    /// A file that cannot be read or has changed, with its path.
    pub(super) fn read(&self, job: &PackJob, text: &mut Vec<u8>) -> Result<(), BuildError> {
        text.resize((job.range.end - job.range.start) as usize, 0);
        match job.stream {
            TextSource::File(file) => self.read_file(file, job.range.start, text),
            TextSource::Fragments => {
                self.fragments.read(job.range.start, text, |file, off, piece| self.read_file(file, off, piece))
            }
        }
    }

    fn read_file(&self, file: u32, off: u64, text: &mut [u8]) -> Result<(), BuildError> {
        let node = self.plan.files[file as usize].node;
        let mut content = self.tree.open(node)?;
        let read = content.read_exact_at(text, off).and_then(|()| content.verify_unchanged());
        read.map_err(|source| BuildError::Read { path: self.tree.path(node), source })
    }
}
