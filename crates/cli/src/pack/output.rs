//! Destinations of outputs: files, devices, and streams, which get an image when it is complete.

mod destination;
mod inherited;
mod stream;

pub use destination::Destination;
pub use stream::Stream;

use crate::exit::Failure;
use kiln_output::Spool;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the directory of spools: `asked`, or that of the environment.
pub fn spool_dir(asked: Option<&Path>) -> PathBuf {
    asked.map_or_else(Spool::default_dir, Path::to_owned)
}

/// Returns the failure to write `spool`.
pub fn spool_failure(spool: &Spool, source: io::Error) -> Failure {
    Failure::Spool { dir: spool.dir().to_owned(), source }
}
