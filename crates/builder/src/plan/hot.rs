//! The stored bytes of a base that come first: those of the pclusters that a program reads first.

use kiln_format::BlockBits;
use std::ops::Range;

use crate::plan::file::FilePlan;
use crate::plan::file_list::FileIndex;
use crate::plan::reuse::rules::overlapping;
use crate::plan::reuse::{ReusedFiles, ReusedPacked};
use kiln_tree::storage::HotZone;
use kiln_tree::{ReusedData, ReusedExtent, ReusedExtents};

/// Returns the stored bytes of the base that come first in the image, in this order: first byte and length. Some may
/// occur several times.
pub(crate) fn runs(
    zone: &HotZone,
    (files, index): (&[FilePlan], &FileIndex),
    reused: &ReusedFiles,
    block_bits: BlockBits,
) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    for (node, range) in &zone.ranges {
        let Some(idx) = index.get(*node) else { continue };
        let Some(how) = reused.files.get(idx) else { continue };
        let len = files[idx as usize].len;
        let range = range.start..range.end.min(len);
        if !range.is_empty() {
            push(how, (len, range), (&reused.packed, block_bits), &mut runs);
        }
    }
    runs
}

/// Adds the stored bytes that hold `range` of a file of `len` bytes.
fn push(
    how: &ReusedData,
    (len, range): (u64, Range<u64>),
    (packed, block_bits): (&ReusedPacked, BlockBits),
    runs: &mut Vec<(u64, u64)>,
) {
    match how {
        // An inode can only describe contiguous blocks.
        ReusedData::Flat { pa, tail_len } if range.start < len - tail_len => {
            runs.push((*pa, (len - tail_len).next_multiple_of(block_bits.len())));
        }
        ReusedData::Flat { .. } => {}
        ReusedData::Extents(ReusedExtents { list, fragment, .. }) => {
            runs.extend(list[overlapping(list, range.start, range.end - range.start)].iter().map(stored));
            if let Some((la, off)) = fragment.filter(|(la, _)| *la < range.end) {
                let start = range.start.max(la);
                runs.extend(packed.holding(off + (start - la), range.end - start).map(stored));
            }
        }
        ReusedData::Fragment { off } => {
            runs.extend(packed.holding(off + range.start, range.end - range.start).map(stored))
        }
    }
}

fn stored(extent: &ReusedExtent) -> (u64, u64) {
    (extent.pa, extent.plen.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(la: u64, llen: u32, pa: u64) -> ReusedExtent {
        ReusedExtent { la, llen, pa, plen: 4096, plain: false, partial: false }
    }

    fn runs_of(how: &ReusedData, len: u64, range: Range<u64>, packed: &ReusedPacked) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        push(how, (len, range), (packed, BlockBits::DEFAULT), &mut runs);
        runs
    }

    #[test]
    fn ranges_are_the_pclusters_that_hold_them() {
        // The packed inode of the base has two extents; the new one only the second.
        let packed = ReusedPacked { extents: vec![(50_000, extent(0, 20_000, 90 << 12))] };
        let list = vec![extent(0, 10_000, 5 << 12), extent(10_000, 7000, 9 << 12), extent(17_000, 3000, 6 << 12)];
        let file =
            ReusedData::Extents(ReusedExtents { list, fragment: Some((20_000, 52_000)), ..ReusedExtents::default() });
        for (range, pas) in [
            (0..1, &[5][..]),
            (9999..10_001, &[5, 9]),
            (10_000..17_000, &[9]),
            (0..20_000, &[5, 9, 6]),
            (19_999..20_001, &[6, 90]),
            (20_500..20_600, &[90]),
        ] {
            let expected: Vec<(u64, u64)> = pas.iter().map(|pa| (pa << 12, 4096)).collect();
            assert_eq!(runs_of(&file, 20_600, range.clone(), &packed), expected, "{range:?}");
        }
        let small = ReusedData::Fragment { off: 69_990 };
        assert_eq!(runs_of(&small, 10, 3..10, &packed), [(90 << 12, 4096)]);
        // Files without extents move as a whole; a tail beside the inode does not lie among the data.
        let flat = ReusedData::Flat { pa: 8192, tail_len: 100 };
        assert_eq!(runs_of(&flat, 8292, 8191..8192, &packed), [(8192, 8192)]);
        assert_eq!(runs_of(&flat, 8292, 8192..8292, &packed), []);
    }
}
