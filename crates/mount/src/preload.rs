//! Preloading: bringing the ranges of a hot list into the page cache before a program reads them.

use kiln_read::hotlist::HotList;
use rustix::fs::{Advice, Dir, FileType, Mode, OFlags, ResolveFlags, fadvise, fstat, open, openat2};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fuse::available;

/// Length of one read in bytes.
const CHUNK_LEN: usize = 1 << 20;
/// Longest readahead of the kernel in bytes, if the system does not report one.
const READ_AHEAD_LEN: u64 = 128 << 10;

/// Way in which data is brought into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// It is read, and cached when the call returns.
    Read,
    /// It is read, without readahead around it: for cheap requests, such as for data that a server
    /// has already decoded.
    Exactly,
    /// The kernel is advised to read it ahead, and does so on its own.
    Advise,
}

/// Result of preloading.
#[derive(Debug, Default)]
pub struct Preloaded {
    /// Number of inodes and directories that were read for their metadata.
    pub inodes: u64,
    /// Number of bytes of files that were read.
    pub bytes: u64,
    /// Number of bytes of files that were skipped because of the limit.
    pub left_out: u64,
    /// Paths that could not be read, once for consecutive entries, with the error.
    pub failed: Vec<(PathBuf, io::Error)>,
}

/// Returns a default limit for [`preload`] in bytes: half of the memory that this process may use.
/// More would evict what was preloaded first.
#[must_use]
pub fn default_preload() -> u64 {
    available() / 2
}

/// Brings the entries of `list` in the mount `dir` into the page cache, in order, until `stop` is
/// set, and at most `bytes_max` bytes of files. Inodes are looked up, directories are read. Ranges
/// end where their file does. Symbolic links are resolved within the mount, and only regular files
/// are opened for reading.
///
/// # Errors
/// `dir` cannot be opened. Errors of entries are in the result.
pub fn preload(dir: &Path, list: &HotList, how: Preload, bytes_max: u64, stop: &AtomicBool) -> io::Result<Preloaded> {
    let root = open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let advice_len = read_ahead_len(fstat(&root)?.st_dev);
    let loader = Loader { root, how, advice_len, stop };
    let (mut done, mut left, mut chunk) = (Preloaded::default(), bytes_max, vec![0; CHUNK_LEN]);
    // Ranges of one file often follow each other. `None` for a file that cannot be opened.
    let mut last: Option<(&[u8], Option<OpenFile>)> = None;
    for entry in list.entries().iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
        let path = &entry.path[..];
        if entry.is_metadata() {
            match loader.metadata(path) {
                Ok(()) => done.inodes += 1,
                Err(error) => done.fail(path, error),
            }
            continue;
        }
        if last.as_ref().is_none_or(|(last, _)| *last != path) {
            let opened = loader.open(path).map_err(|error| done.fail(path, error));
            last = Some((path, opened.ok()));
        }
        let Some((_, Some(file))) = &last else { continue };
        let wanted = entry.range().start..entry.range().end.min(file.len);
        let len = wanted.end.saturating_sub(wanted.start);
        let taken = len.min(left);
        (left, done.left_out) = (left - taken, done.left_out.saturating_add(len - taken));
        match loader.data(file, wanted.start..wanted.start + taken, &mut chunk) {
            Ok(()) => done.bytes += taken,
            Err(error) => done.fail(path, error),
        }
    }
    Ok(done)
}

impl Preloaded {
    fn fail(&mut self, path: &[u8], error: io::Error) {
        let path = Path::new(OsStr::from_bytes(path));
        if self.failed.last().is_none_or(|(last, _)| last != path) {
            self.failed.push((path.to_owned(), error));
        }
    }
}

/// Open file of the mount, and its length in bytes.
struct OpenFile {
    file: File,
    len: u64,
}

struct Loader<'a> {
    root: OwnedFd,
    how: Preload,
    /// Length of one advice in bytes.
    advice_len: u64,
    stop: &'a AtomicBool,
}

impl Loader<'_> {
    /// Opens `path` with `flags`; the root has the empty path.
    fn at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        Ok(openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?)
    }

    /// Reads an inode, and the names of a directory.
    fn metadata(&self, path: &[u8]) -> io::Result<()> {
        let inode = self.at(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let found = fstat(&inode)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Ok(());
        }
        let names = Dir::new(self.at(path, OFlags::DIRECTORY)?)?;
        for name in names.take_while(|_| !self.stop.load(Ordering::Relaxed)) {
            name?;
        }
        Ok(())
    }

    /// Opens a regular file. Others are not opened: a FIFO would wait for a writer, and a device
    /// could do anything.
    fn open(&self, path: &[u8]) -> io::Result<OpenFile> {
        let found = fstat(self.at(path, OFlags::PATH)?)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::from(self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        if self.how == Preload::Exactly {
            // A hint: without it, the kernel reads ahead, and continues where it stopped when
            // programs get there.
            fadvise(&file, 0, None, Advice::Random)?;
        }
        let len = file.metadata()?.len();
        Ok(OpenFile { file, len })
    }

    /// Brings `bytes` of a file into the page cache.
    fn data(&self, file: &OpenFile, bytes: Range<u64>, chunk: &mut [u8]) -> io::Result<()> {
        let Range { mut start, end } = bytes;
        while start < end && !self.stop.load(Ordering::Relaxed) {
            let left = end - start;
            start += match self.how {
                Preload::Advise => {
                    // The kernel follows only the front of an advice, up to its readahead.
                    let len = left.min(self.advice_len);
                    fadvise(&file.file, start, NonZeroU64::new(len), Advice::WillNeed)?;
                    len
                }
                Preload::Read | Preload::Exactly => {
                    let part = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
                    match file.file.read_at(&mut chunk[..part], start)? {
                        0 => return Ok(()),
                        len => len as u64,
                    }
                }
            };
        }
        Ok(())
    }
}

/// Returns the kernel's readahead on the filesystem `dev`, in bytes.
fn read_ahead_len(dev: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let text = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let kib = text.ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|&kib| kib > 0);
    kib.map_or(READ_AHEAD_LEN, |kib| kib.saturating_mul(1024).min(READ_AHEAD_LEN))
}
