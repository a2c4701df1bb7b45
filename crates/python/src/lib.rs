//! Native module `kilnfs._native`: EROFS images for Python. Users see the Python package around it,
//! `python/kilnfs`.
//!
//! Each call that may read or decode releases the interpreter (`detach`), and no thread outlives a
//! call. Locks of this crate are held for a few instructions while the interpreter is not released,
//! so a forked child never waits for one.
//!
//! # Inside
//!
//! `handle` is an open image; everything that reads takes it. Above it lie `index` (files of a
//! dataset in flat columns, in memory, in a mapped file, or behind the image) and `batch` (many
//! files in one call: batches, iteration, positions); above those `image` (the methods of an image,
//! with opening, check and extraction) and `locality` (the order of `shuffle` for an index). `pack`
//! packs. `memory` owns the memory that Python sees as buffers, and `source` makes an object of
//! Python a `ReadAt`. Long calls run on a thread of their own while the calling thread checks for
//! signals (`pack::interrupt`).
//!
//! `python/kilnfs` is the Python part: `_image`, with the methods of `zipfile` and `os` in
//! `_verbs`; `_path`, `_file`; `_samples` and `_locality` (datasets and samplers without a
//! framework), on which `torch` and `torchvision` put base classes; `fs` (fsspec); `_fsspec_source`
//! (remote images; `_pinned` keeps to one version of them, `_retry` repeats requests, `_urls`
//! removes secrets from URLs); `_pack`; `shards`, whose images are one tree (`_shard_tree`) and
//! open in a window (`_window`). `import kilnfs` imports none of them before they are used.
#![deny(unsafe_code)] // except in modules that say why
#![allow(clippy::too_many_arguments)] // keyword arguments of Python
#![warn(unreachable_pub)]

mod arguments;
mod batch;
mod errors;
mod handle;
mod image;
mod index;
mod locality;
mod memory;
mod pack;
mod sequence;
mod source;

use arguments::Name;
use pyo3::prelude::*;

/// Runs the command `kiln` with these arguments, the first of which is its name, and returns its
/// exit code. `program` is the command line that starts it again, for mounts in the background.
#[pyfunction]
fn main(py: Python<'_>, args: Vec<Name>, program: Vec<Name>) -> u8 {
    let words = |words: Vec<Name>| words.into_iter().map(|word| word.into_path().into_os_string()).collect::<Vec<_>>();
    kiln_command::set_program(words(program));
    py.detach(|| kiln_command::exit_code(&words(args)))
}

// State that threads share is behind locks, atomics or `Arc`: the compiler requires `Sync` of each
// class, and all are `frozen`, so Python cannot write to them.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_class::<handle::Image>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::iterate::IterMany>()?;
    module.add_class::<batch::positions::Positions>()?;
    module.add_class::<index::Index>()?;
    module.add_class::<locality::LocalityOrder>()?;
    sequence::register::<batch::Batch>(module.py())?;
    sequence::register::<index::Index>(module.py())?;
    pack::register(module)
}
