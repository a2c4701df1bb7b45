//! The module `kilnfs._native`: images for Python. What users see is the Python package around it, `python/kilnfs`.
//!
//! Each call that may read or decode releases the interpreter (`detach`), and no thread outlives a call. Locks of this crate are held
//! for a few instructions while the interpreter is not released, so a forked child never waits for one.
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
