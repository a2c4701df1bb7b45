//! The kernel's readahead window for a mount. Setting it needs root.

use super::mount_identity::MountIdentity;
use std::fs;
use std::io;

/// Readahead setting of one mount.
pub(super) struct ReadAhead {
    path: String,
}

impl ReadAhead {
    /// Returns the setting of a mount.
    pub(super) fn of(mount: MountIdentity) -> Self {
        let (major, minor) = mount.device;
        Self { path: format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb") }
    }

    /// Returns the window in bytes.
    pub(super) fn get(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.path)?;
        let kib: u64 = text.trim().parse().map_err(io::Error::other)?;
        Ok(kib.saturating_mul(1 << 10))
    }

    /// Sets the window to `bytes`. Open files keep theirs.
    pub(super) fn set(&self, bytes: u64) -> io::Result<()> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot set the readahead, {}: {error}", self.path))
        };
        fs::write(&self.path, (bytes >> 10).to_string()).map_err(failed)
    }
}
