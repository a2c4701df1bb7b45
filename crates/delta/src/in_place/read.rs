//! Reading of files that may end anywhere, and errors of the journal.

use kiln_output::{Output, read_exact_at};
use std::io::{self, ErrorKind};

use crate::error::DeltaError;

/// Fills `buf` with the bytes at `off`. Returns false if the file ends before; the bytes up to
/// there are in `buf`.
pub(crate) fn read_all(output: &dyn Output, buf: &mut [u8], off: u64) -> io::Result<bool> {
    match read_exact_at(output, buf, off) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

pub(super) fn read_failed(source: io::Error) -> DeltaError {
    DeltaError::Write { action: "read the journal", source }
}

pub(super) fn write_failed(source: io::Error) -> DeltaError {
    DeltaError::Write { action: "write the journal", source }
}
