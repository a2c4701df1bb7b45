//! Images behind an object of Python: a file object, a file of fsspec.

use kiln_read::{RangeMut, ReadAt};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::io;

/// An object with the methods of `kilnfs._native.Source`. It holds the interpreter within its own calls only.
pub(crate) struct PythonSource {
    object: Py<PyAny>,
    len: u64,
}

impl PythonSource {
    /// The source `object`, whose length is asked for once.
    ///
    /// # Errors
    /// An object without these methods; what `length` raises.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.hasattr("read_ranges")? || !object.hasattr("length")? {
            let class = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("an image is a path, a buffer or a source, not {class}")));
        }
        let len = object.call_method0("length")?.extract()?;
        Ok(PythonSource { object: object.clone().unbind(), len })
    }

    fn fetch(&self, py: Python<'_>, ranges: &mut [RangeMut<'_>]) -> PyResult<()> {
        let asked = PyList::new(py, ranges.iter().map(|range| (range.off, range.buf.len())))?;
        let parts = self.object.bind(py).call_method1("read_ranges", (asked,))?;
        let mut parts = parts.try_iter()?;
        for range in ranges {
            let (off, wanted) = (range.off, range.buf.len());
            let Some(part) = parts.next().transpose()? else {
                return Err(short(off, wanted, 0));
            };
            copy(py, &part, range.buf).map_err(|len| short(off, wanted, len))?;
        }
        Ok(())
    }
}

/// Copy a part into its place; its length, if that is another.
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

fn short(off: u64, wanted: usize, len: usize) -> PyErr {
    let error = format!("the source gave {len} of {wanted} bytes at byte {off}");
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
        // The exception itself travels to the caller.
        Python::attach(|py| self.fetch(py, ranges)).map_err(io::Error::other)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        // A hint that fails is no error: the read that follows says what is wrong.
        Python::attach(|py| {
            let _ = self.object.bind(py).call_method1("will_need", (off, len));
        });
    }
}
