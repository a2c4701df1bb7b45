//! An output in memory.

use parking_lot::Mutex;
use std::io;

use crate::Output;

/// An output in memory, for images that fit there.
#[derive(Debug, Default)]
pub struct MemoryOutput {
    bytes: Mutex<Vec<u8>>,
}

impl MemoryOutput {
    /// Returns the bytes that were written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_inner()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        act(&mut self.bytes.lock())
    }
}

/// Returns `offset` as an index, with room for `len` bytes behind it.
fn place(offset: u64, len: usize) -> io::Result<usize> {
    let start = usize::try_from(offset).ok().filter(|start| start.checked_add(len).is_some());
    start.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

impl Output for MemoryOutput {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let start = place(offset, bytes.len())?;
        self.with(|all| {
            let end = start + bytes.len();
            if all.len() < end {
                all.resize(end, 0);
            }
            all[start..end].copy_from_slice(bytes);
        });
        Ok(bytes.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = place(offset, buf.len())?;
        Ok(self.with(|all| {
            let found = all.get(start..).unwrap_or_default();
            let len = found.len().min(buf.len());
            buf[..len].copy_from_slice(&found[..len]);
            len
        }))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = place(len, 0)?;
        self.with(|all| all.resize(len, 0));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
