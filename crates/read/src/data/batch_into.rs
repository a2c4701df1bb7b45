//! Batch reads into the caller's memory.
//!
//! Units and batches are those of [`read_many`](crate::Image::read_many); what differs is where
//! bytes go. An extent that is wanted whole is decoded where the caller wants it, and plain data is
//! read there: nothing is copied.

use super::batch_plan::{BatchItem, FileRange, ReadUnit};
use super::batch_worker::{BatchOutput, Item, Worker};
use super::read::readable;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use kiln_parallel::locks::{into_inner, lock};
use kiln_parallel::{Threads, unordered};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Mutex;

/// A range of a file's contents, and where its bytes go.
#[derive(Debug)]
pub struct FileRangeMut<'a> {
    /// The file.
    pub inode: Inode,
    /// First byte of the file.
    pub off: u64,
    /// Filled up to the end of the file.
    pub buf: &'a mut [u8],
}

/// Errors of ranges: for each range the first byte that has one, and the error.
type RangeErrors = Vec<(usize, u64, ReadError)>;

/// Units that one thread reads in one go, and where their bytes go.
type UnitBatch<'u, 'b> = (&'u [ReadUnit], &'u mut [&'b mut [u8]]);

impl<'a> Reader<'a> {
    /// Implements `Image::read_many_into`.
    pub(crate) fn read_many_into(
        self,
        reads: &mut [FileRangeMut<'_>],
        threads: Threads,
    ) -> Vec<Result<usize, ReadError>> {
        let range = |read: &FileRangeMut<'_>| FileRange {
            inode: read.inode,
            range: read.off..read.off.saturating_add(read.buf.len() as u64),
        };
        let ranges: Vec<FileRange> = reads.iter().map(range).collect();
        let planned = RefCell::new(RangeErrors::new());
        let plan = self.plan_batch(&ranges, &|BatchItem { idx, off, bytes }| {
            planned.borrow_mut().extend(bytes.err().map(|error| (idx, off, error)));
        });
        let errors = Mutex::new(planned.into_inner());
        let mut buffers = unit_buffers(&plan.units, reads);
        let batches = self.batches(&plan.units, threads);
        unordered::run(threads, batched(batches, &plan.units, &mut buffers), || {
            let mut worker = Worker::new(self, &plan);
            let (errors, ranges) = (&errors, &ranges);
            move |(units, buffers): UnitBatch<'_, '_>| {
                self.announce(units);
                let mut output = CallerMemory { buffers, errors };
                worker.read_batch(units, |unit| &ranges[unit.idx].inode, &mut output);
            }
        });
        let mut results: Vec<_> =
            ranges.iter().zip(reads).map(|(range, read)| readable(&range.inode, read.buf.len(), read.off)).collect();
        let mut errors = into_inner(errors);
        // Of several errors of a range, the first one in the file: whichever thread met its own
        // first.
        errors.sort_by_key(|&(idx, off, _)| (idx, std::cmp::Reverse(off)));
        errors.into_iter().for_each(|(idx, _, error)| results[idx] = Err(error));
        results
    }
}

/// The caller's buffers of the units of a batch.
struct CallerMemory<'a, 'b> {
    buffers: &'a mut [&'b mut [u8]],
    errors: &'a Mutex<RangeErrors>,
}

impl BatchOutput for CallerMemory<'_, '_> {
    const ITEM_LEN: u64 = u64::MAX;
    const HAS_MEMORY_OF_UNITS: bool = true;

    fn memory(&mut self, nth: usize, len: usize) -> &mut [u8] {
        &mut self.buffers[nth][..len]
    }

    fn memories(&mut self) -> Vec<&mut [u8]> {
        self.buffers.iter_mut().map(|buf| &mut **buf).collect()
    }

    fn give(&mut self, item: &Item, bytes: Result<Option<&[u8]>, ReadError>) {
        match bytes {
            Ok(Some(bytes)) => self.memory(item.nth, item.len).copy_from_slice(bytes),
            Ok(None) => {}
            Err(error) => {
                lock(self.errors).push((item.idx, item.off, error));
            }
        }
    }
}

/// Returns the part of its range's buffer that each unit fills.
fn unit_buffers<'b>(units: &[ReadUnit], reads: &'b mut [FileRangeMut<'_>]) -> Vec<&'b mut [u8]> {
    let mut in_files: Vec<usize> = (0..units.len()).collect();
    in_files.sort_unstable_by_key(|&nth| (units[nth].idx, units[nth].range.start));
    let mut buffers: Vec<&mut [u8]> = units.iter().map(|_| Default::default()).collect();
    let mut in_files = in_files.into_iter().peekable();
    for (idx, read) in reads.iter_mut().enumerate() {
        let mut rest = &mut *read.buf;
        while let Some(nth) = in_files.next_if(|&nth| units[nth].idx == idx) {
            let Range { start, end } = units[nth].range;
            (buffers[nth], rest) = rest.split_at_mut((end - start) as usize);
        }
    }
    buffers
}

/// Returns units and their buffers by batches.
fn batched<'u, 'b>(
    batches: Vec<Range<usize>>,
    units: &'u [ReadUnit],
    buffers: &'u mut [&'b mut [u8]],
) -> Vec<UnitBatch<'u, 'b>> {
    let mut rest = buffers;
    let with_buffers = |batch: Range<usize>| {
        let (here, behind) = std::mem::take(&mut rest).split_at_mut(batch.len());
        rest = behind;
        (&units[batch], here)
    };
    batches.into_iter().map(with_buffers).collect()
}
