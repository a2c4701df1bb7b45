//! Changed files whose previous version the base stores in extents. Extents whose text is unchanged are reused; text
//! between them is stored again.
//!
//! Extents are compared at their places, so this suits files that change here and there, or at their end: databases,
//! disks of virtual machines, logs. Text that has moved is new text.

use kiln_codec::Spec;
use kiln_format::BlockBits;
use std::ops::Range;

use crate::format::{Format, REST_MAX_BLOCKS};
use crate::plan::file::FilePlan;
use kiln_tree::{PreviousVersion, ReusedExtent, ReusedExtents};

/// Least part of a file's text that must be unchanged, one in so many; otherwise all of it is stored again.
const SAME_SHARE: u64 = 8;

/// A file that may be the same in parts.
pub(crate) struct Candidate {
    /// Place in the plan.
    pub file: u32,
    /// The previous version in the base.
    pub previous: PreviousVersion,
}

/// Reused and other parts of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patched {
    /// Extents that are reused.
    pub reused: ReusedExtents,
    /// Ranges between and behind them.
    pub gaps: Vec<Range<u64>>,
}

/// Finds the extents of each of `candidates` that have the text of the new file, if it is worth to reuse them.
pub(crate) fn patch(candidates: &[Candidate], files: &[FilePlan], format: &Format) -> Vec<Option<Patched>> {
    let patch = |Candidate { file, previous }: &Candidate| {
        let file = &files[*file as usize];
        let same = outside(&previous.extents.list, &previous.differences, file.len);
        patched(previous, &same, file, format)
    };
    candidates.iter().map(patch).collect()
}

/// Returns the least bytes of text stored between extents. See [`crate::plan::dedupe::split_points`] for both forms.
fn min_len(format: &Format) -> u64 {
    if format.compression.encoded_extents { 4096 } else { 2 * format.block_bits.len() }
}

/// Returns the bytes of text of contiguous extents.
fn text_len(extents: &[ReusedExtent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.llen)).sum()
}

/// Returns which of the extents lie outside `differences` and end by `len`.
fn outside(extents: &[ReusedExtent], differences: &[Range<u64>], len: u64) -> Vec<bool> {
    let mut rest = differences.iter().peekable();
    let is_outside = |extent: &ReusedExtent| {
        while rest.next_if(|range| range.end <= extent.la).is_some() {}
        extent.end() <= len && rest.peek().is_none_or(|range| range.start >= extent.end())
    };
    extents.iter().map(is_outside).collect()
}

/// Returns the reused and other parts of a file in which these extents are the same, if reuse is worth it.
fn patched(previous: &PreviousVersion, same: &[bool], file: &FilePlan, format: &Format) -> Option<Patched> {
    let list = &previous.extents.list;
    let mut reuse = same.to_vec();
    reuse.resize(list.len(), false);
    if file.len > previous.len
        && let Some(last) = reuse.last_mut()
    {
        // The text behind it must begin in another lcluster than it does.
        *last = false;
    }
    widen(list, &mut reuse, min_len(format));
    let most_blocks = file.compression.map_or(0, |spec| format.pcluster_blocks(spec));
    if !format.compression.encoded_extents && most_blocks < REST_MAX_BLOCKS {
        // Left-over text before an extent may take more blocks than pclusters have. Nothing is left over at the end.
        reuse.iter_mut().skip_while(|reuse| **reuse).for_each(|reuse| *reuse = false);
    }
    let reused: Vec<ReusedExtent> =
        list.iter().zip(&reuse).filter(|(_, reuse)| **reuse).map(|(extent, _)| *extent).collect();
    let reused_len = text_len(&reused);
    if reused_len.saturating_mul(SAME_SHARE) < file.len {
        return None;
    }
    let gaps = gaps(&reused, file.len);
    let blocks: u64 = reused.iter().map(|extent| format.block_bits.blocks_for(extent.plen.into())).sum();
    let (algorithm, blocks) = (previous.extents.algorithm, blocks as u32);
    Some(Patched { reused: ReusedExtents { algorithm, list: reused, blocks, ..ReusedExtents::default() }, gaps })
}

/// Gives up extents behind gaps shorter than `min_len`, until there are none, except for one at the end of the file,
/// which may be short.
fn widen(list: &[ReusedExtent], reuse: &mut [bool], min_len: u64) {
    let run = |reuse: &[bool], from: usize| from + reuse[from..].iter().take_while(|reuse| !**reuse).count();
    let mut start = 0;
    while start < list.len() {
        let mut end = run(reuse, start);
        if end == start {
            start += 1;
            continue;
        }
        while end < list.len() && list[end].la - list[start].la < min_len {
            reuse[end] = false;
            end = run(reuse, end);
        }
        start = end;
    }
}

