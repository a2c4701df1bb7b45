//! The seam for I/O: positional, blocking reads.

use crate::error::ReadError;
use rustix::fs::{Advice, OFlags, fadvise};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// A range of a source, and where its bytes go.
pub struct RangeMut<'a> {
    /// Byte offset in the source.
    pub off: u64,
    /// Filled completely.
    pub buf: &'a mut [u8],
}

/// Bytes that can be read at any position by any thread: a file, memory, an object in a store.
///
/// Blocking, because FUSE, the command and Python are. All five methods are required, so that a wrapper (cache,
/// counter, fault injector) cannot forget to forward one. [`conformance`](crate::conformance) tests implementations.
pub trait ReadAt: Send + Sync {
    /// Length in bytes. It does not change.
    ///
    /// # Errors
    /// The source cannot tell.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    ///
    /// # Errors
    /// As [`ReadAt::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fill `buf` from byte `off` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the range ends behind the source; else what the source reports.
    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()>;

    /// Fill many ranges, in any order; an implementation may merge them.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`], for the first range that fails; what the other buffers hold is then unspecified.
    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()>;

    /// The bytes themselves, where they are in memory: who has them need not copy. `None` for a source that must be read, and
    /// where the range ends behind the source.
    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]>;

    /// A hint: these bytes will be read soon. Ranges behind the end are allowed.
    fn will_need(&self, off: u64, len: u64);
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        (**self).read_ranges(ranges)
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        (**self).borrow(off, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        (**self).will_need(off, len);
    }
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
}

impl FileSource {
    /// Open the file or block device at `path`.
    ///
    /// # Errors
    /// [`ReadError::Io`] with the path: it cannot be opened, or is something else (a directory, a FIFO, ...).
    pub fn open(path: &Path) -> Result<FileSource, ReadError> {
        Self::open_inner(path).map_err(|error| ReadError::open(path, error))
    }

    /// Tell the system to fetch what is asked for, and nothing behind it.
    pub fn refuse_read_ahead(&self) {
        // A hint that the system does not take is no error.
        let _ = fadvise(&self.file, 0, None, Advice::Random);
    }

    fn open_inner(path: &Path) -> io::Result<FileSource> {
        // Without O_NONBLOCK, opening a FIFO waits for a writer. It changes nothing for files and block devices.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let file_type = file.metadata()?.file_type();
        if !file_type.is_file() && !file_type.is_block_device() {
            let reason = "neither a regular file nor a block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // A block device's metadata has no length; seeking to its end has.
        let len = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
        Ok(FileSource { file, len })
    }
}

impl AsFd for FileSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        // The system refuses offsets over 63 bits in another way.
        match off.checked_add(buf.len() as u64) {
            Some(end) if end <= self.len => self.file.read_exact_at(buf, off),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // A hint that the system does not take is no error.
            let _ = fadvise(&self.file, off, Some(len), Advice::WillNeed);
        }
    }
}

/// A source from one of its bytes on: an image inside a file of another kind, or behind a boot sector.
#[derive(Clone, Debug)]
pub struct OffsetSource<S> {
    inner: S,
    /// Where this source's byte 0 is in `inner`.
    start: u64,
    len: u64,
}

impl<S: ReadAt> OffsetSource<S> {
    /// The bytes of `inner` from byte `start` to its end.
    ///
    /// # Errors
    /// `inner` ends before `start`, or cannot tell its length.
    pub fn new(inner: S, start: u64) -> io::Result<OffsetSource<S>> {
        let whole = inner.len()?;
        match whole.checked_sub(start) {
            Some(len) => Ok(OffsetSource { inner, start, len }),
            None => {
                let reason = format!("nothing at byte {start}: there are only {whole} bytes");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
            }
        }
    }

    /// Where `len` bytes from byte `off` on are in `inner`, which may be longer than it was.
    fn place(&self, off: u64, len: usize) -> io::Result<u64> {
        match off.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(self.start + off),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<S: ReadAt> ReadAt for OffsetSource<S> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        let place = self.place(off, buf.len())?;
        self.inner.read_exact_at(buf, place)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        let shift = |range: &RangeMut<'_>| self.place(range.off, range.buf.len());
        let places = ranges.iter().map(shift).collect::<io::Result<Vec<_>>>()?;
        let shifted = ranges.iter_mut().zip(places).map(|(range, off)| RangeMut { off, buf: range.buf });
        self.inner.read_ranges(&mut shifted.collect::<Vec<_>>())
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.inner.borrow(self.place(off, len).ok()?, len)
    }

    fn will_need(&self, off: u64, len: u64) {
        if off < self.len {
            self.inner.will_need(self.start + off, len.min(self.len - off));
        }
    }
}

/// Bytes in memory.
#[derive(Clone, Debug)]
pub struct MemorySource {
    bytes: Vec<u8>,
}

impl MemorySource {
    /// A source of exactly these bytes.
    pub fn new(bytes: Vec<u8>) -> MemorySource {
        MemorySource { bytes }
    }
}

impl ReadAt for MemorySource {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        buf.copy_from_slice(self.borrow(off, buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, off: u64, len: usize) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(off).ok()?..)?.get(..len)
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}
