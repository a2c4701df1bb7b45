//! Failures of the nameless file in which a source is kept: they are none of the source.

use std::{fmt, io};

/// That the spool could not be written.
#[derive(Clone, Debug)]
struct SpoolFailed(String);

impl fmt::Display for SpoolFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpoolFailed {}

/// An error of the kind that the system told, which [`is_of_spool`] recognises.
pub(crate) fn spool_failed(kind: io::ErrorKind, message: String) -> io::Error {
    io::Error::new(kind, SpoolFailed(message))
}

/// Whether an error is one of a spool, and not of what is read.
pub(crate) fn is_of_spool(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<SpoolFailed>())
}
