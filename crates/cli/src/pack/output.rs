//! Where the command writes files: what a name leads to, and streams, which get an image when it is complete.

mod destination;
mod inherited;
mod stream;

pub use destination::Destination;
pub use stream::Stream;

use crate::exit::Failure;
use kiln_output::Spool;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of spools: `asked`, or what the environment says.
pub fn spool_dir(asked: Option<&Path>) -> PathBuf {
    asked.map_or_else(Spool::default_dir, Path::to_owned)
}

/// That `spool` could not be written.
pub fn spool_failure(spool: &Spool, source: io::Error) -> Failure {
    Failure::Spool { dir: spool.dir().to_owned(), source }
}
