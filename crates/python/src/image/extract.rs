//! Extraction into a directory. It ends early if the calling thread gets a signal.

use crate::arguments::Name;
use crate::errors::{self, Subject};
use crate::handle::Image;
use crate::pack::interrupt::{self, Meter};
use kilnfs::Threads;
use kilnfs::sink::dir::{Control, Existing, ExtractOptions, Owners, extract};
use kilnfs::sink::{Selection, SinkError};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns the options of a filter of PEP 706, which says if owners, permission bits and attributes
/// are restored.
///
/// # Errors
/// `ValueError` for a filter that does not exist.
pub(super) fn options(policy: &str, existing: Existing, threads: Threads) -> PyResult<ExtractOptions> {
    let base = ExtractOptions { threads: threads.count(), existing, ..ExtractOptions::default() };
    match policy {
        "fully_trusted" => Ok(base),
        "tar" => Ok(ExtractOptions { umask: 0o7022, ..base }),
        "data" => Ok(ExtractOptions { umask: 0o7022, owners: Owners::Skip, xattrs: false, ..base }),
        other => Err(PyValueError::new_err(format!("filter={other:?}: use 'fully_trusted', 'tar' or 'data'"))),
    }
}

/// Extracts `members`, or everything if there are none, and returns counts as a dictionary.
pub(super) fn extract_members<'py>(
    py: Python<'py>,
    image: &Image,
    members: Vec<Name>,
    target: Name,
    options: ExtractOptions,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let reader = image.get()?;
    let members: Vec<_> = members.into_iter().map(|Name(member)| member).collect();
    let selection = if members.is_empty() { Ok(Selection::everything()) } else { Selection::of(members) };
    let selection = selection.map_err(|error| sink_error(py, image, error))?;
    let target = target.into_path();
    let (stop, meter, done) = (AtomicBool::new(false), Meter::default(), AtomicU64::new(0));
    let total = match &progress {
        Some(_) => py.detach(|| selection.contents_len(&reader)).map_err(|error| sink_error(py, image, error))?,
        None => 0,
    };
    let count = |bytes| meter.set(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    let mut tick = meter.reporter(progress);
    let control = Control { stop: &stop, progress: &count };
    let extracted = interrupt::run(py, &stop, &mut tick, || extract(&reader, &target, &selection, &options, &control))?;
    let report = extracted.map_err(|error| sink_error(py, image, error))?;
    let counts = PyDict::new(py);
    counts.set_item("files", report.files)?;
    counts.set_item("directories", report.dirs)?;
    counts.set_item("others", report.others)?;
    counts.set_item("hard_links", report.hard_links)?;
    counts.set_item("bytes", report.bytes)?;
    Ok(counts)
}

/// Returns the exception for an error of extraction.
fn sink_error(py: Python<'_>, image: &Image, error: SinkError) -> PyErr {
    let message = error.to_string();
    match error {
        SinkError::Read(error) => image.exception(py, &error, &Subject::Image),
        SinkError::Io { path, action, source } => {
            let errno = source.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            // Python adds the path to the message.
            let message = match source.kind() {
                std::io::ErrorKind::AlreadyExists => "exists already: overwrite=True replaces files".to_owned(),
                _ => format!("cannot {action}: {source}"),
            };
            let path = errors::text(py, path.as_os_str().as_bytes()).map(Bound::unbind).ok();
            PyOSError::new_err((errno, message, path))
        }
        SinkError::BadName { path, nid } => {
            let defect = kiln_read::ReadError::Corrupt {
                path: Some(path.clone()),
                file_off: None,
                nid: Some(nid),
                defect: Box::new(
                    kiln_read::FormatError::corrupt("erofs_dirent", 0, "name", nid.0, "not the name of a file").into(),
                ),
            };
            image.exception(py, &defect, &Subject::Path(path))
        }
        SinkError::NeedsObject { path, .. } => {
            let path = errors::text(py, &path).map(Bound::unbind).ok();
            PyOSError::new_err((rustix::io::Errno::IO.raw_os_error(), message, path))
        }
        SinkError::NoMatch { pattern } => {
            let path = errors::text(py, &pattern).map(Bound::unbind).ok();
            PyOSError::new_err((rustix::io::Errno::NOENT.raw_os_error(), message, path))
        }
        SinkError::BadPattern { .. } => PyValueError::new_err(message),
        SinkError::Stopped => PyKeyboardInterrupt::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}