/// Returns the ranges of a file of `len` bytes that no extent of `reused` has.
fn gaps(reused: &[ReusedExtent], len: u64) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut end = 0;
    for extent in reused {
        if extent.la > end {
            gaps.push(end..extent.la);
        }
        end = extent.end();
    }
    if end < len {
        gaps.push(end..len);
    }
    gaps
}

/// Returns the parts in which a gap is stored, in order: whole segments, each starting at a block boundary, except
/// the first. The flag of each tells whether the next text begins at a block boundary, or there is none.
pub(crate) fn parts(gap: &Range<u64>, len: u64, segment: u64, block_bits: BlockBits) -> Vec<(Range<u64>, bool)> {
    let min_len = 2 * block_bits.len();
    let mut cuts: Vec<u64> = (gap.start / segment + 1..)
        .map(|n| n * segment)
        .take_while(|cut| *cut < gap.end)
        // The rest must be able to stand alone.
        .filter(|cut| gap.end == len || gap.end - cut >= min_len)
        .collect();
    cuts.push(gap.end);
    let mut start = gap.start;
    let part = |end: u64| {
        let range = std::mem::replace(&mut start, end)..end;
        let ends_stream = end == len || end != gap.end;
        (range, ends_stream)
    };
    cuts.into_iter().map(part).collect()
}

/// Returns the compression of a changed file whose map can refer to extents of the base: the one it would have
/// anyway, if that uses their algorithm.
pub(crate) fn spec(previous: &PreviousVersion, file: &FilePlan) -> Option<Spec> {
    file.compression.filter(|spec| previous.extents.algorithm == Some(spec.method.algorithm()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(lens: &[u32]) -> Vec<ReusedExtent> {
        let mut la = 0;
        let extent = |&llen: &u32| {
            let extent = ReusedExtent { la, llen, pa: 4096, plen: 4096, plain: false, partial: false };
            la += u64::from(llen);
            extent
        };
        lens.iter().map(extent).collect()
    }

    #[test]
    fn short_gaps_take_what_follows() {
        let list = extents(&[9000, 3000, 3000, 9000, 100, 100]);
        for (reuse, widened) in [
            ([1, 0, 1, 1, 1, 1], [1, 0, 0, 0, 1, 1]),
            ([0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]),
            ([1, 1, 1, 1, 0, 1], [1, 1, 1, 1, 0, 0]),
            ([1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]),
            ([1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 1, 1]),
            ([1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 1, 0]),
            ([1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]),
        ] {
            let mut found = reuse.map(|reuse| reuse == 1);
            widen(&list, &mut found, 8192);
            assert_eq!(found, widened.map(|reuse| reuse == 1), "{reuse:?}");
        }
    }

    #[test]
    fn extents_without_differences_are_the_same() {
        let list = extents(&[100, 200, 300, 400]);
        for (differences, len, same) in [
            (&[][..], 1000, [true; 4]),
            (&[], 999, [true, true, true, false]),
            (std::slice::from_ref(&(99..100)), 1000, [false, true, true, true]),
            (std::slice::from_ref(&(99..301)), 1000, [false, false, false, true]),
            (&[100..101, 200..201, 299..300, 600..1000], 1000, [true, false, true, false]),
        ] {
            assert_eq!(outside(&list, differences, len), same, "{differences:?} {len}");
        }
    }

    #[test]
    fn gaps_are_what_is_not_kept() {
        let list = extents(&[100, 200, 300]);
        assert_eq!(gaps(&list, 600), []);
        assert!(gaps(&list, 700).into_iter().eq(std::iter::once(600..700)));
        assert_eq!(gaps(&[list[1]], 600), [0..100, 300..600]);
        assert!(gaps(&[], 5).into_iter().eq(std::iter::once(0..5)));
    }

    #[test]
    fn long_gaps_are_cut_where_blocks_begin() {
        let bits = BlockBits::DEFAULT;
        let (len, segment) = (1 << 30, 1 << 16);
        assert_eq!(parts(&(100..9000), len, segment, bits), [(100..9000, false)]);
        assert_eq!(
            parts(&(100..70_000), len, segment, bits),
            [(100..70_000, false)],
            "less than two blocks would be left"
        );
        let cut = [(100..65_536, true), (65_536..75_000, false)];
        assert_eq!(parts(&(100..75_000), len, segment, bits), cut);
        let end = [(100..65_536, true), (65_536..65_540, true)];
        assert_eq!(parts(&(100..65_540), 65_540, segment, bits), end);
    }
}
