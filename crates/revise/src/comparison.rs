//! Comparison of contents, for files whose metadata is not conclusive, and for previous versions of changed files.

use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use kiln_parallel::ordered::{self, Costed};
use kiln_source::{ScanOptions, SourceError};
use kiln_tree::{Content, ContentError, ContentId, Kind, NodeId, PreviousVersion, ReusedData, Stored, Tree};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::held::{HeldRange, HeldText, with_held};

/// Length in bytes of a read of a file without extents. It is long enough that decoding a pcluster twice at its ends
/// costs little.
const STEP: u64 = 1 << 20;
/// Length in bytes of a job. Long files are compared on several threads.
const PIECE: u64 = 4 * STEP;
/// Bytes of text of jobs that wait for an earlier one, or have text that is to be held.
const BACKLOG: u64 = 4 * PIECE;
/// Cost of a job beside its bytes.
const JOB_COST: u64 = 4096;

/// Two files that may have the same contents, or the same in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Doubt {
    /// Node in the new tree.
    pub(crate) new: NodeId,
    /// Node in the old one.
    pub(crate) old: NodeId,
}

/// Result of a comparison.
#[derive(Default)]
pub(crate) struct Compared {
    /// Equal contents: id in the new tree, and id in the old one.
    pub(crate) equal: Vec<(u32, ContentId)>,
    /// Differences of contents of the new tree from those of the old one, if the data of the old
    /// one can be reused in parts.
    pub(crate) differences: Differences,
}

/// Extents of the old version that have another text in the new one, in order, by content ids of the
/// new and of the old tree. A file with several names may have several previous versions.
pub(crate) type Differences = HashMap<(u32, ContentId), Vec<Range<u64>>>;

/// Requested result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareGoal {
    /// Equality only: each comparison ends at the first difference.
    Equality,
    /// Equality, and differences of long files.
    Differences,
    /// Differences of long files, whose lengths may differ, too.
    Versions,
}

/// A comparison of two files, in ranges.
struct Comparison {
    doubt: Doubt,
    contents: [ContentId; 2],
    /// True if the positions of differences are needed.
    has_parts: bool,
    /// True if the ranges are all of both files.
    is_whole: bool,
    ranges: Vec<Range<u64>>,
    held: Option<Arc<Vec<HeldRange>>>,
    differs: AtomicBool,
}

/// Some ranges of a comparison.
struct ComparedPiece<'a> {
    at: usize,
    comparison: &'a Comparison,
    ranges: &'a [Range<u64>],
}

/// Two open files that are being compared.
struct OpenPair {
    at: usize,
    new: Box<dyn Content>,
    old: Box<dyn Content>,
}

/// Ranges that differ, and their text in the new file.
type Found = (Vec<Range<u64>>, Vec<HeldRange>);

impl Comparison {
    /// Plans a comparison; `None` if it tells nothing.
    fn plan([new, old]: [&Tree; 2], doubt: Doubt, goal: CompareGoal, held: &HeldText) -> Option<Self> {
        let [(new_content, len), (old_content, old_len)] = [file(new, doubt.new)?, file(old, doubt.old)?];
        let has_parts = goal != CompareGoal::Equality && len.min(old_len) >= PreviousVersion::MIN_LEN;
        let extents = if has_parts { extents(old, doubt.old) } else { None };
        let (is_whole, has_parts) = (len == old_len, extents.is_some());
        let ranges = match extents {
            Some(mut extents) => {
                extents.retain(|range| range.end <= len);
                if len > old_len {
                    // It is stored again with the text behind it, which must not begin in the middle of a block.
                    extents.pop_if(|range| range.end == old_len);
                }
                // The end may be stored elsewhere.
                let end = extents.last().map_or(0, |range| range.end);
                extents.extend(is_whole.then(|| steps(end..len)).into_iter().flatten());
                extents
            }
            None if goal == CompareGoal::Versions || !is_whole => return None,
            None => steps(0..len).collect(),
        };
        let (contents, held) = ([new_content, old_content], held.of(new_content.0));
        Some(Self { doubt, contents, has_parts, is_whole, ranges, held, differs: AtomicBool::new(false) })
    }

    /// Returns the ranges of each job.
    fn pieces(&self) -> impl Iterator<Item = &[Range<u64>]> {
        let mut rest = &self.ranges[..];
        std::iter::from_fn(move || {
            let first = rest.first()?;
            let count = rest.iter().take_while(|range| range.start - first.start < PIECE).count();
            let (piece, behind) = rest.split_at(count);
            rest = behind;
            Some(piece)
        })
    }
}

