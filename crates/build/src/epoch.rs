//! The time of the superblock, chosen so that as many inodes as possible are compact.

use kiln_format::inode::{CompactTimes, Epoch};
use std::collections::BTreeMap;

/// Seconds that the time of a compact inode may lie behind the epoch, at most.
const REACH: u64 = u32::MAX as u64;

/// The epoch from which most of `times` can be told; the earliest of several. `Epoch::default()` of none.
pub fn choose(times: impl Iterator<Item = Epoch>, compact: CompactTimes) -> Epoch {
    let reach = match compact {
        CompactTimes::Shared => 0,
        CompactTimes::Own => REACH,
    };
    let mut by_nsec = BTreeMap::<u32, Vec<i64>>::new();
    for time in times {
        by_nsec.entry(time.nsec).or_default().push(time.secs);
    }
    let best = by_nsec.into_iter().filter_map(|(nsec, mut secs)| {
        secs.sort_unstable();
        longest_window(&secs, reach).map(|(first, count)| (Epoch { secs: first, nsec }, count))
    });
    best.max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a))).map_or(Epoch::default(), |(epoch, _)| epoch)
}

/// First of the most numbers in `sorted` of which none is more than `reach` above it, and how many these are.
fn longest_window(sorted: &[i64], reach: u64) -> Option<(i64, usize)> {
    let mut end = 0;
    let windows = sorted.iter().enumerate().map(|(start, &first)| {
        while sorted.get(end).is_some_and(|last| last.abs_diff(first) <= reach) {
            end += 1;
        }
        (first, end - start)
    });
    windows.max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(times: &[(i64, u32)], compact: CompactTimes) -> (i64, u32) {
        let epoch = choose(times.iter().map(|&(secs, nsec)| Epoch { secs, nsec }), compact);
        (epoch.secs, epoch.nsec)
    }

    #[test]
    fn a_shared_time_is_the_most_frequent() {
        let shared = |times: &[_]| epoch(times, CompactTimes::Shared);
        assert_eq!(shared(&[]), (0, 0));
        assert_eq!(shared(&[(5, 7), (5, 0), (6, 0), (5, 7)]), (5, 7));
        assert_eq!(shared(&[(5, 7), (-5, 9), (-5, 9), (5, 7)]), (-5, 9));
    }

    #[test]
    fn own_times_lie_behind_the_epoch() {
        let own = |times: &[_]| epoch(times, CompactTimes::Own);
        assert_eq!(own(&[]), (0, 0));
        assert_eq!(own(&[(5, 0), (9, 0), (3, 7), (3, 7), (1, 0)]), (1, 0));
        // All but the first, as not all can be.
        let far = i64::from(u32::MAX) + 10;
        assert_eq!(own(&[(9, 0), (10, 0), (far, 0), (far, 0)]), (10, 0));
        assert_eq!(own(&[(i64::MIN, 0), (i64::MAX, 0), (i64::MAX, 0)]), (i64::MAX, 0));
        assert_eq!(own(&[(i64::MIN, 1), (i64::MAX, 0)]), (i64::MIN, 1));
    }
}
