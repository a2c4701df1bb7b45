//! A file mapped into memory: reads need neither a copy nor a system call.
//!
//! With one line in [`fork_local`](crate::cache::fork_local), the only unsafe code of this crate.
#![allow(unsafe_code)]

use super::file::FileSource;
use super::read_at::{LENT_FETCH_LEN, RangeMut, ReadAt};
use crate::error::ReadError;
use rustix::fd::AsFd;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// A regular file or a block device in memory.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{Image, MappedSource};
/// use std::sync::Arc;
///
/// # let path = "tests/golden/flat.erofs";
/// // SAFETY: this image is installed once and never changed.
/// let source = unsafe { MappedSource::open(path.as_ref()) }?;
/// let image = Image::open(Arc::new(source), vec![], &Default::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MappedSource {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is never written, and belongs to the process, not to a thread.
unsafe impl Send for MappedSource {}
// SAFETY: as above.
unsafe impl Sync for MappedSource {}

impl MappedSource {
    /// Maps the file or block device at `path`.
    ///
    /// # Safety
    /// No process may change the file or truncate it while the source is alive: bytes that change
    /// while they are decoded are undefined behaviour, and access to truncated pages ends the
    /// process with SIGBUS. Where other processes may write, use a [`FileSource`].
    ///
    /// # Errors
    /// As [`FileSource::open`]; the file does not fit into memory's addresses.
    pub unsafe fn open(path: &Path) -> Result<MappedSource, ReadError> {
        let file = FileSource::open(path)?;
        let failed = |error: io::Error| ReadError::open(path, error);
        let len = file.len().and_then(|len| usize::try_from(len).map_err(io::Error::other)).map_err(failed)?;
        if len == 0 {
            // mmap(2) refuses a length of 0.
            return Ok(Self { start: NonNull::dangling(), len });
        }
        // SAFETY: the system chooses the address, so no other mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0) };
        let start = start.map_err(|error| failed(error.into()))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed(io::Error::other("mapped at address 0")))?;
        Ok(Self { start, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, and no process writes to it, as the caller of
        // `open` has promised. With length 0, a dangling pointer is allowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for MappedSource {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `self` owns the mapping, and no reference to it is left. A failure would
            // leave it mapped, which is harmless.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

impl ReadAt for MappedSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        buf.copy_from_slice(self.borrow(off, buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.bytes().get(usize::try_from(off).ok()?..)?.get(..len)
    }

    fn will_need(&self, off: u64, len: u64) {
        let page = rustix::param::page_size() as u64;
        let start = off.min(self.len as u64) / page * page;
        let end = off.saturating_add(len).min(self.len as u64);
        if start < end {
            // SAFETY: within our map; this advice changes nothing that a reader can see.
            let _ = unsafe {
                madvise(self.start.as_ptr().add(start as usize).cast(), (end - start) as usize, Advice::WillNeed)
            };
        }
    }

    /// Returns 0, as nothing is fetched: bytes in memory are lent.
    fn fetch_max_len(&self) -> usize {
        LENT_FETCH_LEN
    }
}
