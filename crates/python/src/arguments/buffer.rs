//! Buffers that Python hands over.
#![allow(unsafe_code)]

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

/// Memory of Python that is written to, contiguous, and held for as long as this.
pub(crate) struct WritableBuffer(PyBuffer<u8>);

impl WritableBuffer {
    /// The memory of `object`.
    ///
    /// # Errors
    /// No buffer, one that is read-only or has gaps.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = match PyBuffer::<u8>::get(object) {
            Ok(buffer) => buffer,
            // Other elements are bytes, too.
            Err(_) => {
                let bytes = pyo3::types::PyMemoryView::from(object)?.call_method1("cast", ("B",))?;
                PyBuffer::<u8>::get(&bytes)?
            }
        };
        match (buffer.readonly(), buffer.is_c_contiguous()) {
            (true, _) => Err(PyTypeError::new_err("a writable buffer is needed, and this one is read-only")),
            (false, false) => Err(PyValueError::new_err("the buffer has gaps: it must be contiguous")),
            (false, true) => Ok(WritableBuffer(buffer)),
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// The bytes. Who holds a writable buffer may write to it at any time, as with `readinto` of every file: programs that do so from
    /// two threads at once get any mixture of the two.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.0.buf_ptr().cast::<u8>(), self.len());
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the buffer is contiguous, writable, initialised, and held; bytes have no invalid values.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Whole numbers from a buffer of any of the usual types, or from a sequence. `what` names them in errors.
///
/// Elements whose format names a byte order (`>i`, `!i`, `<i`) are read one by one, by the object that has them: PyO3 0.30 takes
/// `>` for this machine's order where that is `<`.
pub(crate) fn integers(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u64>> {
    let py = object.py();
    if let Ok(buffer) = pyo3::buffer::PyUntypedBuffer::get(object) {
        if buffer.dimensions() != 1 {
            return Err(PyValueError::new_err(format!(
                "{what}: a buffer of one dimension, not {}",
                buffer.dimensions()
            )));
        }
        if buffer.item_count() == 0 {
            // It may have no address, which is that of no type.
            return Ok(Vec::new());
        }
        if matches!(buffer.format().to_bytes(), [b'<' | b'>' | b'!', ..]) {
            return iterated(object, what);
        }
        if let Ok(buffer) = buffer.as_typed::<u64>() {
            return buffer.to_vec(py);
        }
        if let Ok(buffer) = buffer.as_typed::<i64>() {
            return converted(py, buffer, what);
        }
        if let Ok(buffer) = buffer.as_typed::<u32>() {
            return Ok(buffer.to_vec(py)?.into_iter().map(u64::from).collect());
        }
        if let Ok(buffer) = buffer.as_typed::<i32>() {
            return converted(py, buffer, what);
        }
        let format = buffer.format().to_string_lossy().into_owned();
        return Err(PyTypeError::new_err(format!("{what}: a buffer of 32-bit or 64-bit integers, not of '{format}'")));
    }
    iterated(object, what)
}

/// Whole numbers that an object gives one by one.
fn iterated(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u64>> {
    let mut numbers = Vec::with_capacity(object.len().unwrap_or(0));
    for item in object.try_iter()? {
        let item = item?;
        let number = item.extract::<u64>();
        numbers.push(number.map_err(|error| match item.extract::<i64>() {
            Ok(number) => out_of_range(what, number),
            Err(_) => error,
        })?);
    }
    Ok(numbers)
}

fn converted<T: Element + Copy + Display>(py: Python<'_>, buffer: &PyBuffer<T>, what: &str) -> PyResult<Vec<u64>>
where
    u64: TryFrom<T>,
{
    let convert = |number: T| u64::try_from(number).map_err(|_| out_of_range(what, number));
    buffer.to_vec(py)?.into_iter().map(convert).collect()
}

fn out_of_range(what: &str, number: impl Display) -> PyErr {
    PyValueError::new_err(format!("{what}: {number} is below 0"))
}
