//! Stride prefetch: a reader of one record in every so many bytes of a file will want the records
//! that follow.
//!
//! The kernel's readahead does not detect this, as the bytes between are not read. It pays only
//! where fetches take long: if all bytes are in memory, looking up where the next records lie costs
//! more than it saves. So the image asks only while fetches are
//! [slow](crate::source::latency::Latency::is_slow).

use kiln_parallel::locks::lock;
use std::sync::Mutex;

/// Files whose last reads are remembered.
const SLOTS: u64 = 64;
/// Number of equal steps that make a stride.
const STEPS_MIN: u32 = 2;
/// Number of steps that are announced ahead: while one fetch takes milliseconds, the reads for the
/// next steps arrive.
const STEPS_AHEAD: u64 = 8;

/// The last read of a file.
#[derive(Clone, Copy, Default)]
struct LastRead {
    nid: u64,
    off: u64,
    /// Bytes from the read before to this one, and how many equal steps came one after the other.
    step: u64,
    steps: u32,
}

pub(crate) struct Strides {
    slots: Box<[Mutex<LastRead>]>,
}

impl Strides {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }

    /// Remembers a read of `len` bytes at `off` of file `nid`. Returns where the steps begin that
    /// are to be announced now, if these reads are a stride.
    pub(crate) fn step(&self, nid: u64, off: u64, len: u64) -> Option<impl Iterator<Item = u64> + use<>> {
        let slot = &self.slots[(nid % SLOTS) as usize];
        let mut last = lock(slot);
        let step = off.checked_sub(last.off).filter(|step| last.nid == nid && *step > len).unwrap_or(0);
        let steps = if step > 0 && step == last.step { last.steps.saturating_add(1) } else { u32::from(step > 0) };
        *last = LastRead { nid, off, step, steps };
        // A new stride announces all steps ahead, each later read one more.
        let first = if steps == STEPS_MIN { 1 } else { STEPS_AHEAD };
        (steps >= STEPS_MIN)
            .then(|| (first..=STEPS_AHEAD).filter_map(move |idx| off.checked_add(step.checked_mul(idx)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the offsets that are announced for reads of 10 bytes of one file.
    fn announced(strides: &Strides, nid: u64, offs: &[u64]) -> Vec<u64> {
        offs.iter().filter_map(|&off| strides.step(nid, off, 10)).flatten().collect()
    }

    #[test]
    fn equal_steps_are_announced_once_each() {
        let strides = Strides::new();
        assert!(announced(&strides, 1, &[5, 105]).is_empty());
        let expected: Vec<u64> = (3..=10).map(|idx| 5 + 100 * idx).collect();
        assert_eq!(announced(&strides, 1, &[205]), expected);
        assert_eq!(announced(&strides, 1, &[305, 405]), [1105, 1205]);
        // Another file has a stride of its own, even in the same slot.
        assert!(announced(&strides, 1 + SLOTS, &[505, 605]).is_empty());
    }

    #[test]
    fn other_reads_are_not() {
        for offs in [&[0, 10, 20, 30, 40][..], &[90, 60, 30, 0], &[0, 100, 300, 400, 900], &[7, 7, 7, 7]] {
            assert!(announced(&Strides::new(), 1, offs).is_empty(), "{offs:?}");
        }
        assert_eq!(announced(&Strides::new(), 1, &[0, u64::MAX / 3, u64::MAX / 3 * 2]), [u64::MAX / 3 * 3]);
    }
}
