//! Attributes of a mount: the uses of its files that it permits besides reading.

use rustix::mount::{MountAttrFlags, MountFlags};
use std::fmt;

/// Attributes of a mount, named as in mount(8). Every mount is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// True if set-user-id bits, set-group-id bits and file capabilities take effect. Only root may
    /// set this.
    pub suid: bool,
    /// True if device files give access to their devices. Only root may set this.
    pub dev: bool,
    /// True if programs can be run.
    pub exec: bool,
    /// True if symbolic links are followed. False needs Linux 5.10.
    pub symfollow: bool,
}

impl Default for Attributes {
    /// Returns `nosuid,nodev`: an image may come from anywhere.
    fn default() -> Self {
        Self { suid: false, dev: false, exec: true, symfollow: true }
    }
}

impl Attributes {
    /// Returns the flags for fsmount(2).
    pub(crate) fn of_fsmount(self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::MOUNT_ATTR_RDONLY;
        flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !self.suid);
        flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, !self.dev);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, !self.exec);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, !self.symfollow);
        flags
    }

    /// Returns the flags for mount(2).
    pub(crate) fn of_mount(self) -> MountFlags {
        let mut flags = MountFlags::RDONLY;
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::from_bits_retain(MS_NOSYMFOLLOW), !self.symfollow);
        flags
    }

    /// Returns true if only root may mount with these attributes.
    pub(crate) fn need_root(self) -> bool {
        self.suid || self.dev
    }
}

/// Flag of mount(2) that rustix does not define.
const MS_NOSYMFOLLOW: u32 = 0x100;

/// Formats the option list of mount(8): `ro,nosuid,nodev`.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ro")?;
        let names = [(self.suid, "suid"), (self.dev, "dev")];
        for (is_set, name) in names {
            write!(f, ",{}{name}", if is_set { "" } else { "no" })?;
        }
        // Defaults are omitted.
        for (is_set, name) in [(self.exec, "noexec"), (self.symfollow, "nosymfollow")] {
            if !is_set {
                write!(f, ",{name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_mount() {
        let all = Attributes { suid: true, dev: true, exec: false, symfollow: false };
        assert_eq!(Attributes::default().to_string(), "ro,nosuid,nodev");
        assert_eq!(all.to_string(), "ro,suid,dev,noexec,nosymfollow");
        assert_eq!(Attributes::default().of_mount(), MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV);
        assert_eq!(all.of_mount().bits(), 1 | 8 | MS_NOSYMFOLLOW);
    }
}
