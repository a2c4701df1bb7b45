//! What Python hands over: paths, numbers, buffers.

pub(crate) mod buffer;

use crate::errors::Subject;
use kiln_parallel::Threads;
use kiln_read::{FollowLast, Image, Inode, Nid, ReadError};
use pyo3::exceptions::{PyTypeError, PyValueError};
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

    /// What to call it in an error.
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

/// How many threads: as many as asked for, and else as the process may use processors, at most four.
pub(crate) fn threads(asked: Option<usize>) -> PyResult<Threads> {
    match asked {
        Some(0) => Err(PyValueError::new_err("threads=0: at least 1")),
        Some(count) => Ok(Threads::at_least_one(count)),
        None => Ok(Threads::at_least_one(Threads::PROCESSORS.count().min(DEFAULT_THREADS_MAX))),
    }
}
