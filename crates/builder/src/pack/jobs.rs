//! Jobs of the workers: parts of files and of the packed stream, in plan order.

use kiln_codec::Spec;
use std::ops::Range;

use crate::format::Format;
use crate::plan::Plan;
use crate::plan::dedupe::input::Deduplication;
use crate::plan::dedupe::split_points::StoredPart;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::fragments::FragmentStream;
use crate::plan::hole;
use crate::plan::previous;
use crate::plan::text::{TextSource, segment_len};

/// Bytes of an uncompressed file that are copied at a time.
const COPY_LEN: u64 = 4 << 20;

/// Kind of a job.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A whole file of one part: compressed if that gains, else in chunks or flat, its tail inline if there is room.
    Whole {
        /// Try to compress.
        compress: bool,
        /// Bytes of the inode with its xattrs.
        inode_len: usize,
    },
    /// A part of a compressed stream.
    Segment,
    /// Blocks of an uncompressed file, as they are; the last is filled with zeros.
    Copy,
    /// Chunks of 2^n bytes, to be compared with others.
    Chunks(u8),
    /// The last bytes of an uncompressed file, to be inline.
    Tail,
}

/// A unit of work, which one worker reads and fills front to back.
///
/// Parts that start at block boundaries never share an lcluster with others; those that are cut where references begin
/// keep the rules of [`crate::cuts`]. So parts can be packed in parallel.
#[derive(Clone, Debug)]
pub(crate) struct PackJob {
    /// Source of the text.
    pub stream: TextSource,
    /// Range of the source.
    pub range: Range<u64>,
    /// Kind of work.
    pub task: Task,
    /// The next part, if any, starts at a block boundary: the last extent may have any length.
    pub ends_stream: bool,
}

/// Turn of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Newly stored data of files that have an order of their own.
    First,
    /// All other data.
    Rest,
}

/// Returns all jobs of a build.
pub(crate) fn jobs<'a>(plan: &'a Plan, format: &'a Format) -> impl Iterator<Item = PackJob> + Send + 'a {
    jobs_of(Turn::First, plan, format).chain(jobs_of(Turn::Rest, plan, format))
}

/// Returns the jobs of a turn: files in plan order, then the packed stream, so that its pclusters are contiguous.
pub(crate) fn jobs_of<'a>(turn: Turn, plan: &'a Plan, format: &'a Format) -> impl Iterator<Item = PackJob> + Send + 'a {
    let turn_of = |is_first| if is_first { Turn::First } else { Turn::Rest };
    let files = (0..).zip(&plan.files).filter(move |(idx, _)| turn_of(plan.is_first(*idx)) == turn);
    let files = files.flat_map(move |(idx, file)| {
        let stream = TextSource::File(idx);
        match &plan.parts {
            Some(parts) if parts.is_shared(stream) => stored_parts(parts, stream),
            _ => parts(stream, file, [plan.holes(idx), plan.gaps(idx)], format),
        }
    });
    let packed = match &plan.parts {
        Some(parts) if parts.is_shared(TextSource::Fragments) => stored_parts(parts, TextSource::Fragments),
        _ => {
            let step = plan.fragment_compression.map_or(COPY_LEN, |spec| segment_len(spec.pcluster_len));
            let segment =
                |range| PackJob { stream: TextSource::Fragments, range, task: Task::Segment, ends_stream: true };
            Box::new(steps(plan.reused_packed_len..plan.fragments_len, step).map(segment))
        }
    };
    let is_first = move |job: &PackJob| job.range.start < plan.ordered_fragments_end;
    files.chain(packed.filter(move |job| turn_of(is_first(job)) == turn))
}

/// Returns the jobs for ends of files, which continue the packed stream.
pub(crate) fn ends(stream: &FragmentStream, spec: Spec) -> impl Iterator<Item = PackJob> + Send + use<> {
    let segment = |range| PackJob { stream: TextSource::Fragments, range, task: Task::Segment, ends_stream: true };
    steps(stream.span(), segment_len(spec.pcluster_len)).map(segment)
}

/// Returns the stored parts of a file or of the packed stream that has references, or is referred to.
fn stored_parts(streams: &Deduplication, stream: TextSource) -> Box<dyn Iterator<Item = PackJob> + Send + '_> {
    let part = move |part: &StoredPart| {
        let start = streams.sources[part.stream as usize].start;
        let range = start + part.range.start..start + part.range.end;
        PackJob { stream, range, task: Task::Segment, ends_stream: part.ends_stream }
    };
    Box::new(streams.parts(stream).unwrap_or_default().iter().map(part))
}

/// Returns `range` cut at multiples of `step`.
fn steps(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    (start / step..end.div_ceil(step)).map(move |n| (n * step).max(start)..((n + 1) * step).min(end))
}

/// Returns the parts of a file, in order.
fn parts<'a>(
    stream: TextSource,
    plan: &FilePlan,
    [holes, gaps]: [&[Range<u64>]; 2],
    format: &Format,
) -> Box<dyn Iterator<Item = PackJob> + Send + 'a> {
    let (len, inode_len) = (plan.len, plan.inode_len as usize);
    let part = move |range, task| PackJob { stream, range, task, ends_stream: true };
    let whole = |compress| Box::new(std::iter::once(part(0..len, Task::Whole { compress, inode_len })));
    match plan.storage {
        // Reused data is not read, except tails beside inodes.
        Storage::Reused { tail_len, .. } => {
            let tail = len - u64::from(tail_len);
            let read = (tail_len > 0).then(|| part(tail..len, Task::Tail));
            let segment = plan.compression.map_or(COPY_LEN, |spec| segment_len(spec.pcluster_len));
            let between: Vec<_> =
                gaps.iter().flat_map(|gap| previous::parts(gap, len, segment, format.block_bits)).collect();
            let between = between
                .into_iter()
                .map(move |(range, ends_stream)| PackJob { ends_stream, ..part(range, Task::Segment) });
            Box::new(between.chain(read))
        }
        Storage::LeftOut | Storage::Empty | Storage::Duplicate(_) | Storage::Fragment | Storage::Placed { .. } => {
            Box::new(std::iter::empty())
        }
        Storage::Flat if len <= COPY_LEN => whole(false),
        Storage::Flat => {
            let tail = format.inline_tail_len(len, inode_len) as u64;
            let copies = steps(0..len - tail, COPY_LEN).map(move |range| part(range, Task::Copy));
            Box::new(copies.chain((tail > 0).then(|| part(len - tail..len, Task::Tail))))
        }
        Storage::Chunks { chunk_bits: bits, .. } => {
            let runs = hole::stored_chunks(len, holes, bits);
            let compared = format.layout.chunk_bits == Some(bits) && 1 << bits <= COPY_LEN;
            let task = if compared { Task::Chunks(bits) } else { Task::Copy };
            let ranges = runs.into_iter().map(move |run| run.start << bits..(run.end << bits).min(len));
            Box::new(ranges.flat_map(|range| steps(range, COPY_LEN)).map(move |range| part(range, task.clone())))
        }
        Storage::Compressed { .. } => {
            let segment = plan.compression.map_or(COPY_LEN, |spec| segment_len(spec.pcluster_len));
            if holes.is_empty() && len <= segment {
                return whole(true);
            }
            let runs: Vec<_> = hole::data_runs(len, holes).collect();
            Box::new(runs.into_iter().flat_map(move |run| steps(run, segment)).map(move |r| part(r, Task::Segment)))
        }
    }
}
