//! Little-endian fields of records, with bounds checks.

use std::io;

/// Bytes of a record.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns `len` bytes from offset `at`.
    ///
    /// # Errors
    /// A record that is too short.
    pub(super) fn bytes(self, at: usize, len: usize) -> io::Result<&'a [u8]> {
        let found = at.checked_add(len).and_then(|end| self.0.get(at..end));
        found.ok_or_else(|| {
            invalid(format!("a field of {len} bytes at byte {at} of a record of {} bytes", self.0.len()))
        })
    }

    fn array<const N: usize>(self, at: usize) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(at, N)?);
        Ok(array)
    }

    pub(super) fn u8(self, at: usize) -> io::Result<u8> {
        self.array::<1>(at).map(|[byte]| byte)
    }

    pub(super) fn u16(self, at: usize) -> io::Result<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(super) fn u32(self, at: usize) -> io::Result<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// Returns a number whose halves are separate fields.
    pub(super) fn u64_of(self, low_at: usize, high_at: usize) -> io::Result<u64> {
        Ok(u64::from(self.u32(high_at)?) << 32 | u64::from(self.u32(low_at)?))
    }
}

/// Returns an error for data that violates the format.
pub(super) fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}