/// Compares files on all threads. Unreadable files count as different: reading them again will report the error. The
/// text of what differs is `held`, for it is to be stored.
///
/// # Errors
/// [`SourceError::Interrupted`].
pub(crate) fn compare(
    trees: [&Tree; 2],
    in_doubt: Vec<Doubt>,
    goal: CompareGoal,
    options: &ScanOptions<'_>,
    held: &mut HeldText,
) -> Result<Compared, SourceError> {
    let comparisons: Vec<Comparison> =
        in_doubt.into_iter().filter_map(|doubt| Comparison::plan(trees, doubt, goal, held)).collect();
    let pieces = comparisons
        .iter()
        .enumerate()
        .flat_map(|(at, comparison)| comparison.pieces().map(move |ranges| ComparedPiece { at, comparison, ranges }));
    let worker = || {
        let mut old_text = Vec::new();
        // The most recent pair stays open for the next piece, which usually is of the same file.
        let mut open: Option<OpenPair> = None;
        Ok(move |piece: ComparedPiece<'_>| {
            options.check_stop()?;
            let comparison = piece.comparison;
            let all = || (piece.ranges.to_vec(), Vec::new());
            if !comparison.has_parts && comparison.differs.load(Ordering::Relaxed) {
                return Ok::<_, SourceError>((piece.at, all()));
            }
            if open.as_ref().is_none_or(|last| last.at != piece.at) {
                open = open_pair(trees, piece.at, comparison);
            }
            let found = match open.as_mut().map(|pair| differences(pair, &piece, &mut old_text)) {
                Some(Ok(found)) => found,
                _ => all(),
            };
            if !found.0.is_empty() {
                comparison.differs.store(true, Ordering::Relaxed);
            }
            Ok((piece.at, found))
        })
    };
    let jobs = pieces.map(|job| Costed { cost: JOB_COST + span(job.ranges), job });
    let mut found: Vec<Vec<Range<u64>>> = comparisons.iter().map(|_| Vec::new()).collect();
    ordered::run(options.threads, BACKLOG, jobs, worker, |(at, (differences, text)): (usize, Found)| {
        found[at].extend(differences);
        held.hold(comparisons[at].contents[0].0, text);
        Ok(())
    })?;
    let mut compared = Compared::default();
    for (Comparison { contents: [new, old], has_parts, is_whole, .. }, differences) in
        comparisons.into_iter().zip(found)
    {
        if is_whole && differences.is_empty() && goal != CompareGoal::Versions {
            compared.equal.push((new.0, old));
        } else if has_parts {
            compared.differences.insert((new.0, old), differences);
        }
    }
    Ok(compared)
}

fn open_pair([new, old]: [&Tree; 2], at: usize, comparison: &Comparison) -> Option<OpenPair> {
    let Comparison { doubt, held, .. } = comparison;
    let new = with_held(held.clone(), new.open(doubt.new).ok()?);
    Some(OpenPair { at, new, old: old.open(doubt.old).ok()? })
}

/// Returns the contents of a regular file, and their length.
fn file(tree: &Tree, node: NodeId) -> Option<(ContentId, u64)> {
    match tree.node(node).kind {
        Kind::File { content, len, .. } => Some((content, len)),
        _ => None,
    }
}

/// Returns the text of each extent of a file, if they can be reused one by one: they follow one another from the
/// beginning on.
fn extents(old: &Tree, node: NodeId) -> Option<Vec<Range<u64>>> {
    let Ok(Stored::Reused(ReusedData::Extents(extents))) = old.stored(node) else { return None };
    let mut end = 0;
    let mut ranges = Vec::with_capacity(extents.list.len());
    for extent in &extents.list {
        if extent.la != end || extent.llen as usize > EXTENT_MAX_LEN {
            return None;
        }
        end = extent.end();
        ranges.push(extent.la..end);
    }
    Some(ranges)
}

/// Returns `range` in steps of [`STEP`] bytes.
fn steps(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    range.clone().step_by(STEP as usize).map(move |start| start..range.end.min(start + STEP))
}

/// Returns the bytes of ranges that follow one another.
fn span(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns the differences of two files in the ranges of a job: only the first one if parts are of no use.
fn differences(pair: &mut OpenPair, piece: &ComparedPiece<'_>, old_text: &mut Vec<u8>) -> Result<Found, ContentError> {
    let has_parts = piece.comparison.has_parts;
    let (mut found, mut text): Found = (Vec::new(), Vec::new());
    let mut new_text = Vec::new();
    for range in piece.ranges {
        let len = (range.end - range.start) as usize;
        new_text.resize(len, 0);
        old_text.resize(len, 0);
        pair.new.read_exact_at(&mut new_text, range.start)?;
        pair.old.read_exact_at(old_text, range.start)?;
        let differs = new_text != *old_text;
        if differs || !has_parts {
            // Without parts, all of a file is stored again.
            text.push((range.start, std::mem::take(&mut new_text).into_boxed_slice()));
        }
        if differs {
            found.push(range.clone());
        }
        if differs && !has_parts {
            break;
        }
    }
    pair.new.verify_unchanged()?;
    if found.is_empty() {
        text.clear();
    }
    Ok((found, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ranges: &[Range<u64>]) -> Comparison {
        Comparison {
            doubt: Doubt { new: NodeId(1), old: NodeId(1) },
            contents: [ContentId(0); 2],
            has_parts: true,
            is_whole: true,
            ranges: ranges.to_vec(),
            held: None,
            differs: AtomicBool::new(false),
        }
    }

    #[test]
    fn extents_are_compared_in_runs() {
        let mib = |at: u64| at << 20;
        let list = [0..mib(3), mib(3)..mib(6), mib(6)..mib(7), mib(7)..mib(11), mib(11)..mib(11) + 5];
        let counts: Vec<usize> = comparison(&list).pieces().map(<[_]>::len).collect();
        assert_eq!(counts, [2, 2, 1]);
        assert_eq!(comparison(&[]).pieces().count(), 0);
    }

    #[test]
    fn files_without_extents_are_compared_in_steps() {
        assert_eq!(steps(0..0).count(), 0);
        assert!(steps(5..STEP + 7).eq([5..STEP + 5, STEP + 5..STEP + 7]));
    }
}
