//! Index: the files of a dataset in flat columns.

pub(crate) mod behind;
mod columns;
mod filter;
mod labels;
mod paths;
pub(crate) mod query;
mod scan;
mod stored;

use crate::arguments::buffer::integers;
use crate::arguments::{FileRef, Name, RowOrSlice, name, position, positions};
use crate::errors::{self, Subject};
use crate::handle::Image;
use crate::memory;
use crate::sequence;
use columns::{Columns, Numbers};
use kiln_parallel::locks::lock;
use paths::DirectoryNames;
use pyo3::exceptions::{PyFileNotFoundError, PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::sync::Mutex;

/// Regular files below a directory, in path order, as a table of 16 bytes per file. Made by
/// `Image.index`.
///
/// It is a sequence of paths, which are read from the image when they are accessed; a slice is an
/// index. It can be pickled, and used after a fork without a copy of its memory.
///
/// >>> index = image.index("cat")
/// >>> len(index), index[0], list(index[1:])
/// (2, 'cat/1.txt', ['cat/2.txt'])
#[pyclass(frozen, sequence, weakref, module = "kilnfs._native")]
pub(crate) struct Index {
    pub(crate) columns: Columns,
    pub(crate) image: Option<Py<Image>>,
    /// Path of the file that the index was loaded from, which a pickle contains.
    file: Option<Vec<u8>>,
    /// Names of the directory that was read last.
    names: Mutex<DirectoryNames>,
}

impl Index {
    fn new(columns: Columns, image: Option<Py<Image>>, file: Option<Vec<u8>>) -> Self {
        Index { columns, image, file, names: Mutex::default() }
    }

    /// Makes an index of `image`.
    pub(crate) fn bound(columns: Columns, image: &Bound<'_, Image>) -> Self {
        Index::new(columns, Some(image.clone().unbind()), None)
    }

    /// Binds the index to another image with the same UUID.
    fn bound_checked(mut self, py: Python<'_>, image: Option<Py<Image>>) -> PyResult<Self> {
        if let Some(image) = &image {
            image.get().refuse_another(py, "the index", self.columns.uuid)?;
        }
        self.image = image;
        Ok(self)
    }

    /// Returns the image that the index is bound to.
    ///
    /// # Errors
    /// `ValueError` if there is none.
    pub(crate) fn image(&self, py: Python<'_>) -> PyResult<Py<Image>> {
        let unbound =
            || PyValueError::new_err("the index is not bound to an image, which has the names: use Index.bind");
        self.image.as_ref().map(|image| image.clone_ref(py)).ok_or_else(unbound)
    }

    fn row(&self, row: isize) -> PyResult<usize> {
        let count = self.columns.len();
        position(row, count).ok_or_else(|| PyIndexError::new_err(format!("row {row} of {count}")))
    }

    /// Returns all rows with this path, in their order.
    fn rows_of(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        // Paths of rows are text: other objects are never equal to them.
        let Ok(text) = path.cast::<PyString>() else { return Ok(Vec::new()) };
        let Some(name) = name(text.as_any())? else { return Ok(Vec::new()) };
        let image = self.image(py)?;
        let reader = image.get().get()?;
        let found = py.detach(|| self.columns.find_all(&reader, &name));
        let rows = found.map_err(|error| image.get().exception(py, &error, &Subject::Path(name.clone())))?;
        // Other spellings of a path, with `//` or through a link, lead to the row but are not equal
        // to it.
        match rows.first() {
            Some(&row) if !self.path_of(py, row)?.eq(text)? => Ok(Vec::new()),
            _ => Ok(rows),
        }
    }

    fn path_of<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        errors::text(py, &self.path_in(self.image(py)?.bind(py), row)?)
    }

    /// Returns the path of a row, read from `image`, to which the index need not be bound.
    pub(crate) fn path_in(&self, image: &Bound<'_, Image>, row: usize) -> PyResult<Vec<u8>> {
        let py = image.py();
        let reader = image.get().get()?;
        let at = self.columns.name_position(row);
        // No lock is held while names are read: a child that is forked meanwhile would wait for it
        // forever.
        let known = lock(&self.names).get(at);
        let name = match known {
            Some(name) => name,
            None => {
                let read = py.detach(|| self.columns.names(&reader, at.idx));
                let names = read.map_err(|error| image.get().exception(py, &error, &Subject::Image))?;
                let mut cache = lock(&self.names);
                *cache = DirectoryNames::new(at.idx, names);
                cache.get(at).flatten()
            }
        };
        self.columns.path(at, name).map_err(|error| image.get().exception(py, &error, &Subject::Image))
    }
}

#[pymethods]
impl Index {
    fn __len__(&self) -> usize {
        self.columns.len()
    }

