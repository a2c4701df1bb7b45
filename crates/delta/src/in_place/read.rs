//! Reading and writing files that may end anywhere.

use kiln_output::{Output, read_exact_at};
use std::io::{self, ErrorKind};

use crate::error::DeltaError;

/// Fill `buf` from `off` on. False if there were fewer bytes, which are in front of it then.
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
