//! What Python hands over: paths, numbers, buffers.

pub(crate) mod buffer;

use crate::errors::Subject;
use kiln_parallel::Threads;
use kiln_read::{FollowLast, Image, Inode, Nid, ReadError};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PySlice, PyString};

/// Reading a batch seldom gains from more.
const DEFAULT_THREADS_MAX: usize = 4;

/// A file of an image: its path, or the number of its inode.
#[derive(Clone)]
pub(crate) enum What {
    Path(Vec<u8>),
    /// A path of the image with this UUID, and of no other.
    PathOf(Vec<u8>, [u8; 16]),
    Nid(u64),
}

impl What {
    /// The path, where that is what was given.
    pub(crate) fn path(&self) -> Option<&[u8]> {
        match self {
            What::Path(path) | What::PathOf(path, _) => Some(path),
            What::Nid(_) => None,
        }
    }

    /// Returns the subject that an error about it names: its path or its inode number.
    pub(crate) fn subject(&self) -> Subject {
        match self {
            What::Path(path) | What::PathOf(path, _) => Subject::Path(path.clone()),
            What::Nid(nid) => Subject::Nid(*nid),
        }
    }

    /// The inode; of a path that ends in a symbolic link, as `last` says.
    pub(crate) fn inode(&self, image: &Image, last: FollowLast) -> Result<Inode, ReadError> {
        match self {
            What::Path(path) | What::PathOf(path, _) => image.resolve(path, last),
            What::Nid(nid) => image.inode(Nid(*nid)),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for What {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            return match object.extract::<u64>() {
                Ok(nid) => Ok(What::Nid(nid)),
                Err(_) => Err(PyValueError::new_err(format!("nid {}: below 0, or over 64 bits", object.to_owned()))),
            };
        }
        match name(&object)? {
            Some(path) if path.contains(&0) => Err(PyValueError::new_err("a path with a null byte")),
            Some(path) => match image_uuid(&object)? {
                Some(uuid) => Ok(What::PathOf(path, uuid)),
                None => Ok(What::Path(path)),
            },
            None => {
                let class = object.get_type().name()?;
                Err(PyTypeError::new_err(format!("a path (str, bytes, kilnfs.Path) or a nid (int), not {class}")))
            }
        }
    }
}

/// A file as a caller names it: by its path. Whole numbers are no paths, and say nothing of themselves: `nid=` takes them.
#[derive(Clone)]
pub(crate) struct Named(pub(crate) What);

impl<'py> FromPyObject<'_, 'py> for Named {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.hasattr("__index__")? {
            let class = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a path (str, bytes, kilnfs.Path), not {class}: nid= takes the number of an inode"
            )));
        }
        object.extract().map(Named)
    }
}

/// The file of a call that takes a path or `nid=`.
pub(crate) fn one_file(what: Option<Named>, nid: Option<Number>) -> PyResult<What> {
    match (what, nid) {
        (Some(Named(what)), None) => Ok(what),
        (None, Some(nid)) => Ok(What::Nid(nid.named("nid")?)),
        (Some(_), Some(_)) => Err(PyTypeError::new_err("a path or nid=, not both")),
        (None, None) => Err(PyTypeError::new_err("a path is missing, or nid=")),
    }
}

/// A whole number from Python. One that does not fit is told of by the name of its argument, which only the call knows.
pub(crate) struct Number(Result<u64, String>);

impl Number {
    /// The number.
    ///
    /// # Errors
    /// ValueError: it is below 0 or over 64 bits.
    pub(crate) fn named(self, argument: &str) -> PyResult<u64> {
        self.0.map_err(|shown| PyValueError::new_err(format!("{argument}={shown}: use 0 to 2**64 - 1")))
    }
}

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(number) => Ok(Number(Ok(number))),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                let shown = object.repr().map_or_else(|_| "…".to_owned(), |shown| shown.to_string());
                Ok(Number(Err(shown)))
            }
            Err(error) => Err(error),
        }
    }
}

/// The number that was given, or what stands for none.
pub(crate) fn number_or(given: Option<Number>, argument: &str, default: u64) -> PyResult<u64> {
    given.map_or(Ok(default), |number| number.named(argument))
}

/// A name in bytes: text is UTF-8, with lone surrogates for other bytes.
pub(crate) fn name(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    if let Ok(text) = object.cast::<PyString>() {
        if let Ok(text) = text.to_str() {
            return Ok(Some(text.as_bytes().to_vec()));
        }
        let bytes = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
        return Ok(Some(bytes.cast::<PyBytes>()?.as_bytes().to_vec()));
    }
    match object.getattr_opt("__kilnfs_path__")? {
        Some(method) => Ok(Some(method.call0()?.cast::<PyBytes>()?.as_bytes().to_vec())),
        None => Ok(None),
    }
}

/// The UUID of the image that `object` belongs to, if it says so: a path, or rows of several images.
pub(crate) fn image_uuid(object: &Bound<'_, PyAny>) -> PyResult<Option<[u8; 16]>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Ok(None);
    }
    object.getattr_opt("__kilnfs_uuid__")?.map(|uuid| uuid.extract()).transpose()
}

/// Names in bytes, of which none may be something else.
pub(crate) struct Name(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let class = || object.get_type().name().map(|name| name.to_string());
        match name(&object)? {
            Some(name) => Ok(Name(name)),
            None => Err(PyTypeError::new_err(format!("a name (str or bytes), not {}", class()?))),
        }
    }
}

/// What stands between the brackets of a sequence.
#[derive(FromPyObject)]
pub(crate) enum RowOrSlice<'py> {
    Row(isize),
    Slice(Bound<'py, PySlice>),
}

/// The places of a sequence of `len` that a slice picks.
pub(crate) fn places(slice: &Bound<'_, PySlice>, len: usize) -> PyResult<Vec<u64>> {
    let picked = slice.indices(isize::try_from(len)?)?;
    Ok((0..picked.slicelength as isize).map(|nth| (picked.start + nth * picked.step) as u64).collect())
}

/// Pairs of the first byte and of the one behind the last, which may be `None`.
pub(crate) fn ranges(object: &Bound<'_, PyAny>) -> PyResult<Vec<(u64, u64)>> {
    let pair = |item: Bound<'_, PyAny>| {
        let ends = item.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let [start, stop] = &ends[..] else {
            return Err(PyValueError::new_err(format!("ranges: {}: use (start, stop)", item.repr()?)));
        };
        let stop: Option<Number> = stop.extract()?;
        Ok((start.extract::<Number>()?.named("ranges")?, number_or(stop, "ranges", u64::MAX)?))
    };
    object.try_iter()?.map(|item| pair(item?)).collect()
}

/// How many threads: as many as asked for, and else as the process may use processors, at most four.
pub(crate) fn threads(asked: Option<Number>) -> PyResult<Threads> {
    match asked.map(|count| count.named("threads")).transpose()? {
        Some(0) => Err(PyValueError::new_err("threads=0: at least 1")),
        Some(count) => Ok(Threads::at_least_one(usize::try_from(count).unwrap_or(usize::MAX))),
        None => Ok(Threads::at_least_one(Threads::PROCESSORS.count().min(DEFAULT_THREADS_MAX))),
    }
}
