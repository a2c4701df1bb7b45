//! What is read front to back, before it is a tape.

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
    /// Of `bytes` from `offset` on.
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

/// A stream that can be looked at before it is read.
pub(super) struct LookAhead {
    stream: Box<dyn Read + Send>,
    /// What was looked at, and not read so far.
    ahead: Vec<u8>,
}

impl LookAhead {
    pub(super) fn new(stream: Box<dyn Read + Send>) -> Self {
        Self { stream, ahead: Vec::new() }
    }

    /// The next `len` bytes, which are still to be read: fewer only at the end.
    pub(super) fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        let more = len.saturating_sub(self.ahead.len());
        (&mut self.stream).take(more as u64).read_to_end(&mut self.ahead)?;
        Ok(&self.ahead[..len.min(self.ahead.len())])
    }
}

impl Read for LookAhead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            return self.stream.read(buf);
        }
        let len = buf.len().min(self.ahead.len());
        buf[..len].copy_from_slice(&self.ahead[..len]);
        self.ahead.drain(..len);
        Ok(len)
    }
}
