//! The contents of many files, one behind the other.

use crate::arguments::{RowOrSlice, places};
use crate::memory::{self, PooledBlock};
use crate::sequence;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PySlice, PyTuple};

/// Where a batch has its bytes.
pub(crate) enum BatchData {
    /// In memory of the image's pool.
    Pooled(PooledBlock),
    /// In a buffer of the caller.
    Callers(Py<PyAny>),
}

/// Contents of many files in one buffer, in the order in which they were asked for: made by `Image.read_many`.
///
/// `batch[i]` is a writable `memoryview` of file i, without a copy; a slice is a list of these. A pickle has all bytes.
///
/// >>> batch = image.read_many(["cat/1.txt", "dog/1.txt"])
/// >>> len(batch), bytes(batch[1])
/// (2, b'woof\n')
#[pyclass(frozen, sequence, module = "kilnfs._native")]
pub(crate) struct Batch {
    /// A view of all bytes, which Python may write to.
    data: Py<PyAny>,
    /// Where each file begins in it, and last where the last one ends.
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

    fn files(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn part<'py>(&self, py: Python<'py>, nth: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Some(error) = self.errors.bind(py).get_item(nth)? {
            return Err(PyErr::from_value(error));
        }
        let (start, end) = (self.offsets[nth] as isize, self.offsets[nth + 1] as isize);
        self.data.bind(py).get_item(PySlice::new(py, start, end, 1))
    }

    fn place(&self, nth: isize) -> PyResult<usize> {
        let count = self.files();
        let place = if nth < 0 { nth.checked_add_unsigned(count) } else { Some(nth) };
        let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < count);
        place.ok_or_else(|| PyIndexError::new_err(format!("file {nth} of {count}")))
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.files()
    }

    /// The bytes of one file, or the error that reading it has given, if there is one; a list of the files of a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, nth: RowOrSlice<'py>) -> PyResult<Bound<'py, PyAny>> {
        match nth {
            RowOrSlice::Row(nth) => self.part(py, self.place(nth)?),
            RowOrSlice::Slice(slice) => {
                let places = places(&slice, self.files())?;
                let parts: PyResult<Vec<_>> = places.into_iter().map(|place| self.part(py, place as usize)).collect();
                Ok(PyList::new(py, parts?)?.into_any())
            }
        }
    }

    /// The contents of all files one behind the other: a writable view of bytes ('B'), which stays valid when the batch
    /// goes. No copy.
    ///
    /// >>> bytes(image.read_many(["cat/1.txt", "dog/1.txt"]).data)
    /// b'meow\nwoof\n'
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.data.bind(py).clone()
    }

    /// Byte of `data` at which each file begins, and last the one at which the last file ends: signed numbers of 64
    /// bits ('q'), one more than there are files.
    ///
    /// >>> list(image.read_many(["cat/1.txt", "dog/1.txt"]).offsets)
    /// [0, 5, 10]
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory::column_view(py, memory::column(self.offsets.clone()), "q")
    }

    /// Length of each file in bytes: signed numbers of 64 bits ('q').
    ///
    /// >>> list(image.read_many(["cat/1.txt", "dog/1.txt"]).sizes)
    /// [5, 5]
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sizes: Vec<i64> = self.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        memory::column_view(py, memory::column(sizes), "q")
    }

    /// The errors of files that could not be read, by their places, of `read_many(on_error="return")`. Asking for such
    /// a file raises its error.
    ///
    /// >>> list(image.read_many(["cat/1.txt", "nothing"], on_error="return").errors)
    /// [1]
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.errors.bind(py).clone()
    }

    /// The contents of one file as `bytes`: a copy, where `batch[i]` is a view. IndexError where there is no such file,
    /// OSError where it could not be read.
    ///
    /// >>> image.read_many(["cat/1.txt"]).tobytes(0)
    /// b'meow\n'
    fn tobytes<'py>(&self, py: Python<'py>, i: isize) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, self.place(i)?)?.call_method0("tobytes")
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::iterate(slf.as_any())
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::reverse(slf.as_any())
    }

    /// Whether a file has these bytes.
    fn __contains__(slf: &Bound<'_, Self>, value: Bound<'_, PyAny>) -> PyResult<bool> {
        sequence::by_comparison(slf.as_any(), "__contains__", &PyTuple::new(slf.py(), [value])?)?.extract()
    }

    /// The place of the first file that has these bytes, between the limits `start` and `stop` if they are given.
    /// ValueError where none has. Compares one file after the other.
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

    /// A batch from what `pickle` has kept.
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
            return Err(PyTypeError::new_err("no pickled batch"));
        }
        let mut block = std::sync::Arc::<memory::Pool>::default().take(bytes.len())?;
        block.bytes_mut(bytes.len()).copy_from_slice(bytes);
        Batch::new(py, BatchData::Pooled(block), offsets, errors)
    }

    fn __repr__(&self) -> String {
        let len = self.offsets.last().copied().unwrap_or_default();
        format!("<kilnfs.Batch of {} files, {len} bytes>", self.files())
    }
}
