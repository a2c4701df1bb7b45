//! Errors of the system that several callers receive.

use std::io;

/// An error of the system that can be cloned.
#[derive(Clone, Debug)]
pub(crate) struct SharedError(io::ErrorKind, Box<str>);

impl From<io::Error> for SharedError {
    fn from(error: io::Error) -> Self {
        Self(error.kind(), error.to_string().into())
    }
}

impl From<SharedError> for io::Error {
    fn from(SharedError(kind, reason): SharedError) -> Self {
        io::Error::new(kind, reason.as_ref())
    }
}
