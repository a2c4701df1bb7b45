//! The plan of a tree that is not stored, and the text of its jobs, read from the places that the plan gives.

use crate::context::Context;
use crate::error::BuildError;
use crate::inodes::Inodes;
use crate::pack::jobs::PackJob;
use crate::plan::Plan;
use crate::plan::dedupe::parts::OlderText;
use crate::plan::file::FilePlan;
use crate::plan::fragments::FragmentStream;
use crate::plan::packed_window::WindowEnd;
use crate::plan::pieces::requests;
use crate::plan::planner::Planner;
use crate::plan::survey::Survey;
use crate::plan::text::TextSource;
use crate::read;
use kiln_tree::Tree;

/// A tree that is read and decided about, but not stored.
pub(super) struct Planned {
    /// The decisions.
    pub plan: Plan,
    /// The jobs that would store the data, without text.
    pub jobs: Vec<PackJob>,
    /// The packed stream.
    pub fragments: FragmentStream,
}

/// Plans the storage of a tree.
///
/// # Errors
/// Those of [`crate::build`], except errors of outputs.
pub(super) fn plan(inodes: &Inodes, context: Context<'_>) -> Result<Planned, BuildError> {
    let survey = Survey::make(inodes, context)?;
    let mut planner = Planner::new(&survey, context);
    let mut older = SourceText { tree: context.tree, files: &survey.files };
    let mut jobs = Vec::new();
    let mut keep = |more: Vec<PackJob>| jobs.extend(more.iter().map(PackJob::without_text));
    read::run(requests(&survey, context, true), context, |request, piece| {
        if planner.begins_rest(request.file) {
            keep(planner.decide(Some(WindowEnd::Padded), &mut older)?);
        } else if planner.is_full() {
            keep(planner.decide(None, &mut older)?);
        }
        planner.push(request, piece);
        Ok(())
    })?;
    let end = if context.format.packing.directories { WindowEnd::Padded } else { WindowEnd::Last };
    keep(planner.decide(Some(end), &mut older)?);
    let mut decided = planner.finish();
    let fragments = std::mem::take(&mut decided.fragments);
    let plan = Plan::new(survey, decided, fragments.len(), context.format);
    Ok(Planned { plan, jobs, fragments })
}

/// Text of files, read from the source.
struct SourceText<'a> {
    tree: &'a Tree,
    files: &'a [FilePlan],
}

impl SourceText<'_> {
    fn read_file(&self, file: u32, off: u64, text: &mut [u8]) -> Result<(), BuildError> {
        let node = self.files[file as usize].node;
        let mut content = self.tree.open(node)?;
        let read = content.read_exact_at(text, off).and_then(|()| content.verify_unchanged());
        read.map_err(|source| BuildError::Read { path: self.tree.path(node), source })
    }
}

impl OlderText for SourceText<'_> {
    fn read(
        &mut self,
        source: TextSource,
        off: u64,
        buf: &mut [u8],
        packed: &FragmentStream,
    ) -> Result<(), BuildError> {
        match source {
            TextSource::File(file) => self.read_file(file, off, buf),
            TextSource::Fragments => packed.read(off, buf, |file, off, piece| self.read_file(file, off, piece)),
        }
    }
}

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
        let mut source = SourceText { tree: self.tree, files: &self.plan.files };
        source.read(job.stream, job.range.start, text, self.fragments)
    }
}
