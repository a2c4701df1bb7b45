//! Readahead across files. Data is stored in walk order, so reading a tree in order is one
//! sequential stream on the device, which the kernel's readahead, file by file, cannot detect.
//!
//! A *stream* is a run of fetches of which each begins where the last one ended, or not far behind.
//! The readahead window grows with its stream, so that bytes that are fetched in vain stay a small
//! part of the bytes that were wanted. Random fetches and strides begin a new stream each time, and
//! announce nothing. Several streams are remembered: for several readers, and for data in several
//! places.

use kiln_parallel::locks::lock;
use std::ops::Range;
use std::sync::Mutex;

const STREAMS: usize = 8;
/// Most bytes between the end of a stream and a fetch that continues it.
const GAP_MAX: u64 = 8 << 10;
/// A byte that is left out outweighs this many bytes that were fetched: strides through long
/// extents leave out less than they fetch.
const GAP_WEIGHT: u64 = 8;
/// The readahead window is one part in this many of the stream's length.
const SHARE: u64 = 4;
/// Most and fewest bytes of a window. Longer ones would fetch more in vain where files end, and
/// disks are no faster with them.
const AHEAD_MAX: u64 = 512 << 10;
const AHEAD_MIN: u64 = 32 << 10;
/// Threads that read one stream overtake each other by at most this many bytes.
const DISORDER: u64 = 1 << 20;

/// A run of fetches from one device.
#[derive(Clone, Copy, Default)]
struct ReadaheadStream {
    device: u16,
    /// Byte address behind the last fetch, and behind what is announced.
    end: u64,
    announced: u64,
    /// Bytes that were fetched, up to those that matter, and the weight of the bytes that were left
    /// out.
    len: u64,
    left_out: u64,
}

#[derive(Default)]
pub(crate) struct ReadaheadStreams {
    /// In the order of their last fetches, the latest first.
    list: Mutex<[ReadaheadStream; STREAMS]>,
}

impl ReadaheadStreams {
    /// Remembers that `len` bytes from `pa` on are fetched. Returns the bytes that are to be
    /// announced now.
    pub(crate) fn step(&self, device: u16, pa: u64, len: u64) -> Option<Range<u64>> {
        // Nothing panics while it is locked.
        let mut list = lock(&self.list);
        let follows = |stream: &ReadaheadStream| {
            let near = stream.announced.max(stream.end.saturating_add(GAP_MAX));
            stream.len > 0 && stream.device == device && pa <= near && pa.saturating_add(DISORDER) >= stream.end
        };
        let found = list.iter().position(follows);
        // The stream whose last fetch is oldest makes room.
        let idx = found.unwrap_or(STREAMS - 1);
        list[..=idx].rotate_right(1);
        let stream = &mut list[0];
        if found.is_none() {
            *stream = ReadaheadStream { device, end: pa, announced: pa, len: 0, left_out: 0 };
        }
        stream.len = stream.len.saturating_add(len).min(AHEAD_MAX * SHARE);
        // Bytes that were left out may be fetched late.
        let late = stream.end.saturating_sub(pa).min(len) * GAP_WEIGHT;
        let gap = pa.saturating_sub(stream.end) * GAP_WEIGHT;
        stream.left_out = stream.left_out.saturating_sub(late).saturating_add(gap).min(2 * AHEAD_MAX * SHARE);
        stream.end = stream.end.max(pa.saturating_add(len));
        stream.announced = stream.announced.max(stream.end);
        let ahead = stream.len.saturating_sub(stream.left_out) / SHARE;
        let wanted = stream.announced..stream.end.saturating_add(ahead);
        // A hint for each half of the window, not for each fetch.
        if ahead < AHEAD_MIN || wanted.start.saturating_add(ahead / 2) > wanted.end {
            return None;
        }
        stream.announced = wanted.end;
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that are announced for fetches of these ranges, and the last end.
    fn announced(fetches: impl IntoIterator<Item = Range<u64>>) -> (u64, u64) {
        let readahead = ReadaheadStreams::default();
        let ranges = fetches.into_iter().filter_map(|fetch| readahead.step(0, fetch.start, fetch.end - fetch.start));
        ranges.fold((0, 0), |(sum, _), range| (sum + range.end - range.start, range.end))
    }

    #[test]
    fn files_in_order_are_announced_once_and_not_too_far() {
        let files = (0..1000).map(|file| file * 8192..file * 8192 + 8000);
        let (bytes, end) = announced(files);
        assert!(end > 1000 * 8192 && end <= 1000 * 8192 + AHEAD_MAX, "{end}");
        assert!(bytes <= end);
        // Little was read, so little is announced.
        let (bytes, end) = announced((0..20).map(|file| file * 8192..(file + 1) * 8192));
        assert!(bytes > 0 && end < 20 * 8192 * 5 / 4 + 1, "{end}");
        assert_eq!(announced((0..4).map(|file| file * 8192..(file + 1) * 8192)), (0, 0));
    }

    #[test]
    fn pages_here_and_there_and_strides_are_not() {
        assert_eq!(announced((0..1000).map(|page| (page * 7919 % 1009) << 20).map(|at| at..at + 65536)), (0, 0));
        assert_eq!(announced((0..1000).map(|step| step << 17).map(|at| at..at + 65536)), (0, 0));
    }

    #[test]
    fn several_readers_have_streams_of_their_own_and_threads_may_overtake() {
        let one = (0..400).map(|file| file * 8192..(file + 1) * 8192);
        let two = one.clone().map(|range| range.start + (1 << 40)..range.end + (1 << 40));
        let (bytes, _) = announced(one.clone().zip(two).flat_map(|(a, b)| [a, b]));
        assert_eq!(bytes, 2 * announced(one.clone()).0);
        // Once there is a stream.
        let swapped =
            (0..400).map(|file| if file < 50 { file } else { file ^ 3 }).map(|file| file * 8192..(file + 1) * 8192);
        assert!(announced(swapped).0 >= announced(one).0 / 10 * 9);
    }

    #[test]
    fn addresses_at_the_end_of_the_world() {
        let readahead = ReadaheadStreams::default();
        for _ in 0..10 {
            readahead.step(0, u64::MAX - 100, u64::MAX);
        }
    }
}
