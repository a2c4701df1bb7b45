//! Batch reads: many files, or ranges of them, in one call.
//!
//! Plain algorithm: look up where each range is stored, sort the ranges by that, and let threads
//! take batches of them from front to back. So sources are read forwards, and ranges that share a
//! pcluster are neighbours: the pcluster is decoded once, as far as the last of them needs it, and
//! each range gets its part without a copy. How a thread reads a batch is in
//! [`batch_worker`](super::batch_worker).

use super::batch_plan::{BatchItem, FileRange, ITEM_LEN, ReadUnit};
use super::batch_worker::{BatchOutput, Item, Worker};
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::options::read_policy::SourcePrefetch;
use kiln_parallel::{Threads, unordered};
use std::ops::Range;

/// Most bytes of a batch that are announced to a source.
const HINT_MAX_LEN: u64 = 16 << 20;
/// Bytes between two units that are announced with them: one request is cheaper than two.
const HINT_GAP_LEN: u64 = 64 << 10;

impl<'a> Reader<'a> {
    /// Implements `Image::read_many`.
    pub(crate) fn read_many(self, ranges: &[FileRange], threads: Threads, each: &(dyn Fn(BatchItem<'_>) + Sync)) {
        let plan = self.plan_batch(ranges, each);
        let batches: Vec<_> = self.batches(&plan.units, threads).into_iter().map(|batch| &plan.units[batch]).collect();
        unordered::run(threads, (0..batches.len()).collect(), || {
            let mut worker = Worker::new(self, &plan);
            let mut output = Callback { each, buf: Vec::new() };
            let batches = &batches;
            move |idx: usize| {
                // Those between are fetched by the other threads.
                if let Some(later) = batches.get(idx.saturating_add(threads.count())) {
                    self.announce(later);
                }
                worker.read_batch(batches[idx], |unit| &ranges[unit.idx].inode, &mut output);
            }
        });
    }
}

impl<'a> Reader<'a> {
    /// Tells the device which bytes a batch will read: those of each unit, and what lies between
    /// units that are near each other. If it is known that fetches are not slow, their bytes are in
    /// memory, and telling so costs as much as reading them.
    pub(super) fn announce(self, units: &[ReadUnit]) {
        let policy = &self.volume.policy;
        if policy.prefetch == SourcePrefetch::Off || policy.latency.is_some() && !self.is_cold() {
            return;
        }
        let mut run = None::<(u16, Range<u64>)>;
        let mut left = HINT_MAX_LEN;
        for (device, bytes) in units.iter().filter_map(ReadUnit::stored) {
            match &mut run {
                Some((of, run)) if *of == device && bytes.start <= run.end.saturating_add(HINT_GAP_LEN) => {
                    run.end = run.end.max(bytes.end);
                }
                _ => left = self.announce_run(run.replace((device, bytes)), left),
            }
        }
        self.announce_run(run, left);
    }

    /// Announces the first `left` bytes of a run. How many are left then.
    fn announce_run(self, run: Option<(u16, Range<u64>)>, left: u64) -> u64 {
        let Some((device, bytes)) = run.filter(|_| left > 0) else { return left };
        let len = (bytes.end - bytes.start).min(left);
        self.will_need(device, bytes.start, len);
        left - len
    }
}

/// The caller's function, which gets items from memory that the next item reuses.
struct Callback<'a> {
    each: &'a dyn Fn(BatchItem<'_>),
    buf: Vec<u8>,
}

impl BatchOutput for Callback<'_> {
    const ITEM_LEN: u64 = ITEM_LEN;
    const HAS_MEMORY_OF_UNITS: bool = false;

    fn memory(&mut self, _nth: usize, len: usize) -> &mut [u8] {
        grow_to(&mut self.buf, len)
    }

    fn memories(&mut self) -> Vec<&mut [u8]> {
        Vec::new()
    }

    fn give(&mut self, item: &Item, bytes: Result<Option<&[u8]>, ReadError>) {
        let bytes = bytes.map(|bytes| bytes.unwrap_or_else(|| grow_to(&mut self.buf, item.len)));
        (self.each)(BatchItem { idx: item.idx, off: item.off, bytes });
    }
}
