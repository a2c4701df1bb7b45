//! Access pattern detector: which files are read at random.
//!
//! A reader that jumps back far in a file reads it at random, and will come back to what it passes
//! over now. A reader that only goes forward, in strides or not, will not come back. The first
//! access to an extent does not tell the two apart; the reads of the same file before it do. A
//! table of hashes remembers where the last read of a file ended, until another file falls on its
//! slot.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// log2 of how many files are remembered at most.
const SLOTS_BITS: u32 = 10;
/// A jump back is far if it is longer than one part in this many of the file: threads that read
/// side by side get out of order by less.
const FAR: u64 = 16;
/// Number of reads that count as random after a jump back.
const READS: u64 = 8;

/// The low bits of a slot: how many of the next reads count as random; above them, where the last
/// read ended, in units. The others are a hash.
const READS_BITS: u32 = 4;
const END_BITS: u32 = 40;
const HASH: u64 = !0 << (READS_BITS + END_BITS);
/// log2 of a unit of ends: files are remembered up to 2^52 bytes.
const UNIT_BITS: u32 = 12;
const _: () = assert!(READS < 1 << READS_BITS);

/// Pattern in which a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AccessPattern {
    /// Forward, as far as the detector knows.
    #[default]
    Sequential,
    /// With jumps back.
    Random,
}

pub(crate) struct AccessPatterns {
    slots: Box<[AtomicU64]>,
}

impl AccessPatterns {
    pub(super) fn new() -> Self {
        Self { slots: (0..1 << SLOTS_BITS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Remembers a read of bytes `wanted` of file `nid`, which has `size` bytes. Returns how the
    /// file is read. Threads that read one file at the same time may overwrite each other's slot:
    /// the cost is a wrong guess, nothing else.
    pub(crate) fn step(&self, nid: u64, wanted: &Range<u64>, size: u64) -> AccessPattern {
        // 2^64 divided by the golden ratio; its highest bits are a hash.
        let hash = nid.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let slot = &self.slots[(hash << (64 - READS_BITS - END_BITS) >> (64 - SLOTS_BITS)) as usize];
        let last = slot.load(Ordering::Relaxed);
        let (mut reads, mut last_end) = (0, 0);
        if last & HASH == hash & HASH {
            reads = last & ((1 << READS_BITS) - 1);
            last_end = (last & !HASH) >> READS_BITS << UNIT_BITS;
        }
        let far = size / FAR;
        let is_far = last_end.saturating_sub(wanted.start) > far;
        // A reader that was at the end of the file starts over.
        let is_over = last_end > size - far;
        reads = if is_far && !is_over { READS } else { reads.saturating_sub(1) };
        let end = (wanted.end >> UNIT_BITS << READS_BITS) & !HASH;
        slot.store(hash & HASH | end | reads, Ordering::Relaxed);
        if reads > 0 { AccessPattern::Random } else { AccessPattern::Sequential }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    /// Reads of a page at each of these places, in MiB.
    fn access_patterns(places: &[u64]) -> Vec<AccessPattern> {
        let access_patterns = AccessPatterns::new();
        places.iter().map(|place| access_patterns.step(7, &(place << 20..(place << 20) + 4096), SIZE)).collect()
    }

    #[test]
    fn reading_forward_is_sequential() {
        assert!(
            access_patterns(&(0..64).collect::<Vec<_>>()).iter().all(|pattern| *pattern == AccessPattern::Sequential)
        );
        // Starting over is sequential, and so are threads that overtake each other a little.
        let twice: Vec<_> = (0..64).chain(0..64).collect();
        assert!(access_patterns(&twice).iter().all(|pattern| *pattern == AccessPattern::Sequential));
        assert_eq!(access_patterns(&[0, 2, 1, 4, 3, 7, 5]), [AccessPattern::Sequential; 7]);
    }

    #[test]
    fn a_jump_back_counts_for_a_while() {
        let found = access_patterns(&[40, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(found[0], AccessPattern::Sequential);
        assert_eq!(found[1..9], [AccessPattern::Random; 8]);
        assert_eq!(found[9..], [AccessPattern::Sequential; 2]);
    }

    #[test]
    fn files_have_patterns_of_their_own() {
        let access_patterns = AccessPatterns::new();
        for place in (0..64 << 20).step_by(1 << 20) {
            assert_eq!(access_patterns.step(1, &(place..place + 4096), SIZE), AccessPattern::Sequential);
            let elsewhere = place * 37 % SIZE;
            access_patterns.step(2, &(elsewhere..elsewhere + 4096), SIZE);
        }
        assert_eq!(access_patterns.step(2, &(0..4096), SIZE), AccessPattern::Random);
    }
}
