//! Owners of files, as a mount shows them.

use kiln_format::acl::{IdKind, named_ids};
use std::fmt;
use std::sync::Arc;

/// Users and groups of all files of a mount.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// User ids.
    pub uid: Ids,
    /// Group ids.
    pub gid: Ids,
}

/// Rule for the ids of one kind that a mount shows.
#[derive(Clone, Default)]
pub enum Ids {
    /// Shows the ids in the image.
    #[default]
    Unchanged,
    /// Shows one id for all files. Ids in ACLs are unchanged.
    All(u32),
    /// Shows the result of this function for each id, including those in ACLs and capabilities.
    Mapped(Arc<dyn Fn(u32) -> u32 + Send + Sync>),
}

impl Owners {
    /// Translates the ids in the `value` of the xattr `name`.
    pub(super) fn translate(&self, name: &[u8], value: &mut [u8]) {
        for (kind, bytes) in named_ids(name, value) {
            let ids = match kind {
                IdKind::Uid => &self.uid,
                IdKind::Gid => &self.gid,
            };
            if let Ids::Mapped(map) = ids {
                *bytes = map(u32::from_le_bytes(*bytes)).to_le_bytes();
            }
        }
    }
}

impl Ids {
    /// Returns the id to show for `id` in the image.
    pub(super) fn shown(&self, id: u32) -> u32 {
        match self {
            Ids::Unchanged => id,
            Ids::All(one) => *one,
            Ids::Mapped(map) => map(id),
        }
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ids::Unchanged => f.write_str("Unchanged"),
            Ids::All(id) => f.debug_tuple("All").field(id).finish(),
            Ids::Mapped(_) => f.write_str("Mapped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of an ACL: owner, user 5, mask, group 6.
    const ACL: [[u8; 8]; 4] = [
        [1, 0, 7, 0, 255, 255, 255, 255],
        [2, 0, 6, 0, 5, 0, 0, 0],
        [16, 0, 7, 0, 255, 255, 255, 255],
        [8, 0, 4, 0, 6, 0, 0, 0],
    ];

    #[test]
    fn acls_name_the_ids_that_are_shown() {
        let value = [&2_u32.to_le_bytes()[..], ACL.as_flattened()].concat();
        let translated = |owners: &Owners| {
            let mut value = value.clone();
            owners.translate(b"system.posix_acl_access", &mut value);
            value
        };
        let thousand = || Ids::Mapped(Arc::new(|id| id + 1000));
        assert_eq!(translated(&Owners { uid: Ids::All(7), gid: Ids::Unchanged }), value);
        let mapped = translated(&Owners { uid: thousand(), gid: thousand() });
        let mut expected = value.clone();
        expected[16..20].copy_from_slice(&1005_u32.to_le_bytes());
        expected[32..36].copy_from_slice(&1006_u32.to_le_bytes());
        assert_eq!(mapped, expected);
        let mut other = value.clone();
        Owners { uid: thousand(), gid: thousand() }.translate(b"user.acl", &mut other);
        assert_eq!(other, value);
    }
}