    /// Returns the path of a row; an index of the rows of a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, i: RowOrSlice<'py>) -> PyResult<Bound<'py, PyAny>> {
        match i {
            RowOrSlice::Row(row) => self.path_of(py, self.row(row)?),
            RowOrSlice::Slice(slice) => {
                let rows = positions(&slice, self.columns.len())?;
                let image = self.image.as_ref().map(|image| image.clone_ref(py));
                let index = Index::new(py.detach(|| self.columns.subset(&rows)), image, None);
                Ok(Bound::new(py, index)?.into_any())
            }
        }
    }

    /// Returns the path of row `i` from the root of the image, without a leading slash; negative
    /// rows count from the end. Raises IndexError if there is no such row.
    ///
    /// Costs a read of the names of the directory, which are kept for the rows that follow; 2 µs.
    ///
    /// >>> image.index().path(-1)
    /// 'dog/1.txt'
    fn path<'py>(&self, py: Python<'py>, i: isize) -> PyResult<Bound<'py, PyAny>> {
        self.path_of(py, self.row(i)?)
    }

    /// Returns the row of a path, in any spelling: with `//` or through a link. Raises
    /// FileNotFoundError if no row has the path.
    ///
    /// Costs a lookup of the path and a binary search.
    ///
    /// >>> image.index().find("/cat/1.txt")
    /// 1
    fn find(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<usize> {
        let file: FileRef = path.extract()?;
        let image = self.image(py)?;
        image.get().refuse_foreign(py, &file)?;
        let reader = image.get().get()?;
        let found = py.detach(|| match &file {
            FileRef::Path(path) | FileRef::PathOf(path, _) => self.columns.find(&reader, path),
            FileRef::Nid(nid) => Ok(self.columns.nids.get().iter().position(|row| row == nid)),
        });
        let fail = |error| image.get().exception(py, &error, &file.subject());
        let absent = || PyFileNotFoundError::new_err((2, "Not in the index", path.clone().unbind()));
        found.map_err(fail)?.ok_or_else(absent)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::iterate(slf.as_any())
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::reverse(slf.as_any())
    }

    /// Returns true if a row has this path, spelled as `path` returns it.
    fn __contains__(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(!self.rows_of(py, path)?.is_empty())
    }

    /// Returns the first row from `start` on, and before `stop`, with this path, spelled as `path`
    /// returns it. Raises ValueError if there is none.
    ///
    /// >>> image.index().index("cat/1.txt")
    /// 1
    #[pyo3(signature = (value, start=0, stop=None, /))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: isize, stop: Option<isize>) -> PyResult<usize> {
        let count = self.columns.len();
        // Negative limits count from the end, as in a slice.
        let limit =
            |at: isize| if at < 0 { count.saturating_sub(at.unsigned_abs()) } else { at.unsigned_abs().min(count) };
        let within = limit(start)..stop.map_or(count, limit);
        let found = self.rows_of(py, value)?.into_iter().find(|row| within.contains(row));
        found.ok_or_else(|| PyValueError::new_err("no row of the index has this path"))
    }

    /// Returns the number of rows with this path: more than one only if `subset` has repeated a
    /// row.
    ///
    /// >>> image.index().count("cat/1.txt")
    /// 1
    #[pyo3(signature = (value, /))]
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.rows_of(py, value)?.len())
    }

    /// Inode number of each file: a read-only view of unsigned 64-bit integers ('Q'). No copy.
    ///
    /// >>> index = image.index()
    /// >>> image.read(nid=index.nids[1])
    /// b'meow\n'
    #[getter]
    fn nids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory::column_view(py, self.columns.nids.bytes(), "Q")
    }

    /// Length of each file in bytes: a read-only view of unsigned 32-bit integers ('I'), or 64-bit
    /// ('Q') if a file has 4 GiB or more. No copy.
    ///
    /// >>> list(image.index().sizes)
    /// [14, 5, 5, 5]
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (bytes, format) = self.columns.sizes.bytes();
        memory::column_view(py, bytes, format)
    }

    /// Class of each file, as a position in `classes`: a read-only view of unsigned 32-bit integers
    /// ('I'); None if files have no classes. No copy.
    ///
    /// >>> list(image.index(group="parent").labels)
    /// [0, 1, 1, 2]
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.columns.labels.as_ref().map(|labels| memory::column_view(py, labels.bytes(), "I")).transpose()
    }

    /// Names of the classes, sorted by their bytes: a new list for each access.
    ///
    /// >>> image.index(group="parent").classes
    /// ['', 'cat', 'dog']
    #[getter]
    fn classes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.columns.classes.iter().map(|class| errors::text(py, class)).collect()
    }

    /// BLAKE3 digest of all columns, 32 bytes: equal indexes have equal digests. Costs a pass over
    /// all columns.
    ///
    /// >>> image.index().digest == image.index().digest
    /// True
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let digest = py.detach(|| self.columns.digest());
        PyBytes::new(py, &digest)
    }

    /// UUID of the indexed image, 16 bytes.
    ///
    /// >>> image.index().uuid == image.uuid
    /// True
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.columns.uuid)
    }

    /// Image that names are read from; None if the index was loaded without one, see `bind`.
    ///
    /// >>> image.index().image is image
    /// True
    #[getter(image)]
    fn py_image(&self, py: Python<'_>) -> Option<Py<Image>> {
        self.image.as_ref().map(|image| image.clone_ref(py))
    }

    /// Returns an index of these rows, in this order, with repetitions. `rows` are integers: an
    /// iterable, or a buffer. Raises IndexError for a row that does not exist.
    ///
    /// Costs 16 bytes per row, and 8 for its position in the directories.
    ///
    /// >>> list(image.index().subset([3, 1]))
    /// ['dog/1.txt', 'cat/1.txt']
    fn subset(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Index> {
        let count = self.columns.len();
        let rows = integers(rows, "rows")?;
        if let Some(row) = rows.iter().find(|&&row| row >= count as u64) {
            return Err(PyIndexError::new_err(format!("row {row} of {count}")));
        }
        let image = self.image.as_ref().map(|image| image.clone_ref(py));
        Ok(Index::new(py.detach(|| self.columns.subset(&rows)), image, None))
    }

    /// Returns an index of the same files with other labels, one for each row, which are positions
    /// in `classes`. Raises ValueError if the numbers of labels and rows differ, or a label has no
    /// class. Costs 4 bytes per row.
    ///
    /// >>> image.index().with_labels([0, 1, 1, 0], ["other", "cat"]).classes
    /// ['other', 'cat']
    fn with_labels(&self, py: Python<'_>, labels: &Bound<'_, PyAny>, classes: Vec<Name>) -> PyResult<Index> {
        let labels = integers(labels, "labels")?;
        if labels.len() != self.columns.len() {
            let message = format!("{} labels for {} files", labels.len(), self.columns.len());
            return Err(PyValueError::new_err(message));
        }
        if let Some(label) = labels.iter().find(|&&label| label >= classes.len() as u64) {
            return Err(PyValueError::new_err(format!("label {label} of {} classes", classes.len())));
        }
        let labels = Numbers::new(labels.into_iter().map(|label| label as u32).collect());
        let classes = classes.into_iter().map(|Name(class)| class).collect();
        let image = self.image.as_ref().map(|image| image.clone_ref(py));
        Ok(Index::new(self.columns.labelled(labels, classes), image, None))
    }

    /// Returns the index bound to another `Image` object of the same image. Raises OSError (ESTALE)
    /// if the UUID is that of another image. Shares the columns: costs nothing.
    ///
    /// >>> index = image.index()
    /// >>> with kilnfs.open("train.erofs") as other:
    /// ...     index.bind(other).image is other
    /// True
    fn bind(&self, py: Python<'_>, image: Py<Image>) -> PyResult<Index> {
        Index::new(self.columns.clone(), None, self.file.clone()).bound_checked(py, Some(image))
    }

    /// Writes the index to a file, which appears when it is complete and replaces an existing one:
    /// 16 bytes per file, and the paths of directories. Raises OSError.
    ///
    /// >>> image.index().save("train.idx")
    fn save(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        let file = path.to_path();
        let saved = py.detach(|| stored::save(&self.columns, &file));
        saved.map_err(|error| errors::of_index_file(py, &error, &path.0))
    }

    /// Loads the index from a file that `save` has written, and binds it to `image` if that is
    /// given. The file is mapped into memory, so that processes share its pages. It must not be
    /// changed meanwhile; `save` replaces it instead. A pickle contains its path.
    ///
    /// Costs a pass over the file to verify its digest. Raises OSError: EINVAL for a file that is
    /// damaged or not an index, ESTALE for another image.
    ///
    /// >>> image.index().save("train.idx")
    /// >>> list(kilnfs.Index.load("train.idx", image))[1]
    /// 'cat/1.txt'
    #[staticmethod]
    #[pyo3(signature = (path, image=None))]
    fn load(py: Python<'_>, path: Name, image: Option<Py<Image>>) -> PyResult<Index> {
        let file = path.to_path();
        let loaded = py.detach(|| stored::load(&file));
        let columns = loaded.map_err(|error| errors::of_index_file(py, &error, &path.0))?;
        Index::new(columns, None, Some(path.0)).bound_checked(py, image)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, index) = (slf.py(), slf.get());
        let image = index.image.as_ref().map(|image| image.clone_ref(py));
        let class = slf.get_type();
        if let Some(file) = &index.file {
            return Ok((class.getattr("load")?, (PyBytes::new(py, file), image).into_pyobject(py)?));
        }
        let state = py.detach(|| stored::to_bytes(&index.columns));
        Ok((class.getattr("_restore")?, (PyBytes::new(py, &state), image).into_pyobject(py)?))
    }

    /// Makes an index from its pickle.
    #[staticmethod]
    fn _restore(py: Python<'_>, state: &Bound<'_, PyBytes>, image: Option<Py<Image>>) -> PyResult<Index> {
        let columns = stored::from_bytes(stored::aligned(state.as_bytes()));
        let columns = columns.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Index::new(columns, None, None).bound_checked(py, image)
    }

    fn __repr__(&self) -> String {
        let classes = match self.columns.classes.len() {
            0 => String::new(),
            count => format!(", {count} classes"),
        };
        format!("<kilnfs.Index of {} files{classes}>", self.columns.len())
    }
}
