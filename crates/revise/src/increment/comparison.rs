//! Comparison of contents, for files whose metadata is not conclusive.

use kiln_parallel::ordered::{self, Costed};
use kiln_source::{ScanOptions, SourceError};
use kiln_tree::{Content, ContentError, ContentId, Kind, NodeId, PreviousVersion, ReusedData, Stored, Tree};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pairs::Doubt;

/// Length in bytes of a read. It is long enough that decoding a pcluster twice at its ends costs
/// little.
const STEP: u64 = 1 << 20;
/// Length in bytes of a job. Long files are compared on several threads.
const PIECE: u64 = 4 * STEP;
/// Maximum number of jobs that may wait for an earlier one.
const BACKLOG: u64 = 1024;
/// Differences closer than this number of bytes are merged. Few stored extents have less text.
const NEAR: u64 = 4096;

/// Result of a comparison.
#[derive(Default)]
pub(super) struct Compared {
    /// Equal contents: id in the new tree, and id in the old one.
    pub(super) equal: Vec<(u32, ContentId)>,
    /// Differences of contents of the new tree from those of the old one, if the data of the old
    /// one can be reused in parts.
    pub(super) differences: Differences,
}

/// Differing ranges in bytes, in order, by content ids of the new and of the old tree. A file with
/// several names may have several previous versions.
pub(super) type Differences = HashMap<(u32, ContentId), Vec<Range<u64>>>;

/// Requested result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareGoal {
    /// Equality only: each comparison ends at the first difference.
    Equality,
    /// Differences of long files, too.
    Differences,
}

/// A comparison of two files, in pieces.
struct Comparison {
    doubt: Doubt,
    /// True if the positions of differences are needed.
    has_parts: bool,
    differs: AtomicBool,
}

/// A range of a comparison.
struct ComparedPiece<'a> {
    at: usize,
    comparison: &'a Comparison,
    range: Range<u64>,
}

/// Two open files that are being compared.
struct OpenPair {
    at: usize,
    new: Box<dyn Content>,
    old: Box<dyn Content>,
}

/// Compares the files in doubt on all threads. Unreadable files count as different: reading them
/// again will report the error.
///
/// # Errors
/// [`SourceError::Interrupted`].
pub(super) fn compare(
    trees: [&Tree; 2],
    in_doubt: Vec<Doubt>,
    wanted: CompareGoal,
    options: &ScanOptions<'_>,
) -> Result<Compared, SourceError> {
    let begin = |doubt: Doubt| {
        let is_long = doubt.len >= PreviousVersion::MIN_LEN && wanted == CompareGoal::Differences;
        let has_parts = is_long && matches!(trees[1].stored(doubt.old), Ok(Stored::Reused(ReusedData::Extents(_))));
        Comparison { doubt, has_parts, differs: AtomicBool::new(false) }
    };
    let comparisons: Vec<Comparison> = in_doubt.into_iter().map(begin).collect();
    let pieces = comparisons.iter().enumerate().flat_map(|(at, comparison)| {
        let len = comparison.doubt.len;
        let range = move |start: u64| start..len.min(start + PIECE);
        (0..len).step_by(PIECE as usize).map(move |start| ComparedPiece { at, comparison, range: range(start) })
    });
    let worker = || {
        let mut bufs = [Vec::new(), Vec::new()];
        // The most recent pair stays open for the next piece, which usually is of the same file.
        let mut open: Option<OpenPair> = None;
        Ok(move |piece: ComparedPiece<'_>| {
            options.check_stop()?;
            let comparison = piece.comparison;
            if !comparison.has_parts && comparison.differs.load(Ordering::Relaxed) {
                return Ok::<_, SourceError>((piece.at, vec![piece.range]));
            }
            if open.as_ref().is_none_or(|last| last.at != piece.at) {
                open = open_pair(trees, piece.at, comparison.doubt);
            }
            let found =
                open.as_mut().map(|pair| differences(pair, piece.range.clone(), comparison.has_parts, &mut bufs));
            let found = match found {
                Some(Ok(found)) => found,
                _ => vec![piece.range],
            };
            if !found.is_empty() {
                comparison.differs.store(true, Ordering::Relaxed);
            }
            Ok((piece.at, found))
        })
    };
    let jobs = pieces.map(|job| Costed { job, cost: 1 });
    let mut found: Vec<Vec<Range<u64>>> = comparisons.iter().map(|_| Vec::new()).collect();
    ordered::run(options.threads, BACKLOG, jobs, worker, |(at, differences)| {
        differences.into_iter().for_each(|range| push(&mut found[at], range));
        Ok(())
    })?;
    let mut compared = Compared::default();
    for (Comparison { doubt, has_parts, .. }, differences) in comparisons.into_iter().zip(found) {
        let [Some(new), Some(old)] = [content(trees[0], doubt.new), content(trees[1], doubt.old)] else { continue };
        match differences.is_empty() {
            true => compared.equal.push((new.0, old)),
            false if has_parts => drop(compared.differences.insert((new.0, old), differences)),
            false => {}
        }
    }
    Ok(compared)
}

