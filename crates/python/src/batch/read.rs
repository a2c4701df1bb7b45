//! Reading of many files into one buffer.

use super::files::Files;
use super::{Batch, BatchData};
use crate::arguments::buffer::WritableBuffer;
use crate::errors;
use crate::handle::Image;
use crate::memory::{Pool, PooledBlock, physical_memory};
use kiln_parallel::Threads;
use kiln_read::{FileRangeMut, Image as ReadImage, Inode, ReadError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::Range;
use std::sync::Arc;

/// Treatment of errors of single files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnError {
    Raise,
    Return,
}

/// Arguments of a call of `read_many`.
pub(crate) struct ReadMany {
    pub files: Files,
    pub ranges: Option<Vec<(u64, u64)>>,
    pub threads: Threads,
    pub on_error: OnError,
}

/// Range of each file that is read, its place in the buffer, and the errors of files that cannot be
/// read.
pub(crate) struct ReadPlan {
    inodes: Vec<Option<Inode>>,
    starts: Vec<u64>,
    pub offsets: Vec<i64>,
    pub errors: Vec<(usize, ReadError)>,
}

impl ReadPlan {
    /// Looks up all files, on `threads`. A file with an error takes no room in the buffer.
    pub(crate) fn of(image: &ReadImage, files: &Files, ranges: Option<&[(u64, u64)]>, threads: Threads) -> Self {
        let count = files.len();
        let mut plan = ReadPlan {
            inodes: Vec::with_capacity(count),
            starts: Vec::with_capacity(count),
            offsets: Vec::with_capacity(count + 1),
            errors: Vec::new(),
        };
        plan.offsets.push(0);
        let mut end = 0_i64;
        for (nth, inode) in files.inodes(image, threads).into_iter().enumerate() {
            let (start, stop) = ranges.map_or((0, u64::MAX), |ranges| ranges[nth]);
            let (inode, range) = match inode.and_then(|inode| readable(image, inode, start..stop)) {
                Ok((inode, range)) => (Some(inode), range),
                Err(error) => {
                    plan.errors.push((nth, error));
                    (None, 0..0)
                }
            };
            end = end.saturating_add_unsigned(range.end - range.start);
            plan.inodes.push(inode);
            plan.starts.push(range.start);
            plan.offsets.push(end);
        }
        plan
    }

    /// Returns the total length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.offsets.last().map_or(0, |end| end.unsigned_abs())
    }

    /// Reads all files into `data`, whose length is the total.
    pub(crate) fn read(&mut self, handle: &Image, image: &ReadImage, data: &mut [u8], threads: Threads) {
        let (mut rest, mut reads, mut positions) = (data, Vec::with_capacity(self.inodes.len()), Vec::new());
        for (nth, inode) in self.inodes.iter().enumerate() {
            let len = (self.offsets[nth + 1] - self.offsets[nth]) as usize;
            let (buf, behind) = rest.split_at_mut(len);
            rest = behind;
            if let (Some(inode), 1..) = (inode, len) {
                reads.push(FileRangeMut { inode: *inode, off: self.starts[nth], buf });
                positions.push(nth);
            }
        }
        let mut results = image.read_many_into(&mut reads, threads);
        for (result, read) in results.iter_mut().zip(&reads) {
            if result.is_ok() {
                *result = handle.verified(image, &read.inode, read.off, &*read.buf).map(|()| read.buf.len());
            }
        }
        self.errors.extend(results.into_iter().zip(positions).filter_map(|(result, nth)| Some((nth, result.err()?))));
        self.errors.sort_by_key(|&(nth, _)| nth);
    }
}

/// Returns the file and the part of `range` that it has.
///
/// # Errors
/// The file is not a regular one, or the range is longer than the image allows.
fn readable(image: &ReadImage, inode: Inode, range: Range<u64>) -> Result<(Inode, Range<u64>), ReadError> {
    if inode.is_dir() {
        return Err(ReadError::IsADirectory { path: Vec::new() });
    }
    if !inode.has_contents() {
        return Err(ReadError::NoContents { nid: inode.nid });
    }
    let end = range.end.min(inode.size());
    let start = range.start.min(end);
    if end - start > image.range_len_max() {
        // Fails as the read of a single file does, before memory is taken.
        image.read_bytes(&inode, start..end)?;
    }
    Ok((inode, start..end))
}

impl ReadMany {
    /// Reads the files into `out`, or into memory of the pool, and returns the batch.
    pub(crate) fn run<'py>(self, image: &Bound<'py, Image>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Batch> {
        let (py, handle) = (image.py(), image.get());
        let reader = handle.get()?;
        let count = self.files.len();
        if let Some(ranges) = &self.ranges {
            if ranges.len() != count {
                let message = format!("{} ranges for {count} files", ranges.len());
                return Err(PyValueError::new_err(message));
            }
            if let Some((start, stop)) = ranges.iter().find(|(start, stop)| start > stop) {
                return Err(PyValueError::new_err(format!("range {start}..{stop}: the end is before the start")));
            }
        }
        let mut plan = py.detach(|| ReadPlan::of(&reader, &self.files, self.ranges.as_deref(), self.threads));
        self.raise_first(image, &plan)?;
        let data = match out {
            Some(out) => {
                let mut buffer = WritableBuffer::of(out)?;
                if (buffer.len() as u64) < plan.len() {
                    let message = format!("out: {} bytes, but the files have {}", buffer.len(), plan.len());
                    return Err(PyValueError::new_err(message));
                }
                let data = &mut buffer.bytes_mut()[..plan.len() as usize];
                py.detach(|| plan.read(handle, &reader, data, self.threads));
                BatchData::Callers(out.clone().unbind())
            }
            None => {
                let mut block = block_for(&handle.pool, plan.len())?;
                let data = block.bytes_mut(plan.len() as usize);
                py.detach(|| plan.read(handle, &reader, data, self.threads));
                BatchData::Pooled(block)
            }
        };
        self.raise_first(image, &plan)?;
        let errors = PyDict::new(py);
        for (nth, error) in &plan.errors {
            errors.set_item(nth, handle.exception(py, error, &self.files.subject(image, *nth)))?;
        }
        Batch::new(py, data, plan.offsets, errors)
    }

    fn raise_first(&self, image: &Bound<'_, Image>, plan: &ReadPlan) -> PyResult<()> {
        match plan.errors.first() {
            Some((nth, error)) if self.on_error == OnError::Raise => {
                Err(image.get().exception(image.py(), error, &self.files.subject(image, *nth)))
            }
            _ => Ok(()),
        }
    }
}

/// Takes memory for `len` bytes from the pool.
///
/// # Errors
/// `MemoryError` if the machine has less.
pub(crate) fn block_for(pool: &Arc<Pool>, len: u64) -> PyResult<PooledBlock> {
    match usize::try_from(len) {
        Ok(bytes) if len <= physical_memory() => pool.take(bytes),
        _ => Err(errors::memory("the contents of all files", len)),
    }
}
