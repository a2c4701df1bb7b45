//! Decisions, segment by segment: on one thread, in the order in which data is stored.
//!
//! A segment is some MiB of text in memory. What is decided about it depends on it and on what was decided before,
//! never on threads, memory or the speed of a disk: its length is a constant. First all of its pieces are noted
//! ([`note`]), then their text is placed.

mod note;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::inodes::digest::FileDigest;
use crate::pack::jobs::{JobText, PackJob, Task};
use crate::plan::dedupe::parts::{Cut, Deduplication, NewText, OlderText, PartFinder};
use crate::plan::duplicates::Duplicates;
use crate::plan::file::{FilePlan, Storage, read_compat};
use crate::plan::fragments::FragmentStream;
use crate::plan::method_selection;
use crate::plan::packed_window::{Candidate, PackedWindow, Window, WindowEnd};
use crate::plan::pieces::COPY_LEN;
use crate::plan::survey::Survey;
use crate::plan::text::TextSource;
use crate::read::{Piece, ReadRequest, Role, Unread};
use kiln_digest::contents::ContentDigest;

/// Text of a segment in bytes; a piece may exceed it.
const SEGMENT_LEN: u64 = 8 << 20;

/// Decides how files are stored.
pub(crate) struct Planner<'a> {
    survey: &'a Survey,
    context: Context<'a>,
    /// The files, with the decisions so far.
    pub files: Vec<FilePlan>,
    /// Digests of contents that were read, by file.
    digests: HashMap<u32, ContentDigest>,
    /// Entropy in bits per byte of the pieces of long files that begin with random text: their sum, and the number of
    /// pieces.
    entropies: HashMap<u32, (f64, u32)>,
    duplicates: Duplicates,
    /// The file of several pieces that is being read.
    long: Option<LongFile>,
    packed: PackedWindow,
    /// Texts of windows. Their memory is used again when no job has them any more.
    window_texts: Vec<Arc<Vec<u8>>>,
    parts: Option<PartFinder<'a>>,
    /// Pieces of the segment, with the request of each.
    segment: Vec<(ReadRequest, Result<Piece, Unread>)>,
    segment_len: u64,
    /// The files that have an order of their own are decided about.
    is_rest: bool,
    /// Bytes of text that were read.
    read_bytes: u64,
}

/// A file of several pieces that is being read.
struct LongFile {
    file: u32,
    /// An earlier file that has been equal so far: nothing of this one is stored.
    twin: Option<u32>,
    /// Pieces that were not stored because of that, without text.
    dropped: Vec<Piece>,
    /// Number of pieces so far.
    count: usize,
    digest: Option<FileDigest>,
}

/// Something that is stored of a segment, in order.
enum Item {
    Job(PackJob),
    /// Text that takes part in deduplication: the job for all of it.
    Portion(PackJob),
}

/// All decisions.
pub(crate) struct Decided {
    /// The files.
    pub files: Vec<FilePlan>,
    /// Entropy in bits per byte of long files in which random text was seen.
    pub entropies: HashMap<u32, f64>,
    /// Digests of contents that were read, by file.
    pub digests: HashMap<u32, ContentDigest>,
    /// The packed stream.
    pub fragments: FragmentStream,
    /// Parts of files that are stored once, if they are looked for.
    pub parts: Option<Deduplication>,
    /// Bytes of text that were read from the source.
    pub read_bytes: u64,
}

impl<'a> Planner<'a> {
    /// Creates a planner of the files of a survey.
    pub(crate) fn new(survey: &'a Survey, context: Context<'a>) -> Self {
        let format = context.format;
        let has_order = (1..survey.files.len() as u32).contains(&survey.ordered_count);
        Self {
            survey,
            context,
            files: survey.files.clone(),
            digests: HashMap::new(),
            entropies: HashMap::new(),
            duplicates: Duplicates::default(),
            long: None,
            packed: PackedWindow::new(survey.reused.packed.len(), format.block_bits),
            window_texts: Vec::new(),
            parts: format.dedupes_parts().then(|| PartFinder::new(format, has_order)),
            segment: Vec::new(),
            segment_len: 0,
            is_rest: survey.ordered_count == 0,
            read_bytes: 0,
        }
    }

    /// Adds a file of a stream. Its pieces follow.
    pub(crate) fn add_file(&mut self, file: FilePlan) {
        self.files.push(file);
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, request: ReadRequest, piece: Result<Piece, Unread>) {
        self.segment_len += request.range.end - request.range.start;
        self.read_bytes += piece.as_ref().map_or(0, |piece| piece.text.len() as u64);
        self.segment.push((request, piece));
    }

