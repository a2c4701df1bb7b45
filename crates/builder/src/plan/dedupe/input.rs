//! Parts of files that occur several times: found in plain text, before anything is compressed.
//!
//! The *streams* of an image are the runs of data between the holes of its compressed files, in plan order, and the
//! packed stream. Their chunks indicate equal text. This module decides which text is a reference to earlier text,
//! and where that text is cut so that a reference can name it.

use kiln_codec::{Spec, probe};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::context::Context;
use crate::error::BuildError;
use crate::format::Format;
use crate::plan::analysis::{ANALYSIS_COST, chunks_of};
use crate::plan::dedupe::chunker::{ChunkSizes, Chunker, WINDOW_LEN};
use crate::plan::dedupe::matching::{Chunk, MatchStats, Matcher, Place, Runs, Text};
use crate::plan::dedupe::revalidation::{CheckedRange, ContentChecks};
use crate::plan::dedupe::split_points::{self, IndexRules, PartPlan, Ref, StoredPart};
use crate::plan::file::read_compat;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::fragments::FragmentStream;
use crate::plan::hole::{self, Holes};
use crate::plan::text::{TextSource, segment_len};
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Content, Tree};

/// Bytes of a match that are compressed to estimate its worth.
const SAMPLE_LEN: u64 = 64 << 10;
/// Bytes that an lcluster takes more in the full index than in the compact one, by the measure of
/// [`probe::estimated_len`].
const FULL_INDEX_COST: u64 = 10;
/// Files that are kept open for comparisons.
const OPEN_MAX: usize = 8;

/// A stream: some bytes of a file, or all of the packed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextRun {
    /// Source of its text.
    pub stream: TextSource,
    /// Its first byte there.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Only streams of the same group share text: they are read alike.
    pub group: u32,
}

/// Chunks of files that were analysed as a whole: most such files are one chunk.
#[derive(Default)]
pub(crate) struct FileChunks {
    /// In plan order, each with its file.
    chunks: Vec<(u32, Chunk)>,
}

impl Extend<(u32, Box<[Chunk]>)> for FileChunks {
    /// Adds files that follow all before them in plan order.
    fn extend<I: IntoIterator<Item = (u32, Box<[Chunk]>)>>(&mut self, files: I) {
        for (file, chunks) in files {
            self.chunks.extend(chunks.iter().map(|chunk| (file, *chunk)));
        }
    }
}

impl FileChunks {
    /// Returns the chunks of a file, if it was analysed as a whole.
    fn get(&self, file: u32) -> Option<Box<[Chunk]>> {
        let first = self.chunks.partition_point(|(before, _)| *before < file);
        let chunks = self.chunks[first..].iter().take_while(|(of, _)| *of == file);
        let chunks: Box<[Chunk]> = chunks.map(|(_, chunk)| *chunk).collect();
        (!chunks.is_empty()).then_some(chunks)
    }
}

/// Compressed data, in which parts that occur several times are searched.
#[derive(Clone, Copy)]
pub(crate) struct Compressed<'a> {
    /// Regular files, in plan order.
    pub files: &'a [FilePlan],
    /// Holes of the files that have some.
    pub holes: &'a HashMap<u32, Holes>,
    /// Files that share nothing with others.
    pub apart: &'a BTreeSet<u32>,
    /// Small files that are compressed together.
    pub fragments: &'a FragmentStream,
}

/// All streams, and their stored parts.
pub(crate) struct Deduplication {
    /// By number.
    pub sources: Vec<TextRun>,
    /// Stored parts, and the references to them.
    pub plan: PartPlan,
    /// Limits on extents from the maps of files.
    pub rules: IndexRules,
    /// Counts of matches.
    pub stats: MatchStats,
    numbers: HashMap<TextSource, Range<u32>>,
    /// Flag by number: it has, or is, the source of a reference.
    shared: Vec<bool>,
}

