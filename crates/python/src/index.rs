//! The files of a dataset in flat columns.

pub(crate) mod behind;
pub(crate) mod columns;
pub(crate) mod labels;
mod paths;
pub(crate) mod scan;
mod stored;

use crate::arguments::buffer::integers;
use crate::arguments::{Name, RowOrSlice, What, name, places};
use crate::errors::{self, Subject};
use crate::image::Image;
use crate::memory;
use crate::sequence;
use columns::{Columns, Numbers};
use kiln_parallel::locks::lock;
use paths::DirectoryNames;
use pyo3::exceptions::{PyFileNotFoundError, PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Mutex;

/// Regular files below a directory, in path order, as a table of 16 bytes a file: made by `Image.index`.
///
/// It is a sequence of paths, which are read from the image as they are asked for; a slice is an index. It can be
/// pickled, and used after a fork without its memory being copied.
///
/// >>> index = image.index("cat")
/// >>> len(index), index[0], list(index[1:])
/// (2, 'cat/1.txt', ['cat/2.txt'])
#[pyclass(frozen, sequence, weakref, module = "kilnfs._native")]
pub(crate) struct Index {
    pub(crate) columns: Columns,
    pub(crate) image: Option<Py<Image>>,
    /// The file that it was loaded from: what a pickle carries.
    file: Option<Vec<u8>>,
    /// Names of the directory that was asked for last.
    names: Mutex<DirectoryNames>,
}

impl Index {
    fn new(columns: Columns, image: Option<Py<Image>>, file: Option<Vec<u8>>) -> Self {
        Index { columns, image, file, names: Mutex::default() }
    }

    /// An index of `image`.
    pub(crate) fn bound(columns: Columns, image: &Bound<'_, Image>) -> Self {
        Index::new(columns, Some(image.clone().unbind()), None)
    }

    /// The same files in another image that has the same UUID.
    fn bound_checked(mut self, py: Python<'_>, image: Option<Py<Image>>) -> PyResult<Self> {
        if let Some(image) = &image {
            image.get().refuse_another(py, "the index", self.columns.uuid)?;
        }
        self.image = image;
        Ok(self)
    }

    /// The image that it is bound to.
    pub(crate) fn image(&self, py: Python<'_>) -> PyResult<Py<Image>> {
        let unbound = || PyValueError::new_err("the index is bound to no image: names are there, see Index.bind");
        self.image.as_ref().map(|image| image.clone_ref(py)).ok_or_else(unbound)
    }

    fn row(&self, row: isize) -> PyResult<usize> {
        let count = self.columns.len();
        let place = if row < 0 { row.checked_add_unsigned(count) } else { Some(row) };
        let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < count);
        place.ok_or_else(|| PyIndexError::new_err(format!("row {row} of {count}")))
    }

    /// All rows whose path this text is, in their order.
    fn rows_of(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        // A path is text, and nothing else is equal to it.
        let Ok(text) = path.cast::<PyString>() else { return Ok(Vec::new()) };
        let Some(name) = name(text.as_any())? else { return Ok(Vec::new()) };
        let image = self.image(py)?;
        let opened = image.get().get()?;
        let found = py.detach(|| self.columns.find_all(&opened, &name));
        let rows = found.map_err(|error| image.get().exception(py, &error, &Subject::Path(name.clone())))?;
        // Another way to write a path, with `//` or through a link, leads to the row as well.
        match rows.first() {
            Some(&row) if !self.path_of(py, row)?.eq(text)? => Ok(Vec::new()),
            _ => Ok(rows),
        }
    }

    fn path_of<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        errors::text(py, &self.path_in(self.image(py)?.bind(py), row)?)
    }

    /// The path of a row, which `image` has: the index need not be bound to it.
    pub(crate) fn path_in(&self, image: &Bound<'_, Image>, row: usize) -> PyResult<Vec<u8>> {
        let py = image.py();
        let opened = image.get().get()?;
        let place = self.columns.place(row);
        // No lock is held while names are read: a child that is forked off meanwhile would wait for it for ever.
        let known = lock(&self.names).get(place);
        let name = match known {
            Some(name) => name,
            None => {
                let read = py.detach(|| self.columns.names(&opened, place.idx));
                let names = read.map_err(|error| image.get().exception(py, &error, &Subject::Image))?;
                let mut cache = lock(&self.names);
                *cache = DirectoryNames::new(place.idx, names);
                cache.get(place).flatten()
            }
        };
        self.columns.path(place, name).map_err(|error| image.get().exception(py, &error, &Subject::Image))
    }
}

