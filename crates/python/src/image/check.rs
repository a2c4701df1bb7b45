//! The check of a whole image. It ends early if the calling thread gets a signal.

use crate::errors::Subject;
use crate::handle::Image;
use crate::pack::interrupt::{self, Meter};
use kilnfs::Threads;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Checks everything in the image, and returns the report as a dictionary.
pub(super) fn check<'py>(
    py: Python<'py>,
    image: &Image,
    threads: Threads,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let reader = image.get()?;
    let (stop, meter, done) = (AtomicBool::new(false), Meter::default(), AtomicU64::new(0));
    // The total is unknown: the check is what counts the bytes of all contents.
    let count = |bytes| meter.set(done.fetch_add(bytes, Ordering::Relaxed) + bytes, 0);
    let mut tick = meter.reporter(progress);
    let checked = interrupt::run(py, &stop, &mut tick, || reader.check_with(threads, &count))?;
    let report = checked.map_err(|error| image.exception(py, &error, &Subject::Image))?;
    let figures = PyDict::new(py);
    figures.set_item("inodes", report.inodes)?;
    figures.set_item("directories", report.directories)?;
    figures.set_item("extents", report.extents)?;
    figures.set_item("bytes", report.bytes)?;
    figures.set_item("file_bytes", report.file_bytes)?;
    figures.set_item("digested_bytes", report.digested_bytes)?;
    figures.set_item("problem_count", report.problem_count)?;
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    figures.set_item("problems", problems)?;
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    figures.set_item("notes", notes)?;
    Ok(figures)
}
