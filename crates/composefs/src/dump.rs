//! composefs dumps: a text with one line for each file, from which images are made.
//!
//! ```text
//! PATH SIZE MODE NLINK UID GID RDEV MTIME PAYLOAD CONTENT DIGEST [KEY=VALUE ...]
//! ```

mod dirs;
mod fields;
mod problem;
mod read;
mod write;

pub use problem::{DumpError, DumpProblem, DumpWarning};
pub use read::read;
pub use write::{write, write_some};
