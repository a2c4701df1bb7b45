//! Memory limit for names and metadata, relative to the length of the source.

use std::path::Path;

use crate::error::SourceError;

/// The tree of a source of `n` bytes may take 256 MiB plus `256 * n` bytes of memory. Valid sources
/// stay far below. Hostile ones do not: each inode of 32 bytes in an image may refer to a shared
/// attribute of 64 KiB, and each member of an archive may imply hundreds of directories.
const FLOOR: u64 = 256 << 20;
const RATIO: u64 = 256;

/// Memory used by the tree of a source, with its limit.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    source_len: u64,
    taken: u64,
    floor: u64,
}

impl MemoryLimit {
    /// Creates the limit for a source of `source_len` bytes. For a stream, that is the length read
    /// so far, see [`MemoryLimit::grow`].
    pub fn new(source_len: u64) -> Self {
        Self { source_len, taken: 0, floor: FLOOR }
    }

    /// Raises the known length of the source to `source_len` bytes.
    pub fn grow(&mut self, source_len: u64) {
        self.source_len = self.source_len.max(source_len);
    }

    /// Returns the limit in bytes.
    pub fn bytes(&self) -> u64 {
        self.source_len.saturating_mul(RATIO).saturating_add(self.floor)
    }

    /// Charges `bytes` of memory for the tree of the source at `path`.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`] if the limit is exceeded.
    pub fn charge(&mut self, bytes: usize, path: &Path) -> Result<(), SourceError> {
        self.taken = self.taken.saturating_add(bytes as u64);
        match self.taken <= self.bytes() {
            true => Ok(()),
            false => Err(SourceError::TooLarge { path: path.to_owned(), limit: self.bytes() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited() {
        let mut limit = MemoryLimit { floor: 100, ..MemoryLimit::new(1) };
        let path = Path::new("a");
        assert!(limit.charge(356, path).is_ok());
        assert!(matches!(limit.charge(1, path), Err(SourceError::TooLarge { limit: 356, .. })));
        limit.grow(2);
        assert!(limit.charge(255, path).is_ok());
        assert!(limit.charge(1, path).is_err());
    }
}
