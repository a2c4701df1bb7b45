//! Coverage of hot lists: each byte and each inode once.

use super::list::{HotEntry, HotList};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Bytes and inodes by path.
#[derive(Debug, Default)]
pub(super) struct Coverage<'a> {
    files: HashMap<&'a [u8], Covered>,
}

#[derive(Debug, Default)]
struct Covered {
    has_metadata: bool,
    /// First bytes of runs, which neither overlap nor touch, to the bytes behind their last ones.
    runs: BTreeMap<u64, u64>,
}

impl<'a> Coverage<'a> {
    /// Returns the bytes and inodes of `list`.
    pub(super) fn of(list: &'a HotList) -> Self {
        let mut coverage = Self::default();
        for entry in list.entries() {
            coverage.add(entry);
        }
        coverage
    }

    /// Adds the bytes or the inode of `entry`. Returns the parts of it that are new, front to back.
    /// All calls together return at most two parts for each entry: the runs between new parts are
    /// one run from then on.
    pub(super) fn add(&mut self, entry: &'a HotEntry) -> Vec<HotEntry> {
        let covered = self.files.entry(&entry.path).or_default();
        if entry.is_metadata() {
            let is_new = !std::mem::replace(&mut covered.has_metadata, true);
            return is_new.then(|| entry.clone()).into_iter().collect();
        }
        let part = |bytes: Range<u64>| HotEntry { offset: bytes.start, len: bytes.end - bytes.start, ..entry.clone() };
        covered.add(entry.range()).into_iter().map(part).collect()
    }
}

impl Covered {
    fn add(&mut self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let Range { mut start, mut end } = bytes;
        // From the back to the front: what lies behind the run that was looked at last is new.
        let (mut fresh, mut new_end) = (Vec::new(), end);
        while let Some((&run_start, &run_end)) = self.runs.range(..=end).next_back()
            && run_end >= start
        {
            fresh.extend((run_end < new_end).then_some(run_end..new_end));
            new_end = run_start;
            self.runs.remove(&run_start);
            end = end.max(run_end);
            if run_start <= start {
                start = run_start;
                break;
            }
        }
        let new_start = bytes.start;
        fresh.extend((new_start < new_end).then_some(new_start..new_end));
        self.runs.insert(start, end);
        fresh.reverse();
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with one flag for each byte.
    #[test]
    fn naive_flags_agree() {
        const LEN: u64 = 120;
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % end
        };
        for _ in 0..100 {
            let (mut covered, mut flags) = (Covered::default(), [false; LEN as usize]);
            let (mut calls, mut parts) = (0, 0);
            for _ in 0..40 {
                let start = below(LEN - 1);
                let end = (start + 1 + below(30)).min(LEN);
                let fresh = covered.add(start..end);
                (calls, parts) = (calls + 1, parts + fresh.len());
                let bytes: Vec<u64> = fresh.iter().cloned().flatten().collect();
                let expected: Vec<u64> = (start..end).filter(|&byte| !flags[byte as usize]).collect();
                assert_eq!(bytes, expected);
                assert!(fresh.windows(2).all(|pair| pair[0].end < pair[1].start), "{fresh:?}");
                flags[start as usize..end as usize].fill(true);
                let runs: Vec<u64> = covered.runs.iter().flat_map(|(&start, &end)| start..end).collect();
                assert_eq!(runs, (0..LEN).filter(|&byte| flags[byte as usize]).collect::<Vec<_>>());
                let starts = (0..LEN as usize).filter(|&at| flags[at] && (at == 0 || !flags[at - 1])).count();
                assert_eq!(covered.runs.len(), starts);
            }
            assert!(parts <= 2 * calls);
        }
    }
}