impl Deduplication {
    /// Finds parts that occur several times in `stored`. `chunks` are those of files that have been analysed as a
    /// whole. Also returns the checked text of files that have references, or are referred to.
    ///
    /// # Errors
    /// A file that cannot be read; an interruption.
    pub(crate) fn plan(
        stored: &Compressed<'_>,
        chunks: FileChunks,
        context: Context<'_>,
    ) -> Result<(Self, ContentChecks), BuildError> {
        let Context { tree, format, .. } = context;
        let fragments = stored.fragments;
        let sources = sources(stored, format);
        let text = || PlainText::new(stored, &sources, tree, format);
        let (runs, stats, mut checks) = matched(&sources, fragments, &chunks, text, context)?;
        let rules = rules(format);
        let parts = split_points::plan_parts(&runs, rules);
        let mut numbers = HashMap::<TextSource, Range<u32>>::new();
        for (number, source) in (0..).zip(&sources) {
            numbers.entry(source.stream).or_insert(number..number).end = number + 1;
        }
        let mut shared = vec![false; sources.len()];
        for one in &parts.refs {
            shared[one.target.stream as usize] = true;
            shared[one.source.stream as usize] = true;
        }
        let streams = Self { sources, plan: parts, rules, stats, numbers, shared };
        let refs = streams.plan.refs.iter();
        let files = refs.flat_map(|one| [one.source, one.target].map(|place| streams.files(place, one.len, fragments)));
        let files: HashSet<u32> = files.flatten().collect();
        for &file in &files {
            if let Some(known) = chunks.get(file) {
                checks.push(file, 0, cells(&known));
            }
        }
        Ok((streams, checks.of_files(&files)))
    }

    /// Returns the files that have `len` bytes of a stream.
    fn files(&self, place: Place, len: u64, fragments: &FragmentStream) -> Vec<u32> {
        match self.locate(place) {
            (TextSource::File(file), _) => vec![file],
            (TextSource::Fragments, off) => fragments.pieces(off..off + len).map(|(file, _)| file).collect(),
        }
    }

    /// Returns the numbers of the streams that a file or the packed stream has, if it takes part.
    fn numbers(&self, stream: TextSource) -> Option<Range<u32>> {
        self.numbers.get(&stream).cloned()
    }

    /// Returns the stored parts of a file or of the packed stream, if it takes part.
    pub(crate) fn parts(&self, stream: TextSource) -> Option<&[StoredPart]> {
        let numbers = self.numbers(stream)?;
        let parts = &self.plan.parts;
        let at = |number| parts.partition_point(|part| part.stream < number);
        Some(&parts[at(numbers.start)..at(numbers.end)])
    }

    /// Returns whether a file has bytes of others, or others have bytes of it.
    pub(crate) fn is_shared(&self, stream: TextSource) -> bool {
        self.numbers(stream).is_some_and(|mut numbers| numbers.any(|number| self.shared[number as usize]))
    }

    /// Returns the source of a place in a stream: file or packed stream, and offset.
    pub(crate) fn locate(&self, place: Place) -> (TextSource, u64) {
        let source = &self.sources[place.stream as usize];
        (source.stream, source.start + place.off)
    }

    /// Returns whether a Ref ends its stream.
    pub(crate) fn ends_stream(&self, one: &Ref) -> bool {
        one.target.off + one.len == self.sources[one.target.stream as usize].len
    }
}

/// Returns the cells that chunks are.
fn cells(chunks: &[Chunk]) -> impl Iterator<Item = CheckedRange> {
    chunks.iter().map(|chunk| CheckedRange::new(chunk.len, chunk.hash.low()))
}

