//! Packing: `pack`, `estimate`, and the native part of `Builder`.

mod builder;
mod errors;
pub(crate) mod interrupt;
mod options;
mod result;

use kilnfs::source::SourceOptions;
use kilnfs::{Preset, SourceAt};
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::arguments::path;
use errors::to_py;
use interrupt::Meter;
use options::Options;

/// Adds the functions and classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<builder::Builder>()?;
    module.add_function(wrap_pyfunction!(pack, module)?)?;
    module.add_function(wrap_pyfunction!(estimate, module)?)
}

/// Packs sources, pairs of a path and a directory of the image, into a new file. `only`: paths that
/// are packed, with their parents, and a zero byte behind each; `None` for all.
#[pyfunction]
fn pack<'py>(
    py: Python<'py>,
    sources: Vec<(Vec<u8>, Vec<u8>)>,
    image: Vec<u8>,
    options: Options,
    only: Option<Vec<u8>>,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (sources, image) = (parts(sources), path(image));
    let (stop, meter) = (Arc::new(AtomicBool::new(false)), Arc::new(Meter::default()));
    let plan = options.plan(only.as_deref(), Arc::clone(&stop), &meter)?;
    let packed = interrupt::run(py, &stop, &mut meter.reporter(progress), || {
        let source = kilnfs::open_sources(&sources, &source_options(&options, &stop))?;
        plan.packer.pack_source(&*source, &image)
    })?;
    let packed = packed.map_err(|error| to_py(py, error, Some(&image)))?;
    result::packed(py, &packed, plan.order)
}

/// Estimates images of the sources, one for each preset.
#[pyfunction]
fn estimate<'py>(
    py: Python<'py>,
    sources: Vec<(Vec<u8>, Vec<u8>)>,
    presets: Vec<String>,
    options: Options,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let sources = parts(sources);
    let (stop, meter) = (Arc::new(AtomicBool::new(false)), Arc::new(Meter::default()));
    let packer = options.plan(None, Arc::clone(&stop), &meter)?.packer;
    let kinds = presets.iter().map(|name| options::preset(name)).collect::<PyResult<Vec<Preset>>>()?;
    let estimates = interrupt::run(py, &stop, &mut |_, _| Ok(()), || {
        let source = kilnfs::open_sources(&sources, &source_options(&options, &stop))?;
        packer.estimate(&*source, &kinds)
    })?;
    let estimates = estimates.map_err(|error| to_py(py, error, None))?;
    presets.iter().zip(&estimates).map(|(preset, estimate)| result::estimated(py, preset, estimate)).collect()
}

/// Returns options of sources whose streams are waited for until `stop` is set.
fn source_options(options: &Options, stop: &Arc<AtomicBool>) -> SourceOptions {
    let concatenated = options.concatenated;
    SourceOptions { concatenated, stop: Some(Arc::clone(stop)), ..SourceOptions::default() }
}

fn parts(sources: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<SourceAt> {
    sources.into_iter().map(|(source, at)| SourceAt { path: path(source), at }).collect()
}
