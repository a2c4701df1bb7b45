//! Creation of files and directories in the target.

use super::Existing;
use super::beneath::open_dir;
use super::run::Extraction;
use crate::SinkError;
use kiln_format::inode::FileType;
use kiln_read::Inode;
use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A file or directory to be created in the target.
pub(super) struct Entry {
    /// Descriptor of the parent directory.
    pub(super) parent: Arc<OwnedFd>,
    /// Path in the image.
    pub(super) path: Vec<u8>,
    pub(super) inode: Inode,
}

impl Entry {
    /// Returns the last component of the path.
    pub(super) fn name(&self) -> &[u8] {
        name_of(&self.path)
    }

    /// Creates an empty file, accessible only by its owner until it is complete. It can be read
    /// back.
    pub(super) fn create_file(&self, run: &Extraction<'_>) -> Result<File, SinkError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(&self.parent, self.name(), flags, Mode::RUSR | Mode::WUSR);
        self.make(run, "create", create).map(File::from)
    }

    /// Creates a symbolic link, device, fifo or socket.
    pub(super) fn create_other(&self, run: &Extraction<'_>) -> Result<(), SinkError> {
        if self.inode.meta.file_type == FileType::Symlink {
            let link = run.image.read_link(&self.inode).map_err(|error| error.at_path(&self.path))?;
            let create = || rustix::fs::symlinkat(&*link, &self.parent, self.name());
            return self.make(run, "create the symbolic link", create);
        }
        let file_type = rustix::fs::FileType::from_raw_mode(RawMode::from(self.inode.meta.file_type.mode_bits()));
        let rdev = self.inode.meta.rdev();
        let dev = rustix::fs::makedev(rdev.major, rdev.minor);
        let create = || rustix::fs::mknodat(&self.parent, self.name(), file_type, Mode::RUSR | Mode::WUSR, dev);
        let action = match self.inode.meta.file_type {
            FileType::CharDevice | FileType::BlockDevice => "create the device",
            FileType::Fifo => "create the fifo",
            _ => "create the socket",
        };
        self.make(run, action, create)
    }

    /// Creates a hard link to the file at `first`, which was created earlier in the same run.
    pub(super) fn link_to(&self, run: &Extraction<'_>, first: &[u8]) -> Result<(), SinkError> {
        let there = run.target.open(parent_of(first), OFlags::PATH).map_err(run.io(first, "open its directory"))?;
        let link = || rustix::fs::linkat(&there, name_of(first), &self.parent, self.name(), AtFlags::empty());
        self.make(run, "create the hard link", link)
    }

    /// Creates a directory, accessible only by its owner until it is complete. An existing
    /// directory is used if the options permit it. Returns true if the directory is new.
    pub(super) fn create_dir(&self, run: &Extraction<'_>) -> Result<bool, SinkError> {
        let make = || rustix::fs::mkdirat(&self.parent, self.name(), Mode::RWXU);
        let is_dir = || open_dir(self.parent.as_fd(), self.name(), OFlags::PATH).is_ok();
        match make() {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if run.options.existing != Existing::Refuse && is_dir() => Ok(false),
            // The existing file may be replaced, or is the reason of the error.
            Err(_) => self.make(run, "make the directory", make).map(|()| true),
        }
    }

    /// Removes an incomplete file.
    pub(super) fn remove(&self) {
        // The error that led here is the one to report.
        let _ = rustix::fs::unlinkat(&self.parent, self.name(), AtFlags::empty());
    }

    /// Calls `make`. If a file of that name exists and may be replaced, unlinks it and tries again.
    fn make<T>(
        &self,
        run: &Extraction<'_>,
        action: &'static str,
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> Result<T, SinkError> {
        let made = match make() {
            Err(Errno::EXIST) if run.options.existing == Existing::Replace => {
                rustix::fs::unlinkat(&self.parent, self.name(), AtFlags::empty())
                    .map_err(run.io(&self.path, "replace"))?;
                make()
            }
            made => made,
        };
        made.map_err(run.io(&self.path, action))
    }
}

/// Returns the path of the directory that contains `path`.
pub(super) fn parent_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&b| b == b'/').map_or(&[], |slash| &path[..slash])
}

/// Returns the last component of `path`.
pub(super) fn name_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&b| b == b'/').map_or(path, |slash| &path[slash + 1..])
}
