//! Identity of the mount at a path.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::path::Path;

/// `STATX_MNT_ID_UNIQUE` of statx(2), Linux 6.8.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Identity that distinguishes one mount from another at the same path. The kernel soon reuses the
/// number of a device. From Linux 6.8 on (`STATX_MNT_ID_UNIQUE`) it never reuses the number of a
/// mount; older kernels return a number that may be reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MountIdentity {
    /// Major and minor number.
    pub(super) device: (u32, u32),
    mount: u64,
}

impl MountIdentity {
    pub(super) fn of(dir: &Path) -> Result<Self, Errno> {
        Self::at(CWD, dir, AtFlags::empty())
    }

    /// Returns the identity of the mount of an open file.
    pub(super) fn of_open(file: &OwnedFd) -> Result<Self, Errno> {
        Self::at(file.as_fd(), Path::new(""), AtFlags::EMPTY_PATH)
    }

    fn at(fd: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> Result<Self, Errno> {
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
        let found = statx(fd, path, flags, wanted)?;
        Ok(Self { device: (found.stx_dev_major, found.stx_dev_minor), mount: found.stx_mnt_id })
    }
}
