//! Errors of spools, as opposed to errors of the source.

use std::{fmt, io};

/// Error of writing a spool.
#[derive(Clone, Debug)]
struct SpoolFailed(String);

impl fmt::Display for SpoolFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpoolFailed {}

/// Creates an error of kind `kind` that [`is_of_spool`] recognises.
pub(crate) fn spool_failed(kind: io::ErrorKind, message: String) -> io::Error {
    io::Error::new(kind, SpoolFailed(message))
}

/// Returns true if an error is one of a spool, and not of the source.
pub(crate) fn is_of_spool(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<SpoolFailed>())
}
