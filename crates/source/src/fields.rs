//! Fields of kept places of contents.

use std::io;

/// Fields of bytes that are not trusted, read front to back.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Fields<'a> {
    /// Returns the fields of `bytes`, from the first on.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Returns true if no bytes are left.
    pub(crate) fn are_at_the_end(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// Returns the next bytes, which are the field `name`.
    pub(crate) fn array<const N: usize>(&mut self, name: &str) -> io::Result<[u8; N]> {
        let Some((front, _)) = self.bytes[self.offset..].split_first_chunk() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("places: byte {}: they end within the {name}", self.offset),
            ));
        };
        self.offset += N;
        Ok(*front)
    }

    /// Returns the next number.
    pub(crate) fn u64(&mut self, name: &str) -> io::Result<u64> {
        self.array(name).map(u64::from_le_bytes)
    }

    /// Returns the next number.
    pub(crate) fn u32(&mut self, name: &str) -> io::Result<u32> {
        self.array(name).map(u32::from_le_bytes)
    }

    /// Returns the next number, that of records of `len` bytes which follow.
    pub(crate) fn count(&mut self, name: &str, len: usize) -> io::Result<usize> {
        let count = self.u64(name)?;
        let max = (self.bytes.len() - self.offset) / len;
        usize::try_from(count).ok().filter(|count| *count <= max).ok_or_else(|| self.invalid(name, count))
    }

    /// Returns the error for the field `name`, which has been read and has this value.
    pub(crate) fn invalid(&self, name: &str, value: u64) -> io::Error {
        let reason = format!("places: before byte {}: {name} = {value}: out of range", self.offset);
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }
}