fn open_pair([new, old]: [&Tree; 2], at: usize, doubt: Doubt) -> Option<OpenPair> {
    Some(OpenPair { at, new: new.open(doubt.new).ok()?, old: old.open(doubt.old).ok()? })
}

fn content(tree: &Tree, node: NodeId) -> Option<ContentId> {
    match tree.node(node).kind {
        Kind::File { content, .. } => Some(content),
        _ => None,
    }
}

/// Returns the differences of two files within `range`: only the first one unless `all` is true.
fn differences(
    pair: &mut OpenPair,
    range: Range<u64>,
    all: bool,
    [one, two]: &mut [Vec<u8>; 2],
) -> Result<Vec<Range<u64>>, ContentError> {
    let mut found = Vec::new();
    for off in range.clone().step_by(STEP as usize) {
        let len = STEP.min(range.end - off) as usize;
        one.resize(len, 0);
        two.resize(len, 0);
        pair.new.read_exact_at(one, off)?;
        pair.old.read_exact_at(two, off)?;
        if one != two {
            differing(one, two).for_each(|part| push(&mut found, off + part.start..off + part.end));
            if !all {
                break;
            }
        }
    }
    pair.new.verify_unchanged()?;
    Ok(found)
}

/// Returns the differences of two buffers of equal length: for each block of [`NEAR`] bytes, from
/// the first differing byte to the last.
fn differing(one: &[u8], two: &[u8]) -> impl Iterator<Item = Range<u64>> {
    let blocks = one.chunks(NEAR as usize).zip(two.chunks(NEAR as usize));
    let differing = (0..).step_by(NEAR as usize).zip(blocks).filter(|(_, (one, two))| one != two);
    differing.filter_map(|(off, (one, two)): (u64, _)| {
        let mut bytes = one.iter().zip(two);
        let first = bytes.position(|(one, two)| one != two)? as u64;
        let behind = bytes.rposition(|(one, two)| one != two).map_or(first, |last| first + 1 + last as u64);
        Some(off + first..off + behind + 1)
    })
}

/// Appends a difference, which must follow all others, or extends the last one.
fn push(found: &mut Vec<Range<u64>>, range: Range<u64>) {
    match found.last_mut().filter(|last| range.start - last.end < NEAR) {
        Some(last) => last.end = range.end,
        None => found.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_known_to_the_byte_and_those_near_one_another_are_one() {
        let one = vec![0_u8; 40_000];
        let cases: [(&[usize], &[[u64; 2]]); 6] = [
            (&[], &[]),
            (&[0], &[[0, 1]]),
            (&[39_999], &[[39_999, 40_000]]),
            (&[4095, 4096], &[[4095, 4097]]),
            (&[10, 4100, 8000], &[[10, 8001]]),
            (&[10, 20_000, 20_005, 30_000], &[[10, 11], [20_000, 20_006], [30_000, 30_001]]),
        ];
        for (changed, expected) in cases {
            let mut two = one.clone();
            changed.iter().for_each(|&at| two[at] = 1);
            let mut found = Vec::new();
            differing(&one, &two).for_each(|range| push(&mut found, range));
            let found: Vec<_> = found.into_iter().map(|range| [range.start, range.end]).collect();
            assert_eq!(found, expected, "{changed:?}");
        }
    }
}
