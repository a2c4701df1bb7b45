//! Errors of reading, as exceptions of Python.

use kiln_read::{Defect, Hex, ReadError};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// Image, and file in it, that an error names.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    /// Name of the image.
    pub image: &'a [u8],
    /// Path in the image, if it is known.
    pub path: Option<&'a [u8]>,
    /// Inode number, if no path is known.
    pub nid: Option<u64>,
}

impl<'a> About<'a> {
    /// Makes the description of an error about the image itself.
    pub(crate) fn image(image: &'a [u8]) -> Self {
        About { image, path: None, nid: None }
    }
}

/// File that an error is about.
pub(crate) enum Subject {
    /// The image itself.
    Image,
    /// Path in the image.
    Path(Vec<u8>),
    /// Inode number, if no path is known.
    Nid(u64),
}

/// Returns the exception for an error of reading: `OSError` by its number, or
/// [`ImageError`](../python/kilnfs/_errors.py) if the image is at fault.
pub(crate) fn exception(py: Python<'_>, error: &ReadError, about: About<'_>) -> PyErr {
    build(py, error, about).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &ReadError, about: About<'_>) -> PyResult<PyErr> {
    if let ReadError::Io { source, .. } = error {
        if let Some(raised) = source.get_ref().and_then(|inner| inner.downcast_ref::<PyErr>()) {
            return of_source(py, raised, about);
        }
        if source.kind() == std::io::ErrorKind::OutOfMemory {
            return Ok(PyMemoryError::new_err(error.to_string()));
        }
    }
    let (class, defect) = match error {
        ReadError::Corrupt { defect, nid, .. } => ("CorruptImageError", Some((defect, nid))),
        ReadError::Unsupported { defect, nid, .. } => ("UnsupportedImageError", Some((defect, nid))),
        _ => ("", None),
    };
    // The number from the system, if the system has failed.
    let errno = match error {
        ReadError::Io { source, .. } => source.raw_os_error().unwrap_or_else(|| error.errno()),
        _ => error.errno(),
    };
    let path =
        about.path.or_else(|| error.path().filter(|path| !path.is_empty())).map(|path| text(py, path)).transpose()?;
    let message = match error {
        // Python adds the path to the message.
        ReadError::NotFound { .. } => "No such file or directory in the image".to_owned(),
        ReadError::NotADirectory { .. } => "Not a directory".to_owned(),
        ReadError::IsADirectory { .. } => "Is a directory".to_owned(),
        ReadError::TooManySymlinks { .. } => "Too many levels of symbolic links".to_owned(),
        _ => error.clone().without_path().to_string(),
    };
    let arguments = arguments(py, errno, message, path, about)?;
    let Some((defect, nid)) = defect else {
        let raised = py.get_type::<PyOSError>().call1(arguments)?;
        return Ok(PyErr::from_value(raised));
    };
    let raised = py.import("kilnfs._errors")?.getattr(class)?.call1(arguments)?;
    raised.setattr("nid", nid.map(|nid| nid.0))?;
    match &**defect {
        Defect::Field(field) => {
            raised.setattr("offset", field.offset)?;
            raised.setattr("field", field.field)?;
        }
        Defect::Stream { pa, .. } => raised.setattr("offset", *pa)?,
        _ => {}
    }
    Ok(PyErr::from_value(raised))
}

/// Returns the arguments of `OSError`. If no path is known, the image is the first file name:
/// Python drops the second name if there is no first.
fn arguments<'py>(
    py: Python<'py>,
    errno: i32,
    message: String,
    path: Option<Bound<'py, PyAny>>,
    about: About<'_>,
) -> PyResult<Bound<'py, PyTuple>> {
    let image = text(py, about.image)?;
    match (path, about.nid) {
        (Some(path), _) => (errno, message, path, py.None(), image).into_pyobject(py),
        (None, Some(nid)) if !message.contains("nid ") => {
            (errno, format!("nid {nid}: {message}"), image).into_pyobject(py)
        }
        (None, _) => (errno, message, image).into_pyobject(py),
    }
}

/// Returns the exception for an exception of a source in Python. An error of the system gets the
/// name of the file.
fn of_source(py: Python<'_>, raised: &PyErr, about: About<'_>) -> PyResult<PyErr> {
    let value = raised.value(py);
    let is_builtin = value.get_type().module()? == "builtins";
    let (Ok(errno), Ok(message)) = (value.getattr("errno"), value.getattr("strerror")) else {
        return Ok(raised.clone_ref(py));
    };
    if !is_builtin || errno.is_none() || message.is_none() {
        return Ok(raised.clone_ref(py));
    }
    // A new object, because files that were fetched together share the raised one.
    let path = about.path.map(|path| text(py, path)).transpose()?;
    let arguments = arguments(py, errno.extract()?, message.extract()?, path, about)?;
    let named = PyErr::from_value(py.get_type::<PyOSError>().call1(arguments)?);
    named.set_traceback(py, raised.traceback(py));
    named.set_cause(py, raised.cause(py));
    Ok(named)
}

/// Returns the exception for `what`, which belongs to the image with the UUID `expected` and was
/// used with `image`, whose UUID is `found`.
pub(crate) fn of_another(py: Python<'_>, what: &str, expected: [u8; 16], found: [u8; 16], image: &[u8]) -> PyErr {
    let (expected, found) = (Hex(&expected), Hex(&found));
    let message = format!("{what} belongs to an image with UUID {expected}, and this one has {found}");
    let errno = rustix::io::Errno::STALE.raw_os_error();
    let raised = text(py, image).and_then(|image| py.get_type::<PyOSError>().call1((errno, message, image)));
    raised.map_or_else(|failure| failure, PyErr::from_value)
}

/// Returns a name of the image as text: UTF-8 with `surrogateescape`, in any locale.
pub(crate) fn text<'py>(py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(name) {
        Ok(name) => Ok(PyString::new(py, name).into_any()),
        Err(_) => PyBytes::new(py, name).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}

/// Returns the exception for a call on a closed image.
pub(crate) fn closed() -> PyErr {
    PyValueError::new_err("the image is closed")
}

/// Returns the exception for `what`, which has more bytes than this machine has memory.
pub(crate) fn memory(what: &str, len: u64) -> PyErr {
    PyMemoryError::new_err(format!("{what}: {len} bytes are more than the memory of this machine"))
}

/// Returns the exception for an error of a file with an index: EINVAL if the system gave no number.
pub(crate) fn of_index_file(py: Python<'_>, error: &std::io::Error, path: &[u8]) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
    let message = match error.raw_os_error() {
        Some(_) => std::io::Error::from_raw_os_error(errno).to_string(),
        None => error.to_string(),
    };
    let raised = text(py, path).and_then(|path| py.get_type::<PyOSError>().call1((errno, message, path)));
    raised.map_or_else(|failure| failure, PyErr::from_value)
}
