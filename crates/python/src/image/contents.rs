//! Contents of single files, copied or as views.

use crate::arguments::FileRef;
use crate::batch::files::Files;
use crate::handle::Image;
use crate::memory;
use bytes::Bytes;
use kiln_read::{FollowLast, ReadError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::Range;

/// Reads a range of a file.
pub(super) fn read<'py>(
    py: Python<'py>,
    handle: &Image,
    file: &FileRef,
    range: Range<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    handle.refuse_foreign(py, file)?;
    let reader = handle.get()?;
    let fail = |error: ReadError| handle.exception(py, &error, &file.subject());
    let inode = py.detach(|| file.inode(&reader, FollowLast::Follow)).map_err(fail)?;
    let range = range.start..range.end.min(inode.size()).max(range.start);
    let (start, len) = (range.start, range.end - range.start);
    if len > reader.at_once_max() {
        // The length of the file is only a claim of the image so far: memory grows with what is
        // read.
        let read = || {
            let bytes = reader.read_bytes(&inode, range)?;
            handle.verified(&reader, &inode, start, &bytes).map(|()| bytes)
        };
        return Ok(PyBytes::new(py, &py.detach(read).map_err(fail)?));
    }
    let mut read = Ok(());
    let bytes = PyBytes::new_with(py, len as usize, |buf| {
        read = py.detach(|| {
            reader.read_at(&inode, buf, start)?;
            handle.verified(&reader, &inode, start, buf)
        });
        Ok(())
    })?;
    match read {
        Ok(()) => Ok(bytes),
        Err(error) => Err(fail(error)),
    }
}

/// Reads a file from byte `start` on into `buf`, and returns the number of bytes read.
pub(super) fn read_into(py: Python<'_>, handle: &Image, file: &FileRef, start: u64, buf: &mut [u8]) -> PyResult<usize> {
    handle.detached(py, Some(file), |reader| {
        let inode = file.inode(reader, FollowLast::Follow)?;
        let len = reader.read_at(&inode, buf, start)?;
        handle.verified(reader, &inode, start, &buf[..len]).map(|()| len)
    })
}

/// Returns a read-only view of a range of a file.
pub(super) fn view<'py>(
    py: Python<'py>,
    handle: &Image,
    file: &FileRef,
    range: Range<u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let start = range.start;
    let bytes: Bytes = handle.detached(py, Some(file), |reader| {
        let inode = file.inode(reader, FollowLast::Follow)?;
        let bytes = reader.read_bytes(&inode, start..range.end.min(inode.size()).max(start))?;
        handle.verified(reader, &inode, start, &bytes).map(|()| bytes)
    })?;
    memory::fixed_view(py, bytes)
}

/// Returns a read-only view of each file.
pub(super) fn views<'py>(image: &Bound<'py, Image>, files: &Files) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (py, handle) = (image.py(), image.get());
    let reader = handle.get()?;
    let read = || -> Result<Vec<Bytes>, (usize, ReadError)> {
        let each = |nth| {
            let inode = files.inode(&reader, nth)?;
            let bytes = reader.read_bytes(&inode, 0..inode.size())?;
            handle.verified(&reader, &inode, 0, &bytes).map(|()| bytes)
        };
        (0..files.len()).map(|nth| each(nth).map_err(|error| (nth, error))).collect()
    };
    let parts = py.detach(read).map_err(|(nth, error)| handle.exception(py, &error, &files.subject(image, nth)))?;
    parts.into_iter().map(|bytes| memory::fixed_view(py, bytes)).collect()
}
