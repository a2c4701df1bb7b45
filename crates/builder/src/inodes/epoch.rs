//! The time of the superblock, chosen so that as many inodes as possible are compact.

use kiln_format::inode::{CompactTimes, Epoch};

/// Most seconds that the time of a compact inode may lie behind the epoch.
const REACH: u64 = u32::MAX as u64;

/// Returns the epoch from which most of `times` can be expressed, the earliest of several, or `Epoch::default()`
/// without times.
pub(crate) fn choose(times: impl Iterator<Item = Epoch>, compact: CompactTimes) -> Epoch {
    let reach = match compact {
        CompactTimes::Shared => 0,
        CompactTimes::Own => REACH,
    };
    // There are as many as files, and perhaps no two with the same nanoseconds.
    let mut times: Vec<(u32, i64)> = times.map(|time| (time.nsec, time.secs)).collect();
    times.sort_unstable();
    let best = times.chunk_by(|(a, _), (b, _)| a == b).map(|alike| longest_window(alike, reach));
    best.max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a))).map_or(Epoch::default(), |(epoch, _)| epoch)
}

/// Finds the longest run of times in `sorted` none of which is more than `reach` seconds behind the first. Returns
/// that first time and the length of the run. All have the same nanoseconds, and there is at least one.
fn longest_window(sorted: &[(u32, i64)], reach: u64) -> (Epoch, usize) {
    let mut end = 0;
    let windows = sorted.iter().enumerate().map(|(start, &(nsec, secs))| {
        while sorted.get(end).is_some_and(|(_, last)| last.abs_diff(secs) <= reach) {
            end += 1;
        }
        (Epoch { secs, nsec }, end - start)
    });
    windows.max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a))).unwrap_or_default()
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
        // All but the first, as not all of them fit.
        let far = i64::from(u32::MAX) + 10;
        assert_eq!(own(&[(9, 0), (10, 0), (far, 0), (far, 0)]), (10, 0));
        assert_eq!(own(&[(i64::MIN, 0), (i64::MAX, 0), (i64::MAX, 0)]), (i64::MAX, 0));
        assert_eq!(own(&[(i64::MIN, 1), (i64::MAX, 0)]), (i64::MIN, 1));
    }
}
