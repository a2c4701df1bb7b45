//! Identity of a file: equal for all names and descriptors of one inode.

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statx};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Device and inode number of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Major number in the upper 32 bits, minor number in the lower.
    pub(super) device: u64,
    pub(super) ino: u64,
}

impl FileId {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&stat(file)?))
    }

    /// Returns the identity of the file at a path, or `None` if there is none. `-` is standard
    /// input.
    pub fn of_path(path: &Path) -> Option<Self> {
        if path == Path::new("-") {
            return Self::of(rustix::stdio::stdin()).ok();
        }
        let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE | StatxFlags::INO);
        stat.ok().map(|stat| Self::from(&stat))
    }

    /// Returns the identity of a regular file or FIFO opened for writing, and `None` for others: a
    /// device does not keep the bytes written to it as contents.
    pub fn of_written(file: impl AsFd) -> Option<Self> {
        let stat = stat(file).ok()?;
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        matches!(file_type, FileType::RegularFile | FileType::Fifo).then(|| Self::from(&stat))
    }
}

fn stat(file: impl AsFd) -> rustix::io::Result<Statx> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE | StatxFlags::INO)
}

impl From<&Statx> for FileId {
    fn from(stat: &Statx) -> Self {
        let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
        Self { device, ino: stat.stx_ino }
    }
}
