//! Sources and mount point of a mount, checked before the kernel is asked.

use crate::MountError;
use crate::table::Mounted;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Kind of file of an image or an extra device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
}

/// An image or an extra device.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Path as the caller gave it, for errors.
    pub given: PathBuf,
    /// Path without symbolic links, which the mount table shows as long as the mount lives.
    pub path: PathBuf,
    /// Kind of file at the path.
    pub kind: SourceKind,
}

/// Checks `path` without opening it: the kernel opens the source of a mount, and would wait for the
/// other end of a FIFO.
pub(crate) fn source(path: &Path) -> Result<Source, MountError> {
    let failed = |source| MountError::Source { path: path.to_path_buf(), source };
    let absolute = path.canonicalize().map_err(failed)?;
    let file_type = fs::metadata(&absolute).map_err(failed)?.file_type();
    let kind = match file_type {
        file_type if file_type.is_file() => SourceKind::File,
        file_type if file_type.is_block_device() => SourceKind::BlockDevice,
        _ => return Err(MountError::NotASource { path: path.to_path_buf() }),
    };
    Ok(Source { given: path.to_path_buf(), path: absolute, kind })
}

/// Checks that a mount at `dir` would hide nothing: no image is mounted there, and the directory is
/// empty. Whether it is a directory at all is left to the mount itself.
///
/// # Errors
/// [`MountError::Occupied`] if something would be hidden; [`MountError::MountPoint`] if `dir`
/// cannot be checked.
pub fn check_free(dir: &Path) -> Result<(), MountError> {
    let path = || dir.to_path_buf();
    let failed = |source| MountError::MountPoint { path: path(), source };
    let mounted = match Mounted::at(dir) {
        // Early in a start, or in an empty root, /proc is missing, and nothing is known of mounts.
        Err(error) if error.kind() == io::ErrorKind::Other => None,
        found => found.map_err(failed)?,
    };
    if let Some(mounted) = mounted.filter(Mounted::is_image) {
        return Err(MountError::Occupied {
            path: path(),
            by: format!("an image is mounted there ({})", mounted.fs_type),
        });
    }
    match fs::read_dir(dir).map_err(failed)?.next() {
        None => Ok(()),
        Some(_) => Err(MountError::Occupied { path: path(), by: "the directory is not empty".into() }),
    }
}

/// Returns the absolute path of the directory `dir`.
pub(crate) fn mount_point(dir: &Path) -> Result<PathBuf, MountError> {
    let failed = |source| MountError::MountPoint { path: dir.to_path_buf(), source };
    let absolute = dir.canonicalize().map_err(failed)?;
    match fs::metadata(&absolute).map_err(failed)?.is_dir() {
        true => Ok(absolute),
        false => Err(failed(io::ErrorKind::NotADirectory.into())),
    }
}
