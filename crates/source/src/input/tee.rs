//! Reader that copies what is read.

use std::io::{self, Read};

/// A reader that copies what is read.
pub(crate) struct Tee<'t, R: ?Sized> {
    /// Source of the bytes.
    pub from: &'t mut R,
    /// Buffer to which the bytes read are appended.
    pub copy: &'t mut Vec<u8>,
}

impl<R: Read + ?Sized> Read for Tee<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buf)?;
        self.copy.extend_from_slice(&buf[..len]);
        Ok(len)
    }
}
