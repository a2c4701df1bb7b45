//! Contents of many files in one buffer, which `Image.read_many` returns.

pub(crate) mod files;
pub(crate) mod iterate;
pub(crate) mod positions;
pub(crate) mod read;

use crate::arguments::{RowOrSlice, position, positions as positions_of};
use crate::memory::{self, PooledBlock};
use crate::sequence;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PySlice, PyTuple};

/// Memory with the bytes of a batch.
pub(crate) enum BatchData {
    /// Memory of the image's pool.
    Pooled(PooledBlock),
    /// A buffer of the caller.
    Callers(Py<PyAny>),
}

/// Contents of many files in one buffer, in the order of the arguments of `Image.read_many`, which
/// makes it.
///
/// `batch[i]` is a writable `memoryview` of file i, without a copy; a slice is a list of such
/// views. A pickle contains all bytes.
///
/// >>> batch = image.read_many(["cat/1.txt", "dog/1.txt"])
/// >>> len(batch), bytes(batch[1])
/// (2, b'woof\n')
#[pyclass(frozen, sequence, module = "kilnfs._native")]
pub(crate) struct Batch {
    /// View of all bytes, which Python may write to.
    data: Py<PyAny>,
    /// Start of each file in `data`, and the end of the last one.
    offsets: Vec<i64>,
    errors: Py<PyDict>,
}

impl Batch {
    pub(crate) fn new(
        py: Python<'_>,
        data: BatchData,
        offsets: Vec<i64>,
        errors: Bound<'_, PyDict>,
    ) -> PyResult<Batch> {
        let len = offsets.last().map_or(0, |&end| end as usize);
        let data = match data {
            BatchData::Pooled(block) => memory::writable_view(py, block, len)?,
            BatchData::Callers(buffer) => {
                let bytes = PyMemoryView::from(buffer.bind(py))?.call_method1("cast", ("B",))?;
                bytes.get_item(PySlice::new(py, 0, len as isize, 1))?
            }
        };
        Ok(Batch { data: data.unbind(), offsets, errors: errors.unbind() })
    }

    fn file_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns a view of file `nth`, or raises its error.
    pub(crate) fn part<'py>(&self, py: Python<'py>, nth: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Some(error) = self.errors.bind(py).get_item(nth)? {
            return Err(PyErr::from_value(error));
        }
        let (start, end) = (self.offsets[nth] as isize, self.offsets[nth + 1] as isize);
        self.data.bind(py).get_item(PySlice::new(py, start, end, 1))
    }

    fn position(&self, nth: isize) -> PyResult<usize> {
        let count = self.file_count();
        position(nth, count).ok_or_else(|| PyIndexError::new_err(format!("file {nth} of {count}")))
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.file_count()
    }

    /// Returns a view of one file, or raises its error; a list of views for a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, nth: RowOrSlice<'py>) -> PyResult<Bound<'py, PyAny>> {
        match nth {
            RowOrSlice::Row(nth) => self.part(py, self.position(nth)?),
            RowOrSlice::Slice(slice) => {
                let files = positions_of(&slice, self.file_count())?;
                let parts: PyResult<Vec<_>> = files.into_iter().map(|nth| self.part(py, nth as usize)).collect();
                Ok(PyList::new(py, parts?)?.into_any())
            }
        }
    }

    /// Contents of all files, concatenated: a writable view of bytes ('B'), which outlives the
    /// batch. No copy.
    ///
    /// >>> bytes(image.read_many(["cat/1.txt", "dog/1.txt"]).data)
    /// b'meow\nwoof\n'
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.data.bind(py).clone()
    }

    /// Start of each file in `data`, and the end of the last one: signed 64-bit integers ('q'), one
    /// more than there are files.
    ///
    /// >>> list(image.read_many(["cat/1.txt", "dog/1.txt"]).offsets)
    /// [0, 5, 10]
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory::column_view(py, memory::column(self.offsets.clone()), "q")
    }

    /// Length of each file in bytes: signed 64-bit integers ('q').
    ///
    /// >>> list(image.read_many(["cat/1.txt", "dog/1.txt"]).sizes)
    /// [5, 5]
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sizes: Vec<i64> = self.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        memory::column_view(py, memory::column(sizes), "q")
    }

    /// Errors of the files that could not be read, by position, from
    /// `read_many(on_error="return")`. Access to such a file raises its error.
    ///
    /// >>> list(image.read_many(["cat/1.txt", "nothing"], on_error="return").errors)
    /// [1]
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.errors.bind(py).clone()
    }

    /// Returns the contents of one file as `bytes`: a copy, unlike `batch[i]`. Raises IndexError if
    /// there is no such file, OSError if it could not be read.
    ///
    /// >>> image.read_many(["cat/1.txt"]).tobytes(0)
    /// b'meow\n'
    fn tobytes<'py>(&self, py: Python<'py>, i: isize) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, self.position(i)?)?.call_method0("tobytes")
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::iterate(slf.as_any())
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::reverse(slf.as_any())
    }

    /// Returns true if a file has these bytes.
    fn __contains__(slf: &Bound<'_, Self>, value: Bound<'_, PyAny>) -> PyResult<bool> {
        sequence::by_comparison(slf.as_any(), "__contains__", &PyTuple::new(slf.py(), [value])?)?.extract()
    }

    /// Returns the position of the first file that has these bytes, from `start` on and before
    /// `stop` if they are given. Raises ValueError if there is none. Compares one file after the
    /// other.
    ///
    /// >>> image.read_many(["cat/1.txt", "dog/1.txt"]).index(b"woof\n")
    /// 1
    #[pyo3(signature = (value, /, *limits))]
    fn index<'py>(
        slf: &Bound<'py, Self>,
        value: Bound<'py, PyAny>,
        limits: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = [value].into_iter().chain(limits).collect::<Vec<_>>();
        sequence::by_comparison(slf.as_any(), "index", &PyTuple::new(slf.py(), arguments)?)
    }

    /// Counts the files that have these bytes. Compares all of them.
    ///
    /// >>> image.read_many(["cat/1.txt", "dog/1.txt"]).count(b"woof\n")
    /// 1
    #[pyo3(signature = (value, /))]
    fn count<'py>(slf: &Bound<'py, Self>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        sequence::by_comparison(slf.as_any(), "count", &PyTuple::new(slf.py(), [value])?)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, batch) = (slf.py(), slf.get());
        let data = batch.data.bind(py).call_method0("tobytes")?;
        let arguments = (data, batch.offsets.clone(), batch.errors.bind(py).clone()).into_pyobject(py)?;
        Ok((slf.get_type().getattr("_restore")?, arguments.into_any()))
    }

    /// Makes a batch from its pickle.
    #[staticmethod]
    fn _restore(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offsets: Vec<i64>,
        errors: Bound<'_, PyDict>,
    ) -> PyResult<Batch> {
        let bytes = data.cast::<PyBytes>()?.as_bytes();
        let rises = offsets.windows(2).all(|pair| pair[0] <= pair[1]) && offsets.first() == Some(&0);
        if !rises || offsets.last() != i64::try_from(bytes.len()).ok().as_ref() {
            return Err(PyTypeError::new_err("not a pickled batch"));
        }
        let mut block = std::sync::Arc::<memory::Pool>::default().take(bytes.len())?;
        block.bytes_mut(bytes.len()).copy_from_slice(bytes);
        Batch::new(py, BatchData::Pooled(block), offsets, errors)
    }

    fn __repr__(&self) -> String {
        let len = self.offsets.last().copied().unwrap_or_default();
        format!("<kilnfs.Batch of {} files, {len} bytes>", self.file_count())
    }
}
