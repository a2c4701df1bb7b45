//! A file or a block device as a source.

use super::read_at::{RangeMut, ReadAt};
use crate::error::ReadError;
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that one read fetches by one call: with 256 KiB it takes 2 to 3 % more CPU time (pclusters
/// of 64 KiB, in the page cache).
const FETCH_LEN: usize = 64 << 10;

/// A regular file or a block device.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// use kiln_read::{FileSource, Image};
/// use std::sync::Arc;
///
/// # let path = "tests/golden/blobdev.erofs";
/// # let blob = "tests/golden/blobdev.blob";
/// let (primary, extra) = (FileSource::open(path.as_ref())?, FileSource::open(blob.as_ref())?);
/// let image = Image::open(Arc::new(primary), vec![Arc::new(extra)], &Default::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
    /// True if the system fetches the bytes that are read, and nothing behind them.
    is_read_ahead_refused: AtomicBool,
}

impl FileSource {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// [`ReadError::Io`] with the path: it cannot be opened, or is something else (a directory, a
    /// FIFO, ...).
    pub fn open(path: &Path) -> Result<FileSource, ReadError> {
        Self::open_inner(path).map_err(|error| ReadError::open(path, error))
    }

    /// Tells the system to fetch the bytes that are read, and nothing behind them.
    pub fn refuse_read_ahead(&self) {
        // A hint that the system does not take is no error.
        let _ = fadvise(&self.file, 0, None, Advice::Random);
        self.is_read_ahead_refused.store(true, Ordering::Relaxed);
    }

    fn open_inner(path: &Path) -> io::Result<FileSource> {
        // Without O_NONBLOCK, opening a FIFO waits for a writer. It changes nothing for files and
        // block devices.
        let flags = OFlags::NONBLOCK.bits() as i32;
        Self::from_file(File::options().read(true).custom_flags(flags).open(path)?)
    }

    /// Returns an open file or block device.
    ///
    /// # Errors
    /// Something else (a directory, a FIFO, ...); errors of the system.
    pub fn from_file(file: File) -> io::Result<FileSource> {
        let file_type = file.metadata()?.file_type();
        if !file_type.is_file() && !file_type.is_block_device() {
            let reason = "neither a regular file nor a block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // A block device's metadata has no length; seeking to its end has.
        let len = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
        Ok(FileSource { file, len, is_read_ahead_refused: AtomicBool::new(false) })
    }
}

impl FileSource {
    /// Fills adjacent ranges with one system call, if the system takes so many.
    fn read_run(&self, run: &mut [RangeMut<'_>]) -> io::Result<()> {
        let len: usize = run.iter().map(|range| range.buf.len()).sum();
        let (off, end) = (run[0].off, run[run.len() - 1].end());
        if end.is_some_and(|end| end <= self.len) {
            let mut bufs: Vec<_> = run.iter_mut().map(|range| IoSliceMut::new(range.buf)).collect();
            if preadv(&self.file, &mut bufs, off) == Ok(len) {
                return Ok(());
            }
        }
        // Too many ranges, a signal, or an error, which the range that has it names.
        run.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
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
        let runs = || ranges.chunk_by(|one, other| one.end() == Some(other.off));
        if self.is_read_ahead_refused.load(Ordering::Relaxed) {
            // Without hints, the disk would get one request after the other.
            for run in runs().skip(1) {
                self.will_need(run[0].off, run.iter().map(|range| range.buf.len() as u64).sum());
            }
        }
        ranges.chunk_by_mut(|one, other| one.end() == Some(other.off)).try_for_each(|run| match run {
            [range] => self.read_exact_at(range.buf, range.off),
            run => self.read_run(run),
        })
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

    /// Returns a call costs a microsecond where the bytes are in the page cache.
    fn fetch_max_len(&self) -> usize {
        FETCH_LEN
    }

    /// Returns the page cache is asked for the first byte, the last one and one between.
    fn is_resident(&self, off: u64, len: u64) -> Option<bool> {
        let last = off.saturating_add(len).min(self.len).checked_sub(1)?;
        for at in [off, off + last.checked_sub(off)? / 2, last] {
            match preadv2(&self.file, &mut [IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Some(false),
                Err(_) => return None,
            }
        }
        Some(true)
    }
}
