//! Results of packing, as dictionaries.

use kilnfs::builder::{Estimate, Interval, Phase, Summary};
use kilnfs::source::LeftOutXattr;
use kilnfs::{Estimated, Packed};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::errors::of_options;
use crate::errors::text;

/// Returns the fields of `PackResult`.
pub(super) fn packed<'py>(py: Python<'py>, packed: &Packed, order: &str) -> PyResult<Bound<'py, PyAny>> {
    let Packed { summary, unmatched, notes, left_out_xattrs, .. } = packed;
    let secs = |of: fn(&Phase) -> f64| summary.phases.iter().map(of).sum::<f64>();
    let dict = PyDict::new(py);
    let counts: &[(&str, u64)] = &[
        ("files", summary.files),
        ("directories", summary.directories),
        ("others", summary.others),
        ("hard_links", summary.hard_links),
        ("bytes", summary.bytes_in),
        ("image_bytes", summary.image_bytes),
        ("duplicate_files", summary.duplicate_files),
        ("duplicate_bytes", summary.duplicate_bytes),
        ("packed_files", summary.packed_files),
        ("metadata_bytes", summary.metadata_bytes),
    ];
    for (name, count) in counts {
        dict.set_item(name, count)?;
    }
    dict.set_item("seconds", secs(|phase| phase.wall.as_secs_f64()))?;
    dict.set_item("cpu_seconds", secs(|phase| phase.cpu.as_secs_f64()))?;
    dict.set_item("uuid", PyBytes::new(py, &summary.uuid))?;
    dict.set_item("min_kernel", kernel(summary))?;
    dict.set_item("min_kernel_because", summary.oldest_kernel_because.map(|feature| feature.name()))?;
    dict.set_item("order", order)?;
    let mut warnings = Vec::new();
    for (what, list) in [("order: no file at", &unmatched.paths), ("hints: no file matches", &unmatched.hints)] {
        if let Some(first) = list.first() {
            let first = text(py, first)?;
            let more = if list.len() > 1 { format!(", and {} more", list.len() - 1) } else { String::new() };
            warnings.push(format!("{what} {}{more}", first.repr()?));
        }
    }
    warnings.extend(notes.iter().map(ToString::to_string));
    let counts = PyDict::new(py);
    for LeftOutXattr { name, entry, count, .. } in left_out_xattrs.iter() {
        let what = if entry.is_empty() { name.clone() } else { [&name[..], entry].join(&b' ') };
        counts.set_item(text(py, &what)?, count)?;
    }
    if !left_out_xattrs.is_empty() {
        warnings.push(left_out_xattrs.to_string());
    }
    dict.set_item("left_out_xattrs", counts)?;
    dict.set_item("warnings", warnings)?;
    Ok(dict.into_any())
}

/// Returns the fields of `Estimate`: values and their errors, in the same unit.
pub(super) fn estimated<'py>(py: Python<'py>, preset: &str, estimate: &Estimated) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("preset", preset)?;
    match estimate {
        Err(refused) => dict.set_item("refused", of_options(refused).value(py).to_string())?,
        Ok(estimate) => {
            let Estimate { image_bytes, cpu_secs, wall_secs, .. } = estimate;
            dict.set_item("refused", py.None())?;
            dict.set_item("bytes", estimate.bytes_in)?;
            dict.set_item("image_bytes", image_bytes.value.round() as u64)?;
            dict.set_item("image_bytes_error", image_bytes.error.ceil() as u64)?;
            let intervals: [(&str, &str, &Interval); 2] =
                [("seconds", "seconds_error", wall_secs), ("cpu_seconds", "cpu_seconds_error", cpu_secs)];
            for (value, error, interval) in intervals {
                dict.set_item(value, interval.value)?;
                dict.set_item(error, interval.error)?;
            }
            dict.set_item("min_kernel", estimate.oldest_kernel.to_string())?;
            dict.set_item("sampled_bytes", estimate.sampled_bytes)?;
        }
    }
    Ok(dict.into_any())
}

fn kernel(summary: &Summary) -> String {
    summary.oldest_kernel.map(|kernel| kernel.to_string()).unwrap_or_default()
}
