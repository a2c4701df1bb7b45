//! Changes of mounts that are there.

use crate::attributes::Attributes;
use crate::error::MountError;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;

/// Gives the mount at `dir` other attributes, whichever driver has mounted it. It stays read-only.
///
/// # Errors
/// A directory on which nothing is mounted; missing privilege.
pub fn remount(dir: &Path, attributes: Attributes) -> Result<(), MountError> {
    mount_remount(dir, MountFlags::BIND | attributes.of_mount(), "").map_err(|errno| match errno {
        Errno::INVAL => MountError::NotMounted { path: dir.to_path_buf() },
        Errno::PERM | Errno::ACCESS => MountError::NotPermitted {
            path: dir.to_path_buf(),
            action: "change the mount",
            reason: std::io::Error::from(errno).to_string(),
        },
        errno => MountError::MountPoint { path: dir.to_path_buf(), source: errno.into() },
    })
}
