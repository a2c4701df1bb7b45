//! A limit of memory for names and metadata, by the length of what they come from.

use std::path::Path;

use crate::error::SourceError;

/// The tree of a source of `n` bytes may take 256 MiB and `256 * n` bytes of memory. Honest ones stay far below; a hostile image
/// can name a shared attribute of 64 KiB with every inode of 32 bytes, and a hostile archive hundreds of directories with every
/// member.
const FLOOR: u64 = 256 << 20;
const RATIO: u64 = 256;

/// What the tree of a source takes in memory, and what it may.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    source_len: u64,
    taken: u64,
    floor: u64,
}

impl MemoryLimit {
    /// For a source of `source_len` bytes: of a stream, those that were read so far, see [`MemoryLimit::grow`].
    pub fn new(source_len: u64) -> Self {
        Self { source_len, taken: 0, floor: FLOOR }
    }

    /// As many bytes of the source are known now.
    pub fn grow(&mut self, source_len: u64) {
        self.source_len = self.source_len.max(source_len);
    }

    /// The most that is allowed, in bytes.
    pub fn bytes(&self) -> u64 {
        self.source_len.saturating_mul(RATIO).saturating_add(self.floor)
    }

    /// Take so many bytes more, for the tree of the source at `path`.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`].
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
