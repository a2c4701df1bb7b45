//! Errors of reading as Python's exceptions.

use kiln_read::{Defect, ReadError};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// What an error is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    /// The image.
    pub image: &'a [u8],
    /// The path in the image that the caller gave.
    pub path: Option<&'a [u8]>,
}

/// The exception for an error of reading: `OSError` by its number, [`ImageError`](../python/kilnfs/_errors.py) for what the image is to blame for.
pub(crate) fn exception(py: Python<'_>, error: &ReadError, about: About<'_>) -> PyErr {
    build(py, error, about).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &ReadError, about: About<'_>) -> PyResult<PyErr> {
    if let ReadError::Io { source, .. } = error {
        if let Some(raised) = source.get_ref().and_then(|inner| inner.downcast_ref::<PyErr>()) {
            // What a source in Python has raised.
            return Ok(raised.clone_ref(py));
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
    // The system's number, where the system has failed.
    let errno = match error {
        ReadError::Io { source, .. } => source.raw_os_error().unwrap_or_else(|| error.errno()),
        _ => error.errno(),
    };
    let path = about.path.or_else(|| error.path()).map(|path| text(py, path)).transpose()?;
    let message = match error {
        // Python's message has the path, too.
        ReadError::NotFound { .. } => "No such file or directory in the image".to_owned(),
        ReadError::NotADirectory { .. } => "Not a directory".to_owned(),
        ReadError::IsADirectory { .. } => "Is a directory".to_owned(),
        ReadError::TooManySymlinks { .. } => "Too many levels of symbolic links".to_owned(),
        _ => error.clone().without_path().to_string(),
    };
    let arguments = (errno, message, path, py.None(), text(py, about.image)?);
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

/// A name of the image as text: UTF-8, and other bytes as lone surrogates (`surrogateescape`), whatever the locale.
pub(crate) fn text<'py>(py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(name) {
        Ok(name) => Ok(PyString::new(py, name).into_any()),
        Err(_) => PyBytes::new(py, name).call_method1("decode", ("utf-8", "surrogateescape")),
    }
}

/// The exception for what is done with an image that is closed.
pub(crate) fn closed() -> PyErr {
    PyValueError::new_err("the image is closed")
}

/// The exception for more bytes than this machine has memory.
pub(crate) fn memory(what: &str, len: u64) -> PyErr {
    PyMemoryError::new_err(format!("{what}: {len} bytes are more than this machine can hold"))
}
