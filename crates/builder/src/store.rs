//! Storing of data: text is read, decided about, packed and appended, segment by segment. Each piece of text is in
//! memory once, between reading and writing.

use crate::context::Context;
use crate::context::progress::Progress;
use crate::error::BuildError;
use crate::pack::append::Appender;
use crate::pack::worker::PackWorker;
use crate::pack::{PackCrew, Packing, StoredData};
use crate::plan::Plan;
use crate::plan::dedupe::parts::OlderText;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::fragments::FragmentStream;
use crate::plan::packed_window::WindowEnd;
use crate::plan::pieces::requests;
use crate::plan::planner::{Decided, Planner};
use crate::plan::survey::Survey;
use crate::plan::text::TextSource;
use crate::read::{self, Piece, ReadRequest, Unread};
use kiln_digest::contents::ContentDigest;
use kiln_parallel::crew::with_crew;
use std::collections::HashMap;

/// Data that was stored, with the decisions about it.
pub(crate) struct StoredTree {
    /// The decisions.
    pub plan: Plan,
    /// Digests of contents that were read, by file.
    pub digests: HashMap<u32, ContentDigest>,
    /// Places of the data.
    pub data: StoredData,
}

/// Stores the data of all files behind `data`, which is returned as well.
///
/// # Errors
/// Those of [`crate::build`].
pub(crate) fn store<'b>(
    survey: Survey,
    data: Appender<'b>,
    context: Context<'_>,
) -> Result<(StoredTree, Appender<'b>), BuildError> {
    let total = total(&survey.files);
    let (mut decided, data, appender) = with_store(&survey, data, total, context, |mut store| {
        read::run(requests(&survey, context, false), context, |request, piece| store.take(request, piece))?;
        store.finish()
    })?;
    let digests = std::mem::take(&mut decided.digests);
    let fragments_len = decided.fragments.len();
    let plan = Plan::new(survey, decided, fragments_len, context.format);
    Ok((StoredTree { plan, digests, data }, appender))
}

/// Runs `work` with a store, and its crew of packers, behind `data`.
///
/// # Errors
/// Those of `work`.
pub(crate) fn with_store<'b, T>(
    survey: &Survey,
    data: Appender<'b>,
    total_bytes: u64,
    context: Context<'_>,
    work: impl FnOnce(Store<'_, 'b, '_, '_>) -> Result<T, BuildError>,
) -> Result<T, BuildError> {
    let work_options = &context.format.work;
    let worker = || {
        let mut worker = PackWorker::new(context);
        Ok(move |job| worker.pack(job))
    };
    with_crew(work_options.threads, work_options.backlog(), worker, |crew| {
        let (planner, packing) = (Planner::new(survey, context), Packing::begin(survey, data, context)?);
        let progress = Progress { done_bytes: 0, total_bytes };
        work(Store { planner, packing, crew, context, progress })
    })
}

/// Returns the bytes of files that are to be read.
fn total(files: &[FilePlan]) -> u64 {
    use Storage::{LeftOut, Placed, Reused};
    let is_new = |file: &&FilePlan| !matches!(file.storage, LeftOut | Placed { .. } | Reused { .. });
    files.iter().filter(is_new).map(|file| file.len).sum()
}

/// The thread that decides and writes.
pub(crate) struct Store<'a, 'b, 'c, 'w> {
    planner: Planner<'a>,
    packing: Packing<'a, 'b>,
    crew: &'c mut PackCrew<'w>,
    context: Context<'a>,
    progress: Progress,
}

impl<'b> Store<'_, 'b, '_, '_> {
    /// Adds a file of a stream. Its pieces follow.
    pub(crate) fn add_file(&mut self, file: FilePlan) {
        self.packing.add_file(&file);
        self.planner.add_file(file);
    }

    /// Takes the next piece.
    pub(crate) fn take(&mut self, request: ReadRequest, piece: Result<Piece, Unread>) -> Result<(), BuildError> {
        if self.planner.begins_rest(request.file) {
            self.decide(Some(WindowEnd::Padded))?;
            self.packing.take_all(self.crew)?;
            self.packing.begin_rest();
        } else if self.planner.is_full() {
            self.decide(None)?;
        }
        let done = self.progress.done_bytes + (request.range.end - request.range.start);
        // The length of a stream is not known.
        let is_known = self.progress.total_bytes > 0;
        self.progress.done_bytes = if is_known { done.min(self.progress.total_bytes) } else { done };
        (self.context.control.progress)(self.progress);
        self.planner.push(request, piece);
        Ok(())
    }

    /// Decides about a segment, and about files that wait for the packed stream if there is an `end`. Lets the crew
    /// pack what is to be stored.
    fn decide(&mut self, end: Option<WindowEnd>) -> Result<(), BuildError> {
        let jobs = self.planner.decide(end, &mut Older { packing: &mut self.packing, crew: self.crew })?;
        self.packing.submit(jobs, self.crew)
    }

    /// Decides about the last segment, and stores what remains.
    pub(crate) fn finish(mut self) -> Result<(Decided, StoredData, Appender<'b>), BuildError> {
        let has_rest = self.planner.has_rest();
        let packing = &self.context.format.packing;
        let end = if packing.directories || packing.ends { WindowEnd::Padded } else { WindowEnd::Last };
        self.decide(Some(end))?;
        if !has_rest {
            self.packing.take_all(self.crew)?;
            self.packing.begin_rest();
        }
        let decided = self.planner.finish();
        let (data, appender) = self.packing.finish(&decided, self.crew)?;
        Ok((decided, data, appender))
    }
}

/// Text that is stored already, or will be when the crew is done with it.
struct Older<'x, 'a, 'b, 'w> {
    packing: &'x mut Packing<'a, 'b>,
    crew: &'x mut PackCrew<'w>,
}

impl OlderText for Older<'_, '_, '_, '_> {
    fn read(&mut self, source: TextSource, off: u64, buf: &mut [u8], _: &FragmentStream) -> Result<(), BuildError> {
        self.packing.read_older((source, off), buf, self.crew)
    }

    fn prepare(&mut self, places: &[(TextSource, u64)]) -> Result<usize, BuildError> {
        self.packing.decode_ahead(places, self.crew)
    }
}
