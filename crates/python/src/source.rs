//! Images read through an object of Python: a file object, a file of fsspec.

use kiln_read::{RangeMut, ReadAt};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::io;

/// Object with the methods of `kilnfs._native.Source`. It holds the interpreter only during its own
/// calls.
pub(crate) struct PythonSource {
    object: Py<PyAny>,
    len: u64,
}

impl PythonSource {
    /// Makes a source of `object`, and reads its length once.
    ///
    /// # Errors
    /// `TypeError` for an object without these methods; exceptions of `length`.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.hasattr("read_ranges")? || !object.hasattr("length")? {
            let class = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("an image is a path, a buffer or a source, not {class}")));
        }
        let len = object.call_method0("length")?.extract()?;
        Ok(PythonSource { object: object.clone().unbind(), len })
    }

    fn fetch(&self, py: Python<'_>, ranges: &mut [RangeMut<'_>]) -> PyResult<()> {
        let wanted = PyList::new(py, ranges.iter().map(|range| (range.off, range.buf.len())))?;
        let parts = self.object.bind(py).call_method1("read_ranges", (wanted,))?;
        let mut parts = parts.try_iter()?;
        for range in ranges {
            let (off, len) = (range.off, range.buf.len());
            let Some(part) = parts.next().transpose()? else {
                return Err(short(off, len, 0));
            };
            copy(py, &part, range.buf).map_err(|found| short(off, len, found))?;
        }
        Ok(())
    }
}

/// Copies a part into its place. The error is its length, if that is wrong.
fn copy(py: Python<'_>, part: &Bound<'_, PyAny>, buf: &mut [u8]) -> Result<(), usize> {
    if let Ok(bytes) = part.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return if bytes.len() == buf.len() {
            buf.copy_from_slice(bytes);
            Ok(())
        } else {
            Err(bytes.len())
        };
    }
    let buffer = PyBuffer::<u8>::get(part).map_err(|_| 0_usize)?;
    match buffer.item_count() == buf.len() {
        true => buffer.copy_to_slice(py, buf).map_err(|_| 0),
        false => Err(buffer.item_count()),
    }
}

fn short(off: u64, len: usize, found: usize) -> PyErr {
    let error = format!("the source returned {found} of {len} bytes at byte {off}");
    PyOSError::new_err((rustix::io::Errno::IO.raw_os_error(), error))
}

impl ReadAt for PythonSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.read_ranges(&mut [RangeMut { off, buf }])
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        let end = |range: &RangeMut<'_>| range.off.checked_add(range.buf.len() as u64);
        if ranges.iter().any(|range| end(range).is_none_or(|end| end > self.len)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The exception itself is passed to the caller.
        Python::attach(|py| self.fetch(py, ranges)).map_err(io::Error::other)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        // A failed hint is not an error: the read that follows reports the problem.
        Python::attach(|py| {
            let _ = self.object.bind(py).call_method1("will_need", (off, len));
        });
    }
}
