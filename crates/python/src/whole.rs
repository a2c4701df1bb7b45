//! Work on the whole image: checking and extracting. It ends early where the caller's thread gets a signal.

use crate::errors::{self, Subject};
use crate::image::Image;
use crate::pack::interrupt::{self, Meter};
use kiln::Threads;
use kiln::sink::dir::{Control, Existing, ExtractOptions, Owners, extract};
use kiln::sink::{Selection, SinkError};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a policy of PEP 706 keeps of the image: owners, permission bits, attributes.
fn options(policy: &str, existing: Existing, threads: Threads) -> PyResult<ExtractOptions> {
    let base = ExtractOptions { threads: threads.count(), existing, ..ExtractOptions::default() };
    match policy {
        "fully_trusted" => Ok(base),
        "tar" => Ok(ExtractOptions { umask: 0o7022, ..base }),
        "data" => Ok(ExtractOptions { umask: 0o7022, owners: Owners::Skip, xattrs: false, ..base }),
        other => Err(PyValueError::new_err(format!("filter={other:?}: 'fully_trusted', 'tar' or 'data'"))),
    }
}

/// Extract `members`, or everything if there are none.
pub(crate) fn extract_members<'py>(
    py: Python<'py>,
    image: &Image,
    members: Vec<Vec<u8>>,
    target: Vec<u8>,
    policy: &str,
    existing: Existing,
    threads: Threads,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let opened = image.get()?;
    let options = options(policy, existing, threads)?;
    let selection = if members.is_empty() { Ok(Selection::everything()) } else { Selection::of(members) };
    let selection = selection.map_err(|error| sink_error(py, image, error))?;
    let target = PathBuf::from(OsString::from_vec(target));
    let (stop, meter, done) = (AtomicBool::new(false), Meter::default(), AtomicU64::new(0));
    let total = match &progress {
        Some(_) => py.detach(|| selection.contents_len(&opened)).map_err(|error| sink_error(py, image, error))?,
        None => 0,
    };
    let count = |bytes| meter.set(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    let mut tick = meter.reporter(progress);
    let control = Control { stop: &stop, progress: &count };
    let extracted = interrupt::run(py, &stop, &mut tick, || extract(&opened, &target, &selection, &options, &control))?;
    let report = extracted.map_err(|error| sink_error(py, image, error))?;
    let facts = PyDict::new(py);
    facts.set_item("files", report.files)?;
    facts.set_item("directories", report.dirs)?;
    facts.set_item("others", report.others)?;
    facts.set_item("hard_links", report.hard_links)?;
    facts.set_item("bytes", report.bytes)?;
    Ok(facts)
}

/// Check everything in the image.
pub(crate) fn check<'py>(
    py: Python<'py>,
    image: &Image,
    threads: Threads,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let opened = image.get()?;
    let (stop, meter, done) = (AtomicBool::new(false), Meter::default(), AtomicU64::new(0));
    // How many bytes contents have in all is what the check finds out.
    let count = |bytes| meter.set(done.fetch_add(bytes, Ordering::Relaxed) + bytes, 0);
    let mut tick = meter.reporter(progress);
    let checked = interrupt::run(py, &stop, &mut tick, || opened.check_with(threads, &count))?;
    let report = checked.map_err(|error| image.exception(py, &error, &Subject::Image))?;
    let facts = PyDict::new(py);
    facts.set_item("inodes", report.inodes)?;
    facts.set_item("directories", report.directories)?;
    facts.set_item("extents", report.extents)?;
    facts.set_item("bytes", report.bytes)?;
    facts.set_item("file_bytes", report.file_bytes)?;
    facts.set_item("digested_bytes", report.digested_bytes)?;
    facts.set_item("problem_count", report.problem_count)?;
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    facts.set_item("problems", problems)?;
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    facts.set_item("notes", notes)?;
    Ok(facts)
}

/// The exception for an error of extracting.
fn sink_error(py: Python<'_>, image: &Image, error: SinkError) -> PyErr {
    let message = error.to_string();
    match error {
        SinkError::Read(error) => image.exception(py, &error, &Subject::Image),
        SinkError::Io { path, action, source } => {
            let errno = source.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            // Python's message has the path, too.
            let message = match source.kind() {
                std::io::ErrorKind::AlreadyExists => "is there already: overwrite=True replaces files".to_owned(),
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
