//! Unmounting of images, mounted by any program.

use crate::table::Mounted;
use crate::users::users;
use crate::{MountError, fusermount};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// `FUSE_SUPER_MAGIC` of statfs(2).
const FUSE_MAGIC: u64 = 0x6573_5546;
/// Number of tries to unmount a busy mount: between fork and exec, a child holds its parent's
/// descriptors.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_millis(40);

/// Unmounts the image that is mounted at `dir`, by `umount2`, or by `fusermount3` for a user's own
/// FUSE mount. If mounts are stacked there, the topmost one is unmounted.
///
/// # Errors
/// Nothing is mounted there, or not an EROFS image; the mount is in use; the kernel does not let
/// this user unmount it.
pub fn unmount(dir: &Path) -> Result<(), MountError> {
    let path = || dir.to_path_buf();
    match Mounted::at(dir) {
        Ok(Some(mounted)) if mounted.is_image() => unmount_ours(dir).map_err(|error| match error {
            MountError::Busy { path, .. } => MountError::Busy { users: users(&mounted.dir).unwrap_or_default(), path },
            error => error,
        }),
        Ok(Some(mounted)) => Err(MountError::NotAnImage { path: path(), fs_type: mounted.fs_type }),
        Ok(None) => Err(MountError::NotMounted { path: path() }),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(MountError::NotMounted { path: path() })
        }
        Err(source) => Err(MountError::Unmount { path: path(), source }),
    }
}

/// Unmounts the mount of this process at `dir`.
pub(crate) fn unmount_ours(dir: &Path) -> Result<(), MountError> {
    for _ in 0..BUSY_TRIES {
        match detach(dir, UnmountFlags::empty()) {
            Err(MountError::Busy { .. }) => thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
    detach(dir, UnmountFlags::empty())
}

/// Removes the mount from the tree although it is in use. It ends with its last user.
pub(crate) fn unmount_lazily(dir: &Path) -> Result<(), MountError> {
    detach(dir, UnmountFlags::DETACH)
}

fn detach(dir: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let path = || dir.to_path_buf();
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => Err(MountError::NotMounted { path: path() }),
        Err(Errno::BUSY) => Err(MountError::Busy { path: path(), users: Vec::new() }),
        Err(Errno::PERM) if !is_mount_point(dir) => Err(MountError::NotMounted { path: path() }),
        Err(Errno::PERM) if is_fuse(dir) => by_fusermount(dir, flags.contains(UnmountFlags::DETACH)),
        Err(error @ Errno::PERM) => Err(MountError::NotPermitted {
            path: path(),
            action: "unmount",
            reason: io::Error::from(error).to_string(),
        }),
        Err(error) => Err(MountError::Unmount { path: path(), source: error.into() }),
    }
}

fn by_fusermount(dir: &Path, lazily: bool) -> Result<(), MountError> {
    let path = dir.to_path_buf();
    fusermount::unmount(dir, lazily).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::FuseMissing {
            path,
            what: "fusermount3 not found: install the package fuse3, or unmount as root",
        },
        _ if error.to_string().contains("busy") => MountError::Busy { path, users: Vec::new() },
        _ => MountError::Unmount { path, source: error },
    })
}

/// Returns true if `dir` is on another filesystem than its parent. A FUSE mount whose server is
/// gone only answers ENOTCONN, and must be unmountable, too.
fn is_mount_point(dir: &Path) -> bool {
    match (rustix::fs::stat(dir), rustix::fs::stat(dir.join(".."))) {
        (Ok(here), Ok(above)) => here.st_dev != above.st_dev || here.st_ino == above.st_ino,
        (Err(error), _) | (_, Err(error)) => error == Errno::NOTCONN,
    }
}

fn is_fuse(dir: &Path) -> bool {
    match rustix::fs::statfs(dir) {
        Ok(found) => found.f_type as u64 == FUSE_MAGIC,
        Err(error) => error == Errno::NOTCONN,
    }
}
