//! Adapter from a source of bytes to the `rawzip` crate.

use kiln_read::ReadAt;
use rawzip::{ReaderAt, ZipArchive};
use std::io;
use std::sync::Arc;

/// An archive whose central directory has been located.
pub(super) type Archive = ZipArchive<Bytes>;

/// Bytes of an archive, readable by `rawzip`.
#[derive(Clone)]
pub(super) struct Bytes(pub(super) Arc<dyn ReadAt>);

impl ReaderAt for Bytes {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.len()?.saturating_sub(offset);
        let part = buf.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.0.read_exact_at(&mut buf[..part], offset)?;
        Ok(part)
    }
}