/// Matches all streams, each against those before it. A stream whose references would save less than its longer
/// index costs has none. Checked text is returned only for files that `chunks` does not have.
fn matched<'a>(
    sources: &'a [TextRun],
    fragments: &'a FragmentStream,
    chunks: &FileChunks,
    new_text: impl Fn() -> PlainText<'a> + Sync,
    context: Context<'_>,
) -> Result<(Runs, MatchStats, ContentChecks), BuildError> {
    let Context { format, control, .. } = context;
    let (mut text, mut savings) = (new_text(), vec![0; sources.len()]);
    let mut matcher = Matcher::new(format.min_match(), format.work.index_budget());
    let jobs = sources.iter().enumerate().flat_map(|(number, source)| windows(number, source, fragments));
    let jobs = jobs.map(|mut window| {
        window.known = window.whole_file.and_then(|file| chunks.get(file));
        let cost = if window.known.is_some() { ANALYSIS_COST } else { window.range.end - window.range.start };
        Costed { job: window, cost }
    });
    let worker = || {
        let (mut chunker, mut reader, mut buf) = (Chunker::new(ChunkSizes::DEFAULT), new_text(), Vec::new());
        Ok(move |window: Window| {
            control.check()?;
            let Some(known) = window.known else {
                buf.resize((window.range.end - window.range.start) as usize, 0);
                reader.read(window.stream, window.range.start, &mut buf)?;
                reader.close_all()?;
                return Ok((window.stream, window.place, chunks_of(&mut chunker, &buf)));
            };
            Ok::<_, BuildError>((window.stream, None, known))
        })
    };
    let (mut current, mut checks) = (None, ContentChecks::default());
    ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(stream, place, chunks)| {
        if current != Some(stream) {
            if current.is_some() {
                matcher.end();
            }
            let source = &sources[stream as usize];
            matcher.begin(source.len, source.group);
            current = Some(stream);
        }
        if let Some((file, start)) = place {
            checks.push(file, start, cells(&chunks));
        }
        text.saved = 0;
        matcher.push(&chunks, &mut text)?;
        savings[stream as usize] += text.saved;
        Ok(())
    })?;
    if current.is_some() {
        matcher.end();
    }
    text.close_all()?;
    let (mut runs, stats) = matcher.finish();
    for ((number, source), saved) in (0..).zip(sources).zip(savings) {
        // A file with references has the full index, the packed inode with a million lclusters too.
        if !format.compression.encoded_extents && saved < format.block_bits.blocks_for(source.len) * FULL_INDEX_COST {
            runs.forget_refs(number);
        }
    }
    Ok((runs, stats, checks))
}

/// Returns the limits on extents from the maps of files.
fn rules(format: &Format) -> IndexRules {
    let longest = format.specs().map(|spec| spec.pcluster_len).max();
    let segment = segment_len(longest.unwrap_or(0));
    match format.compression.encoded_extents {
        true => IndexRules::encoded_extents(segment),
        false => IndexRules::lclusters(format.block_bits, segment),
    }
}

/// Returns all streams that are long enough to hold a match.
fn sources(stored: &Compressed<'_>, format: &Format) -> Vec<TextRun> {
    let min_match = format.min_match();
    // Packed files share text with those that are compressed as they would be alone, in whatever pclusters.
    let mut groups = vec![read_compat(format.compression.spec)];
    let mut group_of = |compression: Option<Spec>| {
        let group = groups.iter().position(|group| *group == read_compat(compression)).unwrap_or(groups.len());
        if group == groups.len() {
            groups.push(read_compat(compression));
        }
        group as u32
    };
    let mut sources = Vec::new();
    for (idx, file) in (0..).zip(stored.files) {
        if !matches!(file.storage, Storage::Compressed { .. }) || stored.apart.contains(&idx) {
            continue;
        }
        let holes = stored.holes.get(&idx).map_or(&[][..], |holes| holes);
        if file.len - hole::total(holes) >= min_match {
            let (stream, group) = (TextSource::File(idx), group_of(file.compression));
            let source = |run: Range<u64>| TextRun { stream, start: run.start, len: run.end - run.start, group };
            sources.extend(hole::data_runs(file.len, holes).map(source));
        }
    }
    let packed = stored.fragments.span();
    let len = packed.end - packed.start;
    if len >= min_match {
        sources.push(TextRun { stream: TextSource::Fragments, start: packed.start, len, group: 0 });
    }
    sources
}

/// Bytes of a stream that are cut into chunks on their own.
struct Window {
    stream: u32,
    range: Range<u64>,
    /// The file that it comes from, and its first byte there, unless it is padding.
    place: Option<(u32, u64)>,
    /// The file, if the window is all of it.
    whole_file: Option<u32>,
    known: Option<Box<[Chunk]>>,
}

