//! The file or block device that holds an image that is updated.

use kiln_output::Output;
use kiln_read::{FileSource, ReadAt};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::UpdateError;
use crate::error::Error;

/// Where an image is that is updated.
pub struct UpdateTarget<'a> {
    /// What errors call it.
    pub path: &'a Path,
    /// Read and written; nobody else may write to it meanwhile.
    pub output: &'a dyn Output,
    /// The same bytes, as far as there are some now.
    pub source: Arc<dyn ReadAt>,
    /// Whether its length is its own.
    pub extent: TargetExtent,
    /// When it was changed last, in seconds since 1970, if something tells.
    pub changed_at: Option<i64>,
}

/// Whether the length of a target is that of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetExtent {
    /// It is a file, which ends with the image.
    File,
    /// It is a device, on which anything may lie behind the image.
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

/// Lock an image that is about to be written to in its place, until `file` is closed: by `update`, `rollback` and
/// patches in place alike. Readers take no such lock.
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
        // Once it is locked: whoever had the lock before has changed it.
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

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The target of an update.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn target(&self) -> Result<UpdateTarget<'_>, Error> {
        let source = self.file.try_clone().and_then(FileSource::from_file);
        let source = source.map_err(|source| Error::Update {
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
