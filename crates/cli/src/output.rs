//! Where the command writes files: what a name leads to, and how bytes get there.
//!
//! A regular file appears under its name complete, or not at all (`new_file`). What takes bytes front to back only, such as a
//! pipe, gets them when all of them are known (`stream`); until then they wait in a nameless file (`spool`).

mod destination;
mod inherited;
mod new_file;
mod spool;
mod stream;

pub use destination::Destination;
pub use new_file::NewFile;
pub use spool::{Spool, spool_dir};
pub use stream::Stream;

use crate::exit::Failure;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// What happens to a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the output is refused.
    Keep,
    /// It is replaced, in one step, if it is a regular file.
    Replace,
}

fn failure(path: &Path, action: &'static str, errno: Errno) -> Failure {
    Failure::File { path: path.to_owned(), action, source: io::Error::from(errno) }
}
