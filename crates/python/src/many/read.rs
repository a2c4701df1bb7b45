//! Contents of many files in one buffer.

use crate::arguments::buffer::WritableBuffer;
use crate::errors;
use crate::image::Image;
use crate::many::batch::{Batch, BatchData};
use crate::many::files::Files;
use crate::memory::{Pool, PooledBlock, physical_memory};
use kiln_parallel::Threads;
use kiln_read::{FileRangeMut, Image as ReadImage, Inode, ReadError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::Range;
use std::sync::Arc;

/// What becomes of errors of single files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnError {
    Raise,
    Return,
}

/// A call of `read_many`.
pub(crate) struct ReadMany {
    pub files: Files,
    pub ranges: Option<Vec<(u64, u64)>>,
    pub threads: Threads,
    pub on_error: OnError,
}

/// The part of each file that is read, its place in the buffer, and what is wrong with files that cannot be read.
pub(crate) struct ReadPlan {
    inodes: Vec<Option<Inode>>,
    starts: Vec<u64>,
    pub offsets: Vec<i64>,
    pub errors: Vec<(usize, ReadError)>,
}

impl ReadPlan {
    /// Look all files up, on `threads`. An error of one file takes no room.
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

    /// Bytes of all files.
    pub(crate) fn len(&self) -> u64 {
        self.offsets.last().map_or(0, |end| end.unsigned_abs())
    }

    /// Read all files into `data`, which is as long as they are together.
    pub(crate) fn read(&mut self, of: &Image, image: &ReadImage, data: &mut [u8], threads: Threads) {
        let (mut rest, mut reads, mut places) = (data, Vec::with_capacity(self.inodes.len()), Vec::new());
        for (nth, inode) in self.inodes.iter().enumerate() {
            let len = (self.offsets[nth + 1] - self.offsets[nth]) as usize;
            let (buf, behind) = rest.split_at_mut(len);
            rest = behind;
            if let (Some(inode), 1..) = (inode, len) {
                reads.push(FileRangeMut { inode: *inode, off: self.starts[nth], buf });
                places.push(nth);
            }
        }
        let mut results = image.read_many_into(&mut reads, threads);
        for (result, read) in results.iter_mut().zip(&reads) {
            if result.is_ok() {
                *result = of.verified(image, &read.inode, read.off, &*read.buf).map(|()| read.buf.len());
            }
        }
        self.errors.extend(results.into_iter().zip(places).filter_map(|(result, nth)| Some((nth, result.err()?))));
        self.errors.sort_by_key(|&(nth, _)| nth);
    }
}

/// The file if it is a regular one, and the part of `range` that it has.
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
        // The same refusal as that of a file which is read alone, before memory is taken.
        image.read_bytes(&inode, start..end)?;
    }
    Ok((inode, start..end))
}

impl ReadMany {
    /// Read, and give the batch.
    pub(crate) fn run<'py>(self, slf: &Bound<'py, Image>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Batch> {
        let (py, image) = (slf.py(), slf.get());
        let opened = image.get()?;
        let count = self.files.len();
        if let Some(ranges) = &self.ranges {
            if ranges.len() != count {
                let message = format!("{} ranges for {count} files", ranges.len());
                return Err(PyValueError::new_err(message));
            }
            if let Some((start, stop)) = ranges.iter().find(|(start, stop)| start > stop) {
                return Err(PyValueError::new_err(format!("range {start}..{stop}: it ends before it begins")));
            }
        }
        let mut plan = py.detach(|| ReadPlan::of(&opened, &self.files, self.ranges.as_deref(), self.threads));
        self.raise_first(slf, &plan)?;
        let data = match out {
            Some(out) => {
                let mut buffer = WritableBuffer::of(out)?;
                if (buffer.len() as u64) < plan.len() {
                    let message = format!("out: {} bytes, and the files have {}", buffer.len(), plan.len());
                    return Err(PyValueError::new_err(message));
                }
                let data = &mut buffer.bytes_mut()[..plan.len() as usize];
                py.detach(|| plan.read(image, &opened, data, self.threads));
                BatchData::Callers(out.clone().unbind())
            }
            None => {
                let mut block = block_for(&image.pool, plan.len())?;
                let data = block.bytes_mut(plan.len() as usize);
                py.detach(|| plan.read(image, &opened, data, self.threads));
                BatchData::Pooled(block)
            }
        };
        self.raise_first(slf, &plan)?;
        let errors = PyDict::new(py);
        for (nth, error) in &plan.errors {
            errors.set_item(nth, image.exception(py, error, &self.files.subject(slf, *nth)))?;
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

/// Memory for so many bytes, unless the machine has less.
pub(crate) fn block_for(pool: &Arc<Pool>, len: u64) -> PyResult<PooledBlock> {
    match usize::try_from(len) {
        Ok(bytes) if len <= physical_memory() => pool.take(bytes),
        _ => Err(errors::memory("the contents of all files", len)),
    }
}