/// Returns the windows of a stream: files of the packed stream, or equal lengths.
fn windows<'a>(
    number: usize,
    source: &'a TextRun,
    fragments: &'a FragmentStream,
) -> Box<dyn Iterator<Item = Window> + Send + 'a> {
    let stream = number as u32;
    match source.stream {
        TextSource::Fragments => Box::new(fragments.ranges().map(move |(whole_file, range)| {
            let place = whole_file.map(|file| (file, 0));
            let range = range.start - source.start..range.end - source.start;
            Window { stream, range, place, whole_file, known: None }
        })),
        TextSource::File(file) => {
            let whole_file = (source.start == 0 && source.len <= WINDOW_LEN).then_some(file);
            let window = move |start| {
                let range = start..source.len.min(start + WINDOW_LEN);
                let place = Some((file, source.start + start));
                Window { stream, range, place, whole_file, known: None }
            };
            let len = source.len;
            Box::new((0..len).step_by(WINDOW_LEN as usize).map(window))
        }
    }
}

/// Reads the plain text of streams; keeps some files open.
struct PlainText<'a> {
    tree: &'a Tree,
    files: &'a [FilePlan],
    fragments: &'a FragmentStream,
    sources: &'a [TextRun],
    /// Least estimated bytes for which text is cut.
    min_saving: u64,
    /// Estimated bytes of all text for which a cut was worth it.
    saved: u64,
    /// Most recently used last.
    open: Vec<(u32, Box<dyn Content>)>,
}

impl<'a> PlainText<'a> {
    fn new(stored: &Compressed<'a>, sources: &'a [TextRun], tree: &'a Tree, format: &Format) -> Self {
        let Compressed { files, fragments, .. } = *stored;
        Self { tree, files, fragments, sources, min_saving: format.min_saving(), saved: 0, open: Vec::new() }
    }

    fn read_file(&mut self, file: u32, off: u64, buf: &mut [u8]) -> Result<(), BuildError> {
        let node = self.files[file as usize].node;
        let content = match self.open.iter().position(|(open, _)| *open == file) {
            Some(idx) => self.open.remove(idx),
            None => {
                if self.open.len() == OPEN_MAX {
                    let oldest = self.open.remove(0);
                    self.close(oldest)?;
                }
                (file, self.tree.open(node)?)
            }
        };
        self.open.push(content);
        let (_, content) = self.open.last_mut().expect("just pushed");
        content.read_exact_at(buf, off).map_err(|source| BuildError::Read { path: self.tree.path(node), source })
    }

    fn close(&self, (file, mut content): (u32, Box<dyn Content>)) -> Result<(), BuildError> {
        let path = || self.tree.path(self.files[file as usize].node);
        content.verify_unchanged().map_err(|source| BuildError::Read { path: path(), source })
    }

    /// Closes all files, and checks that they have not changed.
    fn close_all(&mut self) -> Result<(), BuildError> {
        std::mem::take(&mut self.open).into_iter().try_for_each(|open| self.close(open))
    }
}

impl Text for PlainText<'_> {
    type Error = BuildError;

    fn read(&mut self, stream: u32, off: u64, buf: &mut [u8]) -> Result<(), BuildError> {
        let source = self.sources[stream as usize];
        match source.stream {
            TextSource::File(file) => self.read_file(file, source.start + off, buf),
            TextSource::Fragments => {
                let fragments = self.fragments;
                fragments.read(source.start + off, buf, |file, off, piece| self.read_file(file, off, piece))
            }
        }
    }

    /// Returns whether a reference pays: text that compresses well is worth less than the pclusters that are cut for
    /// it.
    fn gains(&mut self, place: Place, len: u64) -> Result<bool, BuildError> {
        let mut sample = vec![0; len.min(SAMPLE_LEN) as usize];
        self.read(place.stream, place.off, &mut sample)?;
        let saved = probe::estimated_len(&sample) as u64 * len / sample.len() as u64;
        let gains = saved >= self.min_saving;
        self.saved += if gains { saved } else { 0 };
        Ok(gains)
    }
}
