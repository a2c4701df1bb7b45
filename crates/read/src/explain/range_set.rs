//! Bytes of devices, each counted once.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes on numbered devices, as runs that neither overlap nor touch: data mostly lies in
/// the order of a walk, so that few runs hold much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// Device and first byte, to the byte behind the last one.
    runs: BTreeMap<(u16, u64), u64>,
    len: u64,
}

impl RangeSet {
    /// Adds bytes. Returns the number of bytes that were not in the set.
    pub(crate) fn add(&mut self, device: u16, bytes: Range<u64>) -> u64 {
        let Range { mut start, mut end } = bytes;
        if start >= end {
            return 0;
        }
        let mut known = 0;
        // Runs that overlap or touch the new one become part of it, from the back to the front.
        while let Some((&(_, run_start), &run_end)) = self.runs.range((device, 0)..=(device, end)).next_back()
            && run_end >= start
        {
            if run_start <= start && end <= run_end {
                return 0;
            }
            self.runs.remove(&(device, run_start));
            known += run_end - run_start;
            (start, end) = (start.min(run_start), end.max(run_end));
        }
        self.runs.insert((device, start), end);
        let added = end - start - known;
        self.len = self.len.saturating_add(added);
        added
    }

    /// Returns the number of bytes in the set.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of runs of the bytes, each of which takes about 40 bytes of memory.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with one flag for each byte.
    #[test]
    fn a_naive_set_agrees() {
        const LEN: usize = 200;
        let (mut set, mut naive, mut state) = (RangeSet::default(), [[false; LEN]; 2], 1u64);
        let mut below = |end: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % end
        };
        for round in 0..4000 {
            if round % 40 == 0 {
                (set, naive) = (RangeSet::default(), [[false; LEN]; 2]);
            }
            let device = below(2) as u16;
            let start = below(LEN as u64);
            let end = (start + below(20)).min(LEN as u64);
            let flags = &mut naive[usize::from(device)];
            let fresh =
                flags[start as usize..end as usize].iter_mut().map(|flag| u64::from(!std::mem::replace(flag, true)));
            let added: u64 = fresh.sum();
            assert_eq!(set.add(device, start..end), added);
            let count = |flags: &[bool; LEN]| flags.iter().filter(|&&flag| flag).count() as u64;
            assert_eq!(set.len(), naive.iter().map(count).sum::<u64>());
            let starts = |flags: &[bool; LEN]| (0..LEN).filter(|&i| flags[i] && (i == 0 || !flags[i - 1])).count();
            assert_eq!(set.runs(), naive.iter().map(starts).sum::<usize>());
        }
    }

    #[test]
    fn the_ends_of_the_numbers_are_bytes_like_others() {
        let mut set = RangeSet::default();
        assert_eq!(set.add(u16::MAX, u64::MAX - 5..u64::MAX), 5);
        assert_eq!(set.add(u16::MAX, 0..u64::MAX), u64::MAX - 5);
        assert_eq!((set.add(u16::MAX, 7..7), set.runs()), (0, 1));
    }
}
