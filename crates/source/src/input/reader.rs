//! Sequential reader of a source.

use kiln_read::ReadAt;
use std::io::{self, Read};
use std::sync::Arc;

/// Reads a source front to back.
pub(super) struct Reader {
    bytes: Arc<dyn ReadAt>,
    offset: u64,
    len: u64,
}

impl Reader {
    /// Creates a reader that starts at `offset` of `bytes`.
    pub(super) fn new(bytes: Arc<dyn ReadAt>, offset: u64) -> io::Result<Self> {
        let len = bytes.len()?;
        Ok(Self { bytes, offset, len })
    }
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.len.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let part = buf.len().min(rest);
        self.bytes.read_exact_at(&mut buf[..part], self.offset)?;
        self.offset += part as u64;
        Ok(part)
    }
}
