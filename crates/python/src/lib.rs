//! The module `kilnfs._native`: images for Python. What users see is the Python package around it, `python/kilnfs`.
//!
//! Each call that may read or decode releases the interpreter (`detach`), and no thread outlives a call. Locks of this crate are held
//! for a few instructions while the interpreter is not released, so a forked child never waits for one.
//!
//! # Inside
//!
//! `image` (an open image), `index` (files of a dataset in flat columns, in memory, a mapped file, or behind the image), `many` (batches, iteration,
//! positions), `locality` (the order of `shuffle` for an index), `pack`, `whole` (checks, extraction). `memory` owns what Python sees as buffers, and
//! `source` lets an object of Python be a `ReadAt`. Long calls run on a thread of their own while the calling one looks for signals
//! (`pack::interrupt`).
//!
//! `python/kilnfs` gives that its shape: `_image` and `_verbs_*` (zipfile's and os's verbs), `_path`, `_file`; `_samples` and `_locality` (datasets
//! and samplers without a framework), on which `torch` and `torchvision` put base classes; `fs` (fsspec); `_fsspec_source` (remote images;
//! `_pinned`: one version of them, `_retry`, `_urls`: without secrets); `_pack`; `shards`, whose images are one
//! tree (`_shard_tree`) and open in a window (`_window`). `import kilnfs` imports none of them before they are used.
#![deny(unsafe_code)] // but where a module says why
#![allow(clippy::too_many_arguments)] // keywords of Python
#![warn(unreachable_pub)]

mod arguments;
mod errors;
mod explain;
mod image;
mod index;
mod locality;
mod many;
mod memory;
mod names;
mod pack;
mod sequence;
mod source;
mod whole;

use arguments::Name;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Run the command `kiln` with these arguments, the first of which is its name, and return its exit code. `program` is what starts it
/// once more, for mounts in the background.
#[pyfunction]
fn main(py: Python<'_>, args: Vec<Name>, program: Vec<Name>) -> u8 {
    let words = |words: Vec<Name>| words.into_iter().map(|Name(word)| OsString::from_vec(word)).collect::<Vec<_>>();
    kiln_command::set_program(words(program));
    py.detach(|| kiln_command::exit_code(&words(args)))
}

// What its classes share between threads lies behind locks, atomics or `Arc`: the compiler asks `Sync` of each, and none is a class that
// Python may write to: all are `frozen`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_class::<image::Image>()?;
    module.add_class::<many::batch::Batch>()?;
    module.add_class::<many::iterate::IterMany>()?;
    module.add_class::<many::positions::Positions>()?;
    module.add_class::<index::Index>()?;
    module.add_class::<locality::LocalityOrder>()?;
    sequence::register(module.py())?;
    pack::register(module)
}
