//! A place inside an existing block device or larger file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::OutputError;
use crate::spool::Spool;

/// Flag with which opening a block device fails while it is mounted or otherwise in use.
const IN_USE_FAILS: i32 = rustix::fs::OFlags::EXCL.bits() as i32;

/// A place inside an existing file or device. Data before and behind the image stays. The image is written there
/// only once it is complete, but then in place: a crash during the copy leaves part of the image.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    file: File,
    is_device: bool,
}

impl Place {
    /// Opens the block device `path`.
    ///
    /// # Errors
    /// A device that is in use; errors of the system.
    pub fn device(path: &Path) -> Result<Self, OutputError> {
        Self::open(path, true, IN_USE_FAILS)
    }

    /// Opens the existing file `path`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn in_file(path: &Path) -> Result<Self, OutputError> {
        Self::open(path, false, 0)
    }

    fn open(path: &Path, is_device: bool, flags: i32) -> Result<Self, OutputError> {
        let path = path.canonicalize().map_err(|source| OutputError::file(path, "find", source))?;
        let file = File::options().write(true).custom_flags(flags).open(&path);
        let file = file.map_err(|source| OutputError::file(&path, "open", source))?;
        Ok(Self { path, file, is_device })
    }

    /// Returns its path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file or the device.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns a directory on the file system of the file; `None` for a device, which is on none.
    pub fn dir(&self) -> Option<&Path> {
        self.path.parent().filter(|_| !self.is_device)
    }

    /// Writes the image that waits in `spool` from byte `offset` of the place on, and makes it durable.
    ///
    /// # Errors
    /// A device that is too small for the image, which is left as it was; errors of the system.
    pub fn write(mut self, spool: &Spool, offset: u64) -> Result<(), OutputError> {
        let failed = |source| OutputError::file(&self.path, "write", source);
        let mut image = spool.file();
        let room = self.file.seek(SeekFrom::End(0)).map_err(failed)?.saturating_sub(offset);
        let len = image.metadata().map_err(failed)?.len();
        if self.is_device && room < len {
            let message = format!("the image has {len} bytes, the device {room} from byte {offset} on");
            return Err(failed(io::Error::new(io::ErrorKind::StorageFull, message)));
        }
        let copied = self.file.seek(SeekFrom::Start(offset)).and_then(|_| image.rewind());
        let copied = copied.and_then(|()| io::copy(&mut image, &mut self.file));
        copied.and_then(|_| self.file.sync_all()).map_err(failed)
    }
}
