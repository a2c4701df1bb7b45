//! The kernel's readahead window for a mount. Setting it needs root.

use super::mount_identity::MountIdentity;
use std::fs;
use std::io;

/// The setting of one mount.
pub(super) struct ReadAhead {
    path: String,
}

impl ReadAhead {
    /// That of a mount.
    pub(super) fn of(mount: MountIdentity) -> Self {
        let (major, minor) = mount.device;
        Self { path: format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb") }
    }

    /// The window in bytes.
    pub(super) fn get(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.path)?;
        let kib: u64 = text.trim().parse().map_err(io::Error::other)?;
        Ok(kib.saturating_mul(1 << 10))
    }

    /// Set the window to so many bytes. Files that are open already keep theirs.
    pub(super) fn set(&self, bytes: u64) -> io::Result<()> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot set its read-ahead, {}: {error}", self.path))
        };
        fs::write(&self.path, (bytes >> 10).to_string()).map_err(failed)
    }
}