#[pymethods]
impl Index {
    fn __len__(&self) -> usize {
        self.columns.len()
    }

    /// The path of a row; an index of the rows of a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, i: RowOrSlice<'py>) -> PyResult<Bound<'py, PyAny>> {
        match i {
            RowOrSlice::Row(row) => self.path_of(py, self.row(row)?),
            RowOrSlice::Slice(slice) => {
                let rows = places(&slice, self.columns.len())?;
                let image = self.image.as_ref().map(|image| image.clone_ref(py));
                let index = Index::new(py.detach(|| self.columns.subset(&rows)), image, None);
                Ok(Bound::new(py, index)?.into_any())
            }
        }
    }

    /// The path of row `i` from the root of the image, without a slash in front; negative rows are counted from the
    /// end. IndexError where there is no such row.
    ///
    /// Costs a look at the names of the directory, which are kept for the rows that follow; 2 µs.
    ///
    /// >>> image.index().path(-1)
    /// 'dog/1.txt'
    fn path<'py>(&self, py: Python<'py>, i: isize) -> PyResult<Bound<'py, PyAny>> {
        self.path_of(py, self.row(i)?)
    }

    /// The row of a path, which may be written in any way: with `//` or through a link. FileNotFoundError where no row
    /// has it.
    ///
    /// Costs a lookup of the path and a binary search.
    ///
    /// >>> image.index().find("/cat/1.txt")
    /// 1
    fn find(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<usize> {
        let what: What = path.extract()?;
        let image = self.image(py)?;
        image.get().refuse_foreign(py, &what)?;
        let opened = image.get().get()?;
        let found = py.detach(|| match &what {
            What::Path(path) | What::PathOf(path, _) => self.columns.find(&opened, path),
            What::Nid(nid) => Ok(self.columns.nids.get().iter().position(|row| row == nid)),
        });
        let fail = |error| image.get().exception(py, &error, &what.subject());
        let absent = || PyFileNotFoundError::new_err((2, "Not in the index", path.clone().unbind()));
        found.map_err(fail)?.ok_or_else(absent)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::iterate(slf.as_any())
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sequence::reverse(slf.as_any())
    }

    /// Whether a row has this path, as `path` gives it.
    fn __contains__(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(!self.rows_of(py, path)?.is_empty())
    }

    /// The first row from `start` on, and before `stop`, that has this path, as `path` gives it. ValueError where none
    /// has.
    ///
    /// >>> image.index().index("cat/1.txt")
    /// 1
    #[pyo3(signature = (value, start=0, stop=None, /))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: isize, stop: Option<isize>) -> PyResult<usize> {
        let count = self.columns.len();
        // As a slice counts them: negative ones from the end.
        let limit =
            |at: isize| if at < 0 { count.saturating_sub(at.unsigned_abs()) } else { at.unsigned_abs().min(count) };
        let within = limit(start)..stop.map_or(count, limit);
        let found = self.rows_of(py, value)?.into_iter().find(|row| within.contains(row));
        found.ok_or_else(|| PyValueError::new_err("no row of the index has this path"))
    }

    /// How many rows have this path: more than one only where `subset` was asked for a row more than once.
    ///
    /// >>> image.index().count("cat/1.txt")
    /// 1
    #[pyo3(signature = (value, /))]
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.rows_of(py, value)?.len())
    }

    /// The number of each file's inode: a read-only view of unsigned numbers of 64 bits ('Q'). No copy.
    ///
    /// >>> index = image.index()
    /// >>> image.read(nid=index.nids[1])
    /// b'meow\n'
    #[getter]
    fn nids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory::column_view(py, self.columns.nids.bytes(), "Q")
    }

    /// The length of each file in bytes: a read-only view of unsigned numbers of 32 bits ('I'), or 64 ('Q') where a
    /// file has 4 GiB. No copy.
    ///
    /// >>> list(image.index().sizes)
    /// [14, 5, 5, 5]
    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (bytes, format) = self.columns.sizes.bytes();
        memory::column_view(py, bytes, format)
    }

    /// The class of each file, as a place in `classes`: a read-only view of unsigned numbers of 32 bits ('I'); None
    /// where files have no classes. No copy.
    ///
    /// >>> list(image.index(group="parent").labels)
    /// [0, 1, 1, 2]
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.columns.labels.as_ref().map(|labels| memory::column_view(py, labels.bytes(), "I")).transpose()
    }

    /// Names of the classes, sorted by their bytes: a list, made anew each time.
    ///
    /// >>> image.index(group="parent").classes
    /// ['', 'cat', 'dog']
    #[getter]
    fn classes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.columns.classes.iter().map(|class| errors::text(py, class)).collect()
    }

    /// BLAKE3 of all columns, 32 bytes: equal indexes have equal ones. Costs a pass over all columns.
    ///
    /// >>> image.index().digest == image.index().digest
    /// True
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let digest = py.detach(|| self.columns.digest());
        PyBytes::new(py, &digest)
    }

    /// The UUID of the image that the index is of, 16 bytes.
    ///
    /// >>> image.index().uuid == image.uuid
    /// True
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.columns.uuid)
    }

    /// The image that names are read from; None where the index was loaded without one, see `bind`.
    ///
    /// >>> image.index().image is image
    /// True
    #[getter(image)]
    fn py_image(&self, py: Python<'_>) -> Option<Py<Image>> {
        self.image.as_ref().map(|image| image.clone_ref(py))
    }

    /// An index of these rows, in this order, which may repeat. `rows` are whole numbers: any iterable, or a buffer.
    /// IndexError for a row that there is not.
    ///
    /// Costs 16 bytes a row, and 8 for its place in the directories.
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

    /// The same files with other labels, one for each row, which are places in `classes`. ValueError where there are
    /// not as many labels as rows, or a label has no class. Costs 4 bytes a row.
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

    /// The same index for another object that has the image open. OSError (ESTALE) where it is another image, by its
    /// UUID. Shares the columns: costs nothing.
    ///
    /// >>> index = image.index()
    /// >>> with kilnfs.open("train.erofs") as other:
    /// ...     index.bind(other).image is other
    /// True
    fn bind(&self, py: Python<'_>, image: Py<Image>) -> PyResult<Index> {
        Index::new(self.columns.clone(), None, self.file.clone()).bound_checked(py, Some(image))
    }

    /// Writes the index to a file, which appears when it is complete, and replaces one that is there. 16 bytes a file,
    /// and the paths of directories. Raises OSError.
    ///
    /// >>> image.index().save("train.idx")
    fn save(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        let Name(path) = path;
        let file = PathBuf::from(OsString::from_vec(path.clone()));
        py.detach(|| stored::save(&self.columns, &file)).map_err(|error| io_error(py, &error, &path))
    }

    /// The index in a file that `save` has written, for `image` if it is given. The file is mapped into memory, so that
    /// processes share its pages: it must not be changed meanwhile, which `save` never does. A pickle has its path.
    ///
    /// Costs a pass over the file to compare its digest. Raises OSError: EINVAL for what is no index or is damaged,
    /// ESTALE where the image is another.
    ///
    /// >>> image.index().save("train.idx")
    /// >>> list(kilnfs.Index.load("train.idx", image))[1]
    /// 'cat/1.txt'
    #[staticmethod]
    #[pyo3(signature = (path, image=None))]
    fn load(py: Python<'_>, path: Name, image: Option<Py<Image>>) -> PyResult<Index> {
        let Name(path) = path;
        let file = PathBuf::from(OsString::from_vec(path.clone()));
        let columns = py.detach(|| stored::load(&file)).map_err(|error| io_error(py, &error, &path))?;
        Index::new(columns, None, Some(path)).bound_checked(py, image)
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

    /// The index that `pickle` has kept.
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

pub(crate) fn io_error(py: Python<'_>, error: &std::io::Error, path: &[u8]) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
    let text = match error.raw_os_error() {
        Some(_) => std::io::Error::from_raw_os_error(errno).to_string(),
        None => error.to_string(),
    };
    let raised = errors::text(py, path).and_then(|path| py.get_type::<PyOSError>().call1((errno, text, path)));
    raised.map_or_else(|failure| failure, PyErr::from_value)
}
