//! Pieces in which a file is read: each is stored by one job, and its bounds depend on nothing but the file's length,
//! holes and storage.

use std::ops::Range;

use crate::context::Context;
use crate::format::Format;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::hole;
use crate::plan::previous;
use crate::plan::survey::Survey;
use crate::plan::text::segment_len;
use crate::read::{Hashes, ReadRequest, Role, Wanted};
use kiln_tree::{Kind, Version};

/// Bytes of an uncompressed file that are copied at a time.
pub(crate) const COPY_LEN: u64 = 4 << 20;

/// Facts about a file that decide how it is read, beside its plan.
#[derive(Clone, Copy)]
pub(crate) struct FileFacts<'a> {
    /// Its holes, as it is to be stored.
    pub holes: &'a [Range<u64>],
    /// Ranges to be stored of a file that is partly reused.
    pub gaps: Option<&'a [Range<u64>]>,
    /// It may have holes that are stored as zeros.
    pub may_be_sparse: bool,
    /// It may equal another file.
    pub has_peers: bool,
    /// Functions by which it is hashed.
    pub hashes: Hashes,
    /// Only first bytes are wanted, and digests that find equal files.
    pub is_estimate: bool,
}

/// Returns what is to be read of each file, in the order in which it is stored.
pub(crate) fn requests<'a>(
    survey: &'a Survey,
    context: Context<'a>,
    is_estimate: bool,
) -> impl Iterator<Item = impl Iterator<Item = ReadRequest> + Send + use<'a>> + Send + 'a {
    let Context { tree, format, .. } = context;
    (0..).zip(&survey.files).map(move |(idx, file)| {
        let facts = FileFacts {
            holes: survey.holes(idx),
            gaps: survey.gaps.get(&idx).map(|gaps| &gaps[..]),
            may_be_sparse: matches!(tree.node(file.node).kind, Kind::File { sparse: true, .. }),
            has_peers: survey.has_peers(file),
            // Estimates do not read all of it.
            hashes: if is_estimate { Hashes::default() } else { survey.hashes(file, tree) },
            is_estimate,
        };
        of_file(idx, file, facts, format)
    })
}

/// Returns what is to be read of a file. The length of a file of an image or archive may be anything, so its pieces are
/// found as they are asked for.
pub(crate) fn of_file<'a>(
    idx: u32,
    file: &FilePlan,
    facts: FileFacts<'a>,
    format: &'a Format,
) -> impl Iterator<Item = ReadRequest> + Send + use<'a> {
    let mut ranges = ranges(file, facts, format).peekable();
    let is_whole = ranges.peek().is_some_and(|(range, ..)| *range == (0..file.len));
    let wanted = wanted(file, facts, is_whole, format);
    // Bytes beside the inode of a reused file come from that file.
    let is_reused = matches!(file.storage, Storage::Reused { .. }) && facts.gaps.is_none();
    let (node, version) = (file.node, if is_reused { Version::Reused } else { Version::Scanned });
    ranges.map(move |(range, run, role)| {
        let wanted = match role {
            Role::Data { is_first, .. } => Wanted { head: wanted.head && is_first, ..wanted },
            Role::Gap { .. } | Role::Tail => Wanted::default(),
        };
        ReadRequest { file: idx, node, range, run, version, role, wanted }
    })
}

/// Returns the facts that decisions on a file need.
fn wanted(file: &FilePlan, facts: FileFacts<'_>, is_whole: bool, format: &Format) -> Wanted {
    let is_compressed = matches!(file.storage, Storage::Compressed { .. });
    let packs = is_compressed && file.compression == format.compression.spec;
    let head = !facts.may_be_sparse && packs && file.len <= format.packing.max_len;
    let data_len = file.len - hole::total(facts.holes);
    Wanted {
        digest: facts.has_peers,
        hashes: facts.hashes,
        is_whole,
        head,
        chunks: format.dedupes_parts() && is_compressed && (head || data_len >= format.min_match()),
        entropy: is_compressed && !is_whole,
        is_estimate: facts.is_estimate,
    }
}

/// Ranges to be read.
type Ranges<'a> = Box<dyn Iterator<Item = Range<u64>> + Send + 'a>;

/// Returns the ranges of a file to be read, in order, each with the stretch between holes that has it. A file that is
/// all holes has an empty one, so that it is known to have been read.
fn ranges<'a>(
    file: &FilePlan,
    facts: FileFacts<'a>,
    format: &'a Format,
) -> Box<dyn Iterator<Item = (Range<u64>, Range<u64>, Role)> + Send + 'a> {
    let (len, holes) = (file.len, facts.holes);
    let segment = file.compression.map_or(COPY_LEN, |spec| segment_len(spec.pcluster_len));
    let data: Ranges<'a> = match file.storage {
        Storage::Reused { tail_len, .. } => {
            let gaps = facts.gaps.unwrap_or_default().iter();
            let parts = gaps.flat_map(move |gap| previous::parts(gap, len, segment, format.block_bits));
            let between = parts.map(|(range, ends_stream)| (range, Role::Gap { ends_stream }));
            let tail = (tail_len > 0).then(|| (len - u64::from(tail_len)..len, Role::Tail));
            return Box::new(between.chain(tail).map(|(range, role)| (range.clone(), range, role)));
        }
        Storage::LeftOut | Storage::Empty | Storage::Duplicate(_) | Storage::Fragment | Storage::Placed { .. } => {
            return Box::new(std::iter::empty());
        }
        Storage::Flat if len <= COPY_LEN => Box::new(std::iter::once(0..len)),
        Storage::Flat => {
            let tail = format.inline_tail_len(len, file.inode_len as usize) as u64;
            Box::new(steps(0..len - tail, COPY_LEN).chain((tail > 0).then(|| len - tail..len)))
        }
        Storage::Chunks { chunk_bits: bits, .. } => {
            let runs = hole::stored_chunks(len, holes, bits).into_iter();
            let runs = runs.map(move |run| run.start << bits..(run.end << bits).min(len));
            Box::new(runs.flat_map(|run| steps(run, COPY_LEN)))
        }
        Storage::Compressed { .. } if holes.is_empty() && len <= segment => Box::new(std::iter::once(0..len)),
        Storage::Compressed { .. } => Box::new(hole::data_runs(len, holes).flat_map(move |run| steps(run, segment))),
    };
    let mut data = data.peekable();
    let nothing = if data.peek().is_none() { Some(0..0) } else { None };
    let mut data = data.chain(nothing).peekable();
    // Both are in order.
    let (mut runs, mut is_first) = (hole::data_runs(len, holes).peekable(), true);
    Box::new(std::iter::from_fn(move || {
        let range = data.next()?;
        while runs.next_if(|run| run.end <= range.start).is_some() {}
        let run = runs.peek().filter(|run| run.contains(&range.start)).cloned();
        let role = Role::Data { is_first: std::mem::take(&mut is_first), is_last: data.peek().is_none() };
        Some((range.clone(), run.unwrap_or(range), role))
    }))
}

/// Returns `range` cut at multiples of `step`.
pub(crate) fn steps(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> + Send + use<> {
    let Range { start, end } = range;
    (start / step..end.div_ceil(step)).map(move |n| (n * step).max(start)..((n + 1) * step).min(end))
}