    /// Returns true if the segment is to be decided before another piece is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.segment_len >= SEGMENT_LEN
    }

    /// Returns true if `file` is the first one that has no order of its own.
    pub(crate) fn begins_rest(&self, file: u32) -> bool {
        !self.is_rest && file >= self.survey.ordered_count
    }

    /// Returns true if files without an order of their own are decided about.
    pub(crate) fn has_rest(&self) -> bool {
        self.is_rest
    }

    /// Decides about the segment, and returns what is to be stored of it, in order. With an `end`, that includes the
    /// files that wait for the packed stream.
    ///
    /// # Errors
    /// A file that differs from its stored digest, unless the build keeps going; older text that cannot be read; a
    /// codec that fails; block sizes that the compact index cannot have.
    pub(crate) fn decide(
        &mut self,
        end: Option<WindowEnd>,
        older: &mut dyn OlderText,
    ) -> Result<Vec<PackJob>, BuildError> {
        self.segment_len = 0;
        let mut pieces = Vec::new();
        for (request, piece) in std::mem::take(&mut self.segment) {
            self.note(request, piece, &mut pieces, older)?;
        }
        // Text that was read of a file before it failed.
        pieces.retain(|piece: &Piece| self.files[piece.request.file as usize].storage != Storage::LeftOut);
        method_selection::choose(&mut self.files, &pieces, self.survey.is_stream, self.context)?;
        let mut items = Vec::new();
        for piece in pieces {
            self.place(piece, &mut items, older)?;
        }
        let Some(end) = end else { return Ok(self.jobs(items)) };
        self.push_window(end, &mut items, older)?;
        let jobs = self.jobs(items);
        if let Some(parts) = self.parts.as_mut().filter(|_| !self.is_rest) {
            parts.end_order();
        }
        self.is_rest = true;
        Ok(jobs)
    }

    /// Returns all decisions.
    pub(crate) fn finish(self) -> Decided {
        let entropies = self.entropies.into_iter().map(|(file, (sum, count))| (file, sum / f64::from(count))).collect();
        Decided {
            entropies,
            read_bytes: self.read_bytes,
            files: self.files,
            digests: self.digests,
            fragments: self.packed.into_stream(),
            parts: self.parts.map(PartFinder::finish),
        }
    }

    /// Decides where the text of a piece goes.
    fn place(&mut self, piece: Piece, items: &mut Vec<Item>, older: &mut dyn OlderText) -> Result<(), BuildError> {
        let Piece { request, text, head, chunks, .. } = piece;
        let (idx, range) = (request.file, request.range);
        let file = &mut self.files[idx as usize];
        let is_compressed = matches!(file.storage, Storage::Compressed { .. });
        let mut is_long = file.storage == Storage::Fragment;
        let is_packed = is_compressed && file.compression == self.context.format.compression.spec;
        let is_whole = range == (0..file.len);
        match head.filter(|_| is_packed) {
            Some(head) if is_whole => {
                file.storage = Storage::Fragment;
                self.packed.push(Candidate { file: idx, len: file.len, head, text, chunks });
                return self.push_full_window(items, older);
            }
            Some(_) => {
                (file.storage, is_long) = (Storage::Fragment, true);
                let len = file.len;
                // Those before it are sorted among themselves.
                self.push_window(WindowEnd::Open, items, older)?;
                self.packed.begin_long(idx, len);
            }
            None => {}
        }
        if is_long {
            self.packed.push_piece(range.end - range.start, &text, &chunks);
            return self.push_full_window(items, older);
        }
        if range.is_empty() {
            return Ok(());
        }
        let file = &self.files[idx as usize];
        let compat = read_compat(file.compression);
        let job = self.job(idx, range.clone(), request.role, Arc::clone(&text));
        let run = request.run;
        match &mut self.parts {
            Some(parts) if is_compressed && !chunks.is_empty() && parts.takes(run.end - run.start) => {
                let (begins_stream, ends_stream) = (range.start == run.start, range.end == run.end);
                let source = TextSource::File(idx);
                let new = NewText { source, range, text, chunks, compat, begins_stream, ends_stream };
                parts.push(new, (older, self.packed.stream()))?;
                items.push(Item::Portion(PackJob { ends_stream, ..job }));
            }
            _ => items.push(Item::Job(job)),
        }
        Ok(())
    }

    /// Closes the window of the packed stream if it is full.
    fn push_full_window(&mut self, items: &mut Vec<Item>, older: &mut dyn OlderText) -> Result<(), BuildError> {
        match self.packed.is_full() {
            true => self.push_window(WindowEnd::Open, items, older),
            false => Ok(()),
        }
    }

    /// Closes the window of the packed stream.
    fn push_window(
        &mut self,
        end: WindowEnd,
        items: &mut Vec<Item>,
        older: &mut dyn OlderText,
    ) -> Result<(), BuildError> {
        let buffer = self.spare_text();
        let Some(Window { range, text, chunks }) = self.packed.close(!self.is_rest, end, buffer)? else {
            return Ok(());
        };
        let (source, text, spec) = (TextSource::Fragments, Arc::new(text), self.context.format.packing.spec);
        self.window_texts.push(Arc::clone(&text));
        let job = PackJob::segment(source, range.clone(), spec, JobText::all(Arc::clone(&text)));
        match &mut self.parts {
            Some(parts) if parts.takes(range.end - range.start) && !chunks.is_empty() => {
                let compat = read_compat(self.context.format.compression.spec);
                let (begins_stream, ends_stream) = (true, true);
                let new = NewText { source, range, text, chunks, compat, begins_stream, ends_stream };
                parts.push(new, (older, self.packed.stream()))?;
                items.push(Item::Portion(job));
            }
            _ => items.push(Item::Job(job)),
        }
        Ok(())
    }

    /// Returns the memory of a window's text that no job has any more, if there is one.
    fn spare_text(&mut self) -> Vec<u8> {
        let spare = self.window_texts.iter().position(|text| Arc::strong_count(text) == 1);
        let text = spare.and_then(|at| Arc::into_inner(self.window_texts.swap_remove(at))).unwrap_or_default();
        // No more than one beside those that jobs have.
        let mut is_first = true;
        self.window_texts.retain(|text| Arc::strong_count(text) > 1 || std::mem::take(&mut is_first));
        text
    }

    /// Returns the job that stores all of a piece.
    fn job(&self, idx: u32, range: Range<u64>, role: Role, text: Arc<Vec<u8>>) -> PackJob {
        let format = self.context.format;
        let file = &self.files[idx as usize];
        let (len, inode_len) = (file.len, file.inode_len as usize);
        let job = PackJob::segment(TextSource::File(idx), range.clone(), file.compression, JobText::all(text));
        let is_whole = range == (0..len);
        let whole = |compress| Task::Whole { compress, inode_len };
        match (role, file.storage) {
            (Role::Tail, _) => PackJob { task: Task::Tail, ..job },
            (Role::Gap { ends_stream }, _) => PackJob { ends_stream, ..job },
            (_, Storage::Chunks { chunk_bits: bits, .. }) => {
                let compared = format.layout.chunk_bits == Some(bits) && 1 << bits <= COPY_LEN;
                let task = if compared { Task::Chunks(bits) } else { Task::Copy };
                PackJob { task, chunk_bits: Some(bits), ..job }
            }
            (_, Storage::Compressed { sparse: false }) if is_whole => {
                let packs_end = format.packing.ends && file.compression == format.compression.spec;
                PackJob { task: whole(true), packs_end, ..job }
            }
            (_, Storage::Flat) if is_whole => PackJob { task: whole(false), ..job },
            (_, Storage::Flat) => {
                let tail = format.inline_tail_len(len, inode_len) as u64;
                let task = if tail > 0 && range.start == len - tail { Task::Tail } else { Task::Copy };
                PackJob { task, ..job }
            }
            _ => job,
        }
    }

    /// Returns the jobs for a segment, now that it is known where its text is cut.
    fn jobs(&mut self, items: Vec<Item>) -> Vec<PackJob> {
        let mut cuts: VecDeque<Cut> = self.parts.as_mut().map(PartFinder::finish_segment).unwrap_or_default().into();
        let mut jobs = Vec::new();
        for item in items {
            let job = match item {
                Item::Job(job) => {
                    jobs.push(job);
                    continue;
                }
                Item::Portion(job) => job,
            };
            match cuts.pop_front() {
                None | Some(Cut::Whole) => jobs.push(job),
                Some(Cut::Parts(parts)) => jobs.extend(parts.into_iter().map(|(range, ends_stream)| {
                    let text = job.text.part(range.start - job.range.start..range.end - job.range.start);
                    PackJob { ends_stream, ..PackJob::segment(job.stream, range, job.spec, text) }
                })),
            }
        }
        jobs
    }
}
