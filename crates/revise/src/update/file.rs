//! The file or block device that holds an image that is updated.

use kiln_output::Output;
use kiln_read::{FileSource, ReadAt};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::UpdateError;
use crate::error::ReviseError;

/// Target of an update.
pub struct UpdateTarget<'a> {
    /// Name in error messages.
    pub path: &'a Path,
    /// Output, which is read and written. Nothing else may write to it during the update.
    pub output: &'a dyn Output,
    /// Source of the same bytes.
    pub source: Arc<dyn ReadAt>,
    /// Kind of the target.
    pub extent: TargetExtent,
    /// Modification time in seconds since 1970, if known.
    pub changed_at: Option<i64>,
}

/// Relation of the length of a target to that of its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetExtent {
    /// A file, which ends with the image.
    File,
    /// A device, which may hold other data behind the image.
    Device,
}

/// The file or block device that holds an image, opened for an update and locked.
#[derive(Debug)]
pub struct UpdatedFile {
    path: PathBuf,
    file: File,
    extent: TargetExtent,
    changed_at: Option<i64>,
}

/// Locks an image that is changed in place (by `update`, `rollback` or a patch), until `file` is closed. Readers take
/// no such lock.
///
/// # Errors
/// [`UpdateError::Locked`]; a file that cannot be locked.
pub fn lock_for_update(file: &File) -> Result<(), UpdateError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(UpdateError::Locked),
        Err(TryLockError::Error(source)) => Err(UpdateError::Io { action: "lock it", source }),
    }
}

impl UpdatedFile {
    pub(super) fn open(path: &Path) -> Result<Self, UpdateError> {
        let failed = |action| move |source| UpdateError::Io { action, source };
        let file = File::options().read(true).write(true).open(path).map_err(failed("open it for writing"))?;
        lock_for_update(&file)?;
        // After locking: the previous owner of the lock may have changed it.
        let meta = file.metadata().map_err(failed("look at it"))?;
        let extent = match meta.file_type() {
            kind if kind.is_file() => TargetExtent::File,
            kind if kind.is_block_device() => TargetExtent::Device,
            _ => {
                let source = io::Error::new(ErrorKind::InvalidInput, "neither a file nor a block device");
                return Err(failed("update it")(source));
            }
        };
        let changed_at = (extent == TargetExtent::File).then(|| meta.mtime());
        Ok(Self { path: path.to_owned(), file, extent, changed_at })
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the target of an update.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn target(&self) -> Result<UpdateTarget<'_>, ReviseError> {
        let source = self.file.try_clone().and_then(FileSource::from_file);
        let source = source.map_err(|source| ReviseError::Update {
            image: self.path.clone(),
            source: UpdateError::Io { action: "read it", source },
        })?;
        let source: Arc<dyn ReadAt> = Arc::new(source);
        let (path, extent, changed_at) = (&*self.path, self.extent, self.changed_at);
        Ok(UpdateTarget { path, output: self, source, extent, changed_at })
    }
}

impl Output for UpdatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Output::write_at(&self.file, bytes, offset)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Output::read_at(&self.file, buf, offset)
    }

    /// A device keeps its length.
    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.extent == TargetExtent::Device { Ok(()) } else { self.file.set_len(len) }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
