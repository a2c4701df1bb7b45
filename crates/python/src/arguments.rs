//! Arguments from Python: paths, numbers, buffers.

pub(crate) mod buffer;

use crate::errors::Subject;
use kiln_parallel::Threads;
use kiln_read::{FollowLast, Image, Inode, Nid, ReadError};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PySlice, PyString};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Largest default number of threads: reading a batch seldom gains from more.
const DEFAULT_THREADS_MAX: usize = 4;

/// Reference to a file of an image: its path or its inode number.
#[derive(Clone)]
pub(crate) enum FileRef {
    Path(Vec<u8>),
    /// Path of the image with this UUID, and of no other.
    PathOf(Vec<u8>, [u8; 16]),
    Nid(u64),
}

impl FileRef {
    /// Returns the path, or `None` for an inode number.
    pub(crate) fn path(&self) -> Option<&[u8]> {
        match self {
            FileRef::Path(path) | FileRef::PathOf(path, _) => Some(path),
            FileRef::Nid(_) => None,
        }
    }

    /// Returns the subject of errors about the file.
    pub(crate) fn subject(&self) -> Subject {
        match self {
            FileRef::Path(path) | FileRef::PathOf(path, _) => Subject::Path(path.clone()),
            FileRef::Nid(nid) => Subject::Nid(*nid),
        }
    }

    /// Reads the inode. `last` says if a symbolic link at the end of the path is followed.
    pub(crate) fn inode(&self, image: &Image, last: FollowLast) -> Result<Inode, ReadError> {
        match self {
            FileRef::Path(path) | FileRef::PathOf(path, _) => image.resolve(path, last),
            FileRef::Nid(nid) => image.inode(Nid(*nid)),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for FileRef {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            return match object.extract::<u64>() {
                Ok(nid) => Ok(FileRef::Nid(nid)),
                Err(_) => Err(PyValueError::new_err(format!("nid {}: use 0 to 2**64 - 1", object.to_owned()))),
            };
        }
        match name(&object)? {
            Some(path) if path.contains(&0) => Err(PyValueError::new_err("a path with a null byte")),
            Some(path) => match image_uuid(&object)? {
                Some(uuid) => Ok(FileRef::PathOf(path, uuid)),
                None => Ok(FileRef::Path(path)),
            },
            None => {
                let class = object.get_type().name()?;
                Err(PyTypeError::new_err(format!("a path (str, bytes, kilnfs.Path) or a nid (int), not {class}")))
            }
        }
    }
}

/// Reference to a file by its path. Integers are refused: `nid=` takes them.
#[derive(Clone)]
pub(crate) struct PathRef(pub(crate) FileRef);

impl<'py> FromPyObject<'_, 'py> for PathRef {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.hasattr("__index__")? {
            let class = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a path (str, bytes, kilnfs.Path), not {class}: nid= takes an inode number"
            )));
        }
        object.extract().map(PathRef)
    }
}

/// Returns the file of a call that takes a path or `nid=`.
///
/// # Errors
/// `TypeError` if both or neither are given.
pub(crate) fn one_file(path: Option<PathRef>, nid: Option<Number>) -> PyResult<FileRef> {
    match (path, nid) {
        (Some(PathRef(file)), None) => Ok(file),
        (None, Some(nid)) => Ok(FileRef::Nid(nid.named("nid")?)),
        (Some(_), Some(_)) => Err(PyTypeError::new_err("a path or nid=, not both")),
        (None, None) => Err(PyTypeError::new_err("a path is missing, or nid=")),
    }
}

/// Integer from Python. The error for one out of range needs the name of the argument, which only
/// the call knows.
pub(crate) struct Number(Result<u64, String>);

impl Number {
    /// Returns the number.
    ///
    /// # Errors
    /// `ValueError` that names the argument: the number is negative, or has more than 64 bits.
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

/// Returns the number, or `default` if none was given.
pub(crate) fn number_or(given: Option<Number>, argument: &str, default: u64) -> PyResult<u64> {
    given.map_or(Ok(default), |number| number.named(argument))
}

/// Returns a name as bytes (text as UTF-8 with `surrogateescape`), or `None` if the object is not a
/// name.
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

/// Returns the UUID of the image that `object` belongs to, if it has one: a path, or rows of
/// several images.
pub(crate) fn image_uuid(object: &Bound<'_, PyAny>) -> PyResult<Option<[u8; 16]>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Ok(None);
    }
    object.getattr_opt("__kilnfs_uuid__")?.map(|uuid| uuid.extract()).transpose()
}

/// Name as bytes. Objects that are not names are refused.
pub(crate) struct Name(pub(crate) Vec<u8>);

impl Name {
    /// Returns the name as a path of this system.
    pub(crate) fn into_path(self) -> PathBuf {
        path(self.0)
    }

    /// Returns a copy of the name as a path of this system.
    pub(crate) fn to_path(&self) -> PathBuf {
        path(self.0.clone())
    }
}

/// Returns bytes as a path of this system.
pub(crate) fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

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

/// Index of a sequence: an integer or a slice.
#[derive(FromPyObject)]
pub(crate) enum RowOrSlice<'py> {
    Row(isize),
    Slice(Bound<'py, PySlice>),
}

/// Returns the positions in a sequence of `len` items that a slice selects.
pub(crate) fn positions(slice: &Bound<'_, PySlice>, len: usize) -> PyResult<Vec<u64>> {
    let range = slice.indices(isize::try_from(len)?)?;
    Ok((0..range.slicelength as isize).map(|nth| (range.start + nth * range.step) as u64).collect())
}

/// Returns the position of item `nth` of a sequence of `count`; negative numbers count from its
/// end.
pub(crate) fn position(nth: isize, count: usize) -> Option<usize> {
    let position = if nth < 0 { nth.checked_add_unsigned(count) } else { Some(nth) };
    position.and_then(|position| usize::try_from(position).ok()).filter(|&position| position < count)
}

/// Returns pairs of first byte and end, which may be `None`.
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

/// Returns the number of threads: as given, or that of the processors that the process may use, at
/// most four.
pub(crate) fn threads(count: Option<Number>) -> PyResult<Threads> {
    match count.map(|count| count.named("threads")).transpose()? {
        Some(0) => Err(PyValueError::new_err("threads=0: use 1 or more")),
        Some(count) => Ok(Threads::at_least_one(usize::try_from(count).unwrap_or(usize::MAX))),
        None => Ok(Threads::at_least_one(Threads::PROCESSORS.count().min(DEFAULT_THREADS_MAX))),
    }
}
