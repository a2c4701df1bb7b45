//! Buffers from Python.
#![allow(unsafe_code)]

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

/// Contiguous, writable memory of Python, held for as long as this value.
pub(crate) struct WritableBuffer(PyBuffer<u8>);

impl WritableBuffer {
    /// Takes the memory of `object`.
    ///
    /// # Errors
    /// The object has no buffer, or a read-only one, or one with gaps.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = match PyBuffer::<u8>::get(object) {
            Ok(buffer) => buffer,
            // Elements of other types are cast to bytes.
            Err(_) => {
                let bytes = pyo3::types::PyMemoryView::from(object)?.call_method1("cast", ("B",))?;
                PyBuffer::<u8>::get(&bytes)?
            }
        };
        match (buffer.readonly(), buffer.is_c_contiguous()) {
            (true, _) => Err(PyTypeError::new_err("the buffer is read-only: it must be writable")),
            (false, false) => Err(PyValueError::new_err("the buffer has gaps: it must be contiguous")),
            (false, true) => Ok(WritableBuffer(buffer)),
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Returns the bytes. A program may write to a writable buffer at any time, as with `readinto`
    /// of any file: if two threads do so at once, the result is any mixture of the two.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.0.buf_ptr().cast::<u8>(), self.len());
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the buffer is contiguous, writable, initialised, and held; bytes have no invalid
        // values.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Returns integers from a buffer of 32-bit or 64-bit integers, or from an iterable. `argument`
/// names them in errors.
///
/// Elements whose format has a byte order (`>i`, `!i`, `<i`) are read one by one through the
/// object: PyO3 0.30 takes `>` for the order of a little-endian machine.
pub(crate) fn integers(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Vec<u64>> {
    let py = object.py();
    if let Ok(buffer) = pyo3::buffer::PyUntypedBuffer::get(object) {
        if buffer.dimensions() != 1 {
            return Err(PyValueError::new_err(format!(
                "{argument}: a buffer of one dimension, not {}",
                buffer.dimensions()
            )));
        }
        if buffer.item_count() == 0 {
            // An empty buffer may have no address, which no type accepts.
            return Ok(Vec::new());
        }
        if matches!(buffer.format().to_bytes(), [b'<' | b'>' | b'!', ..]) {
            return iterated(object, argument);
        }
        if let Ok(buffer) = buffer.as_typed::<u64>() {
            return buffer.to_vec(py);
        }
        if let Ok(buffer) = buffer.as_typed::<i64>() {
            return converted(py, buffer, argument);
        }
        if let Ok(buffer) = buffer.as_typed::<u32>() {
            return Ok(buffer.to_vec(py)?.into_iter().map(u64::from).collect());
        }
        if let Ok(buffer) = buffer.as_typed::<i32>() {
            return converted(py, buffer, argument);
        }
        let format = buffer.format().to_string_lossy().into_owned();
        return Err(PyTypeError::new_err(format!(
            "{argument}: a buffer of 32-bit or 64-bit integers, not of '{format}'"
        )));
    }
    iterated(object, argument)
}

/// Returns integers from an iterable.
fn iterated(object: &Bound<'_, PyAny>, argument: &str) -> PyResult<Vec<u64>> {
    let mut numbers = Vec::with_capacity(object.len().unwrap_or(0));
    for item in object.try_iter()? {
        let item = item?;
        let number = item.extract::<u64>();
        numbers.push(number.map_err(|error| match item.extract::<i64>() {
            Ok(number) => out_of_range(argument, number),
            Err(_) => error,
        })?);
    }
    Ok(numbers)
}

fn converted<T: Element + Copy + Display>(py: Python<'_>, buffer: &PyBuffer<T>, argument: &str) -> PyResult<Vec<u64>>
where
    u64: TryFrom<T>,
{
    let convert = |number: T| u64::try_from(number).map_err(|_| out_of_range(argument, number));
    buffer.to_vec(py)?.into_iter().map(convert).collect()
}

fn out_of_range(argument: &str, number: impl Display) -> PyErr {
    PyValueError::new_err(format!("{argument}: {number} is negative"))
}
